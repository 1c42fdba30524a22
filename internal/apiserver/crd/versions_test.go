package crd_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

const oars = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: oars.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: oars, kind: Oar}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    deprecated: true
    schema: {openAPIV3Schema: {type: object, properties: {length: {type: string}}}}
  - name: v1
    served: true
    storage: false
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, properties: {length: {type: string}, status: {type: object, properties: {wet: {type: boolean}}}, spare: {type: boolean, default: true}}}}
`

func oar(version, name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/" + version, "kind": "Oar",
		"metadata": map[string]any{"name": name, "namespace": "default"}, "length": "2m",
	}}
}

// The storage version changes while objects are watched, and objects that were
// stored before remain.
func TestVersions(t *testing.T) {
	c := start(t)
	ctx := t.Context()
	c.define(oars)
	old, current := c.kind("v1alpha1", "oars"), c.kind("v1", "oars")
	if _, err := old.Create(ctx, oar("v1alpha1", "left"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	watched, err := current.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watched.Stop()
	expect(t, watched, watch.Added, "left")

	definitions := c.definitions.ApiextensionsV1().CustomResourceDefinitions()
	if _, err := definitions.Patch(ctx, "oars.example.com", types.JSONPatchType, []byte(`[
		{"op":"replace","path":"/spec/versions/0/storage","value":false},
		{"op":"replace","path":"/spec/versions/1/storage","value":true}]`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	crd := c.await("oars.example.com", func(crd *apiextensionsv1.CustomResourceDefinition) bool { return len(crd.Status.StoredVersions) == 2 })
	if !slices.Equal(crd.Status.StoredVersions, []string{"v1alpha1", "v1"}) {
		t.Errorf("stored versions: %v", crd.Status.StoredVersions)
	}
	got, err := current.Get(ctx, "left", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got.GetAPIVersion() != "example.com/v1" || got.Object["length"] != "2m" {
		t.Errorf("read in another version: %v", got.Object)
	}
	got.Object["status"] = map[string]any{"wet": true}
	if _, err := current.UpdateStatus(ctx, got, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	got, err = old.Get(ctx, "left", metav1.GetOptions{})
	if err != nil || got.GetAPIVersion() != "example.com/v1alpha1" || got.Object["status"] != nil {
		t.Errorf("read in the older version: %v %v", got, err)
	}
}

// An apply that changes nothing succeeds in each version, whichever is stored, and
// answers in the version that was asked for.
func TestApplyInAnotherVersion(t *testing.T) {
	c := start(t)
	c.define(oars)
	apply := func(version, manager string) {
		t.Helper()
		got, err := c.kind(version, "oars").Apply(t.Context(), "left", oar(version, "left"), metav1.ApplyOptions{FieldManager: manager})
		if err != nil {
			t.Errorf("%s by %s: %v", version, manager, err)
			return
		}
		i := slices.IndexFunc(got.GetManagedFields(), func(m metav1.ManagedFieldsEntry) bool { return m.Manager == manager })
		if want := "example.com/" + version; got.GetAPIVersion() != want || i < 0 || got.GetManagedFields()[i].APIVersion != want {
			t.Errorf("%s by %s: %v", version, manager, got.Object)
		}
	}
	apply("v1alpha1", "one")
	for range 2 {
		apply("v1", "one")
		apply("v1", "two")
		apply("v1alpha1", "one")
		apply("v1alpha1", "two")
	}
}

// A watch continues after a change of the schema.
func TestWatchAcrossSchemaChange(t *testing.T) {
	c := start(t)
	ctx := t.Context()
	c.define(oars)
	oars := c.kind("v1alpha1", "oars")
	watched, err := oars.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watched.Stop()
	if _, err := c.definitions.ApiextensionsV1().CustomResourceDefinitions().Patch(ctx, "oars.example.com", types.JSONPatchType, []byte(
		`[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/blade","value":{"type":"string","default":"square"}}]`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	for i := 0; ; i++ {
		made, err := oars.Create(ctx, oar("v1alpha1", fmt.Sprint("n", i)), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		expect(t, watched, watch.Added, made.GetName())
		if made.Object["blade"] == "square" {
			break
		}
	}
}

func TestNameConflict(t *testing.T) {
	c := start(t)
	ctx := t.Context()
	c.define(oars)
	second := strings.NewReplacer("oars", "paddles", "plural: oars", "plural: paddles").Replace(oars)
	wanted := &apiextensionsv1.CustomResourceDefinition{}
	decode(t, second, wanted)
	definitions := c.definitions.ApiextensionsV1().CustomResourceDefinitions()
	if _, err := definitions.Create(ctx, wanted, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	refused := c.await("paddles.example.com", func(crd *apiextensionsv1.CustomResourceDefinition) bool {
		return apihelpers.IsCRDConditionFalse(crd, apiextensionsv1.NamesAccepted)
	})
	condition := apihelpers.FindCRDCondition(refused, apiextensionsv1.NamesAccepted)
	if condition.Reason != "ListKindConflict" || condition.Message != `"OarList" is already in use` || apihelpers.IsCRDConditionTrue(refused, apiextensionsv1.Established) {
		t.Errorf("conditions: %+v", refused.Status.Conditions)
	}
	if err := definitions.Delete(ctx, "oars.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.await("paddles.example.com", func(crd *apiextensionsv1.CustomResourceDefinition) bool {
		return apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established)
	})
}

func TestApplyAndOwnership(t *testing.T) {
	c := start(t)
	ctx := t.Context()
	c.define(boats)
	boats := c.kind("v1", "boats")
	configuration := func(port int) *unstructured.Unstructured {
		u := object(t, coracle)
		delete(u.Object, "status")
		u.Object["spec"] = map[string]any{"hull": "hide", "ports": []any{map[string]any{"name": "a", "number": int64(port)}}}
		return u
	}
	if _, err := boats.Apply(ctx, "coracle", configuration(1), metav1.ApplyOptions{FieldManager: "one"}); err != nil {
		t.Fatal(err)
	}
	if _, err := boats.Apply(ctx, "coracle", configuration(2), metav1.ApplyOptions{FieldManager: "two"}); err == nil || !strings.Contains(err.Error(), `conflict with "one": .spec.ports[name="a"].number`) {
		t.Errorf("contested field: %v", err)
	}
	crowded := configuration(1)
	if err := unstructured.SetNestedField(crowded.Object, int64(2), "spec", "paddles"); err != nil {
		t.Fatal(err)
	}
	if _, err := boats.Apply(ctx, "coracle", crowded, metav1.ApplyOptions{FieldManager: "one"}); err == nil || !strings.HasSuffix(err.Error(), "spec: Invalid value: every paddle needs a hand") {
		t.Errorf("applied against a rule: %v", err)
	}
	bad := configuration(1)
	if err := unstructured.SetNestedField(bad.Object, "x", "spec", "nonsense"); err != nil {
		t.Fatal(err)
	}
	if _, err := boats.Apply(ctx, "coracle", bad, metav1.ApplyOptions{FieldManager: "one"}); err == nil || !strings.Contains(err.Error(), "field not declared in schema") {
		t.Errorf("field that is not in the schema: %v", err)
	}
}

func TestPublishedDocuments(t *testing.T) {
	c := start(t)
	c.define(boats)
	client := discovery.NewDiscoveryClientForConfigOrDie(c.server.Config)
	list, err := client.ServerResourcesForGroupVersion("example.com/v1")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range list.APIResources {
		names = append(names, r.Name)
	}
	if !slices.Equal(names, []string{"boats", "boats/scale", "boats/status"}) || !slices.Equal(list.APIResources[0].ShortNames, []string{"bt"}) {
		t.Errorf("discovery: %+v", list.APIResources)
	}
	paths, err := client.OpenAPIV3().Paths()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := paths["apis/example.com/v1"].Schema("application/json")
	if err != nil || !strings.Contains(string(raw), "What it is made of.") || !strings.Contains(string(raw), "com.example.v1.Boat") {
		t.Errorf("OpenAPI: %.200s %v", raw, err)
	}
	if _, err := c.kind("v1", "boats").Create(t.Context(), object(t, coracle), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	table, err := tableOf(c.server.Config, "boats")
	if err != nil {
		t.Fatal(err)
	}
	var header []string
	for _, column := range table.ColumnDefinitions {
		header = append(header, column.Name)
	}
	cells := table.Rows[0].Cells
	if !slices.Equal(header, []string{"Name", "Hull", "Crew", "Age"}) || cells[0] != "coracle" || cells[1] != "hide" || cells[2] != int64(1) && cells[2] != float64(1) {
		t.Errorf("table: %v %v", header, cells)
	}
}

// tableOf lists the objects of a resource in the version v1 as a Table.
func tableOf(config *rest.Config, plural string) (*metav1.Table, error) {
	request, err := http.NewRequest(http.MethodGet, config.Host+"/apis/example.com/v1/namespaces/default/"+plural, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(response.Body)
		return nil, fmt.Errorf("%s: %s", response.Status, body)
	}
	table := &metav1.Table{}
	return table, json.NewDecoder(response.Body).Decode(table)
}

// Objects with finalizers delay the deletion of the definition, and no new ones
// can be created.
func TestTermination(t *testing.T) {
	c := start(t)
	ctx := t.Context()
	c.define(oars)
	oars := c.kind("v1", "oars")
	held := oar("v1", "held")
	held.SetFinalizers([]string{"example.com/hold"})
	if _, err := oars.Create(ctx, held, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.definitions.ApiextensionsV1().CustomResourceDefinitions().Delete(ctx, "oars.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.await("oars.example.com", func(crd *apiextensionsv1.CustomResourceDefinition) bool {
		condition := apihelpers.FindCRDCondition(crd, apiextensionsv1.Terminating)
		return condition != nil && condition.Reason == "InstanceDeletionInProgress"
	})
	_, err := oars.Create(ctx, oar("v1", "late"), metav1.CreateOptions{})
	if err == nil || err.Error() != `oars.example.com "late" is forbidden: create not allowed while custom resource definition is terminating` {
		t.Errorf("create: %v", err)
	}
	if _, err := oars.Patch(ctx, "held", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	c.await("oars.example.com", func(crd *apiextensionsv1.CustomResourceDefinition) bool { return crd == nil })
}

func TestProtectedGroup(t *testing.T) {
	c := start(t)
	wanted := &apiextensionsv1.CustomResourceDefinition{}
	decode(t, strings.ReplaceAll(oars, "example.com", "oars.k8s.io"), wanted)
	definitions := c.definitions.ApiextensionsV1().CustomResourceDefinitions()
	_, err := definitions.Create(t.Context(), wanted, metav1.CreateOptions{})
	wantInvalid(t, err, `CustomResourceDefinition.apiextensions.k8s.io "oars.oars.k8s.io" is invalid: metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have approval annotation "api-approved.kubernetes.io", see https://github.com/kubernetes/enhancements/pull/1111`)
	wanted.Annotations = map[string]string{apiextensionsv1.KubeAPIApprovedAnnotation: "unapproved, for a test"}
	c.create(wanted)
	crd := c.await(wanted.Name, func(crd *apiextensionsv1.CustomResourceDefinition) bool {
		return apihelpers.IsCRDConditionFalse(crd, apiextensionsv1.KubernetesAPIApprovalPolicyConformant)
	})
	if condition := apihelpers.FindCRDCondition(crd, apiextensionsv1.KubernetesAPIApprovalPolicyConformant); condition.Reason != "UnapprovedAnnotation" {
		t.Errorf("condition: %+v", condition)
	}
}
