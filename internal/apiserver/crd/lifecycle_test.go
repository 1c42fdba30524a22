package crd_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/coracle-io/coracle/internal/store"
)

const boats = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boats.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: boats, singular: boat, kind: Boat, listKind: BoatList, shortNames: [bt], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.crew, statusReplicasPath: .status.crew, labelSelectorPath: .status.selector}
    selectableFields: [{jsonPath: .spec.hull}]
    additionalPrinterColumns:
    - {name: Hull, type: string, jsonPath: .spec.hull}
    - {name: Crew, type: integer, jsonPath: .spec.crew}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    schema:
      openAPIV3Schema:
        type: object
        description: A boat.
        required: [spec]
        properties:
          spec:
            type: object
            required: [hull]
            properties:
              hull: {type: string, enum: [hide, wood], description: What it is made of.}
              crew: {type: integer, minimum: 0, maximum: 12, default: 1}
              paddles: {type: integer}
              ports:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items:
                  type: object
                  required: [name]
                  properties: {name: {type: string}, number: {type: integer}}
            x-kubernetes-validations:
            - rule: "!has(self.paddles) || self.paddles <= self.crew"
              messageExpression: "self.hull == 'hide' ? 'every paddle needs a hand' : 'too many paddles'"
          status:
            type: object
            properties: {crew: {type: integer}, selector: {type: string}, afloat: {type: boolean}}
`

const coracle = `
apiVersion: example.com/v1
kind: Boat
metadata: {name: coracle, namespace: default}
spec: {hull: hide, unknown: 1}
status: {afloat: true}
`

func TestLifeOfACustomResource(t *testing.T) {
	c := start(t)
	ctx := c.Context()
	definition := c.define(boats)
	if got := definition.Status.AcceptedNames; got.Plural != "boats" || got.ListKind != "BoatList" {
		t.Errorf("accepted names: %+v", got)
	}
	for _, kind := range []apiextensionsv1.CustomResourceDefinitionConditionType{apiextensionsv1.NamesAccepted, apiextensionsv1.Established} {
		if !apihelpers.IsCRDConditionTrue(definition, kind) {
			t.Errorf("%s is not true: %+v", kind, definition.Status.Conditions)
		}
	}
	boats := c.kind("v1", "boats")

	watched, err := boats.Watch(ctx, metav1.ListOptions{FieldSelector: "spec.hull=hide"})
	if err != nil {
		t.Fatal(err)
	}
	defer watched.Stop()

	made, err := boats.Create(ctx, object(t, coracle), metav1.CreateOptions{FieldValidation: "Ignore"})
	if err != nil {
		t.Fatal(err)
	}
	spec, _, _ := unstructured.NestedMap(made.Object, "spec")
	if len(spec) != 2 || spec["crew"] != int64(1) || made.Object["status"] != nil || made.GetGeneration() != 1 {
		t.Errorf("not pruned, defaulted or without status: %v", made.Object)
	}
	if _, err := boats.Create(ctx, object(t, coracle), metav1.CreateOptions{FieldValidation: "Strict"}); !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), `unknown field "spec.unknown"`) {
		t.Errorf("strict create: %v", err)
	}
	expect(t, watched, watch.Added, "coracle")

	made.Object["status"] = map[string]any{"afloat": true, "crew": int64(1)}
	if err := unstructured.SetNestedField(made.Object, "wood", "spec", "hull"); err != nil {
		t.Fatal(err)
	}
	afloat, err := boats.UpdateStatus(ctx, made, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if hull, _, _ := unstructured.NestedString(afloat.Object, "spec", "hull"); hull != "hide" || afloat.GetGeneration() != 1 {
		t.Errorf("a write of the status changed more: %v", afloat.Object)
	}
	expect(t, watched, watch.Modified, "coracle")

	scale, err := boats.Get(ctx, "coracle", metav1.GetOptions{}, "scale")
	if err != nil {
		t.Fatal(err)
	}
	if err := unstructured.SetNestedField(scale.Object, int64(3), "spec", "replicas"); err != nil {
		t.Fatal(err)
	}
	if _, err := boats.Update(ctx, scale, metav1.UpdateOptions{}, "scale"); err != nil {
		t.Fatal(err)
	}
	crewed, err := boats.Get(ctx, "coracle", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if crew, _, _ := unstructured.NestedInt64(crewed.Object, "spec", "crew"); crew != 3 || crewed.GetGeneration() != 2 {
		t.Errorf("scaled: %v", crewed.Object)
	}
	expect(t, watched, watch.Modified, "coracle")

	if _, err := boats.Patch(ctx, "coracle", types.MergePatchType, []byte(`{"spec":{"hull":"wood"}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	expect(t, watched, watch.Deleted, "coracle")
	c.checkLists(boats)
	c.deleteDefinition(boats)
}

// checkLists lists boats by selectable and by other fields.
func (c *cluster) checkLists(boats dynamic.ResourceInterface) {
	t, ctx := c.T, c.Context()
	t.Helper()
	list, err := boats.List(ctx, metav1.ListOptions{FieldSelector: "spec.hull=wood"})
	if err != nil || len(list.Items) != 1 || list.GetKind() != "BoatList" {
		t.Errorf("list by field: %v %v", list, err)
	}

	_, err = boats.List(ctx, metav1.ListOptions{FieldSelector: "spec.crew=1"})
	if !apierrors.IsBadRequest(err) || !strings.HasSuffix(err.Error(), "field label not supported: spec.crew") {
		t.Errorf("list by another field: %v", err)
	}
}

// deleteDefinition deletes the definition of boats, and waits until the boats are
// removed and no longer served.
func (c *cluster) deleteDefinition(boats dynamic.ResourceInterface) {
	t, ctx := c.T, c.Context()
	t.Helper()
	if err := c.definitions.ApiextensionsV1().CustomResourceDefinitions().Delete(ctx, "boats.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.await("boats.example.com", func(crd *apiextensionsv1.CustomResourceDefinition) bool { return crd == nil })
	page, err := c.server.Store.List(ctx, "/registry/example.com/", store.ListOptions{})
	if err != nil || len(page.Items) != 0 {
		t.Errorf("left in the store: %v %v", page.Items, err)
	}
	for {
		if _, err := boats.List(ctx, metav1.ListOptions{}); apierrors.IsNotFound(err) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func expect(t *testing.T, w watch.Interface, kind watch.EventType, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	select {
	case e, ok := <-w.ResultChan():
		u, _ := e.Object.(*unstructured.Unstructured)
		if !ok || e.Type != kind || u == nil || u.GetName() != name {
			t.Fatalf("got event %+v, want %s %s", e, kind, name)
		}
	case <-ctx.Done():
		t.Fatalf("no event %s %s", kind, name)
	}
}

func TestValidation(t *testing.T) {
	c := start(t)
	c.define(boats)
	api := c.kind("v1", "boats")
	for _, tt := range []struct{ name, spec, want string }{
		{"required", `{}`, `Boat.example.com "x" is invalid: [spec.hull: Required value, <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation]`},
		{"enum", `{hull: glass}`, `Boat.example.com "x" is invalid: [spec.hull: Unsupported value: "glass": supported values: "hide", "wood", <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation]`},
		{"maximum", `{hull: hide, crew: 13}`, `Boat.example.com "x" is invalid: spec.crew: Invalid value: 13: spec.crew in body should be less than or equal to 12`},
		{"type", `{hull: hide, crew: many}`, `Boat.example.com "x" is invalid: [spec.crew: Invalid value: "string": spec.crew in body must be of type integer: "string", .spec.crew: Invalid value: 0: .spec.crew accessor error: many is of the type string, expected int64, <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation]`},
		{"rule", `{hull: hide, crew: 1, paddles: 2}`, `Boat.example.com "x" is invalid: spec: Invalid value: every paddle needs a hand`},
		{"list map", `{hull: hide, ports: [{name: a}, {name: a}]}`, `Boat.example.com "x" is invalid: spec.ports[1]: Duplicate value: {"name":"a"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := api.Create(t.Context(), object(t, "apiVersion: example.com/v1\nkind: Boat\nmetadata: {name: x}\nspec: "+tt.spec), metav1.CreateOptions{})
			wantInvalid(t, err, tt.want)
		})
	}
}

// A deleted definition leaves no metrics behind, also not those of a watch that
// ends with it.
func TestMetricsOfADeletedDefinition(t *testing.T) {
	c := start(t)
	c.define(boats)
	watching, err := c.kind("v1", "boats").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watching.Stop()
	if _, err := c.kind("v1", "boats").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	if c.metrics(`resource="boats"`) == "" {
		t.Fatal("requests for boats are not counted")
	}
	if err := c.definitions.ApiextensionsV1().CustomResourceDefinitions().Delete(t.Context(), "boats.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for range watching.ResultChan() { // until the server ends it
	}
	ended := `resource="",scope="",subresource="",verb="WATCH"`
	for late := time.Now().Add(patience); c.metrics(ended) == "" && time.Now().Before(late); {
	}
	if c.metrics(ended) == "" {
		t.Error("the end of the watch is not counted")
	}
	if lines := c.metrics(`resource="boats"`); lines != "" {
		t.Errorf("metrics are left:\n%s", lines)
	}
}

// metrics returns the lines of the server's metrics that contain text.
func (c *cluster) metrics(text string) string {
	w := httptest.NewRecorder()
	c.counts.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	var found strings.Builder
	for line := range strings.Lines(w.Body.String()) {
		if strings.Contains(line, text) {
			found.WriteString(line)
		}
	}
	return found.String()
}
