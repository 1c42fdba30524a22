package apply

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/coracle-io/coracle/internal/costtest"
)

// wide returns a config map with a number of keys.
func wide(keys int) *corev1.ConfigMap {
	data := make(map[string]string, keys)
	for i := range keys {
		data[fmt.Sprint("key", i)] = ""
	}
	return &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "wide"}, Data: data}
}

// definition returns an applied custom resource definition with a number of
// fields in its schema.
func definition(properties int) map[string]any {
	of := map[string]any{}
	for i := range properties {
		of[fmt.Sprint("group", i/100)] = map[string]any{"type": "object", "properties": map[string]any{}}
	}
	for i := range properties {
		of[fmt.Sprint("group", i/100)].(map[string]any)["properties"].(map[string]any)[fmt.Sprint("p", i)] = map[string]any{"type": "string"}
	}
	version := map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": of}}}
	return map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "wides.example.com"},
		"spec": map[string]any{
			"group": "example.com", "scope": "Namespaced", "versions": []any{version},
			"names": map[string]any{"plural": "wides", "kind": "Wide", "singular": "wide", "listKind": "WideList"},
		},
	}
}

// An object that the store accepts is applied and tracked, however many fields
// it has.
func TestManyFields(t *testing.T) {
	m := newManagers(t)
	definitions := kind(t, "customresourcedefinitions", "")
	if made, err := m.Apply(definitions, nil, definition(64_000), "tester", false); err != nil || len(made.GetManagedFields()) != 1 {
		t.Errorf("a definition of 64,000 properties is not applied: %.300v", err)
	}
	maps := kind(t, "configmaps", "")
	obj := wide(21_000)
	if err := m.Update(maps, nil, obj, "creator"); err != nil || len(obj.ManagedFields) != 1 {
		t.Fatalf("21,000 keys are not tracked: %v", err)
	}
	obj.SetUID("uid")
	label := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "wide", "namespace": "default", "labels": map[string]any{"a": "b"}}}
	labeled, err := m.Apply(maps, obj, label, "labeler", false)
	if err != nil || len(labeled.GetManagedFields()) != 2 {
		t.Fatalf("a label is not applied to 21,000 keys: %v", err)
	}
	changed := labeled.DeepCopyObject().(*corev1.ConfigMap)
	changed.Data["key7"] = "changed"
	if err := m.Update(maps, labeled, changed, "changer"); err != nil || len(changed.ManagedFields) != 3 {
		t.Errorf("a change of one of 21,000 keys is not tracked: %v", err)
	}
}

// Elements of atomic lists and maps have no bound: a custom resource may have a
// long vector.
func TestAtomicListsHaveNoBound(t *testing.T) {
	m := newManagers(t)
	role := map[string]any{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": map[string]any{"name": "long"}}
	names := make([]any, 4*maxListItems)
	for i := range names {
		names[i] = fmt.Sprint(i)
	}
	role["rules"] = []any{map[string]any{"verbs": []any{"get"}, "resources": []any{"pods"}, "apiGroups": []any{""}, "resourceNames": names}}
	if made, err := m.Apply(kind(t, "clusterroles", ""), nil, role, "tester", false); err != nil || len(made.GetManagedFields()) != 1 {
		t.Errorf("%d names in a rule are not applied: %v", len(names), err)
	}
}

// An object that is too wide to be stored with its managers is refused, since
// the time to track them is quadratic in the longest map or list.
func TestTooManyFields(t *testing.T) {
	m := newManagers(t)
	maps, pods := kind(t, "configmaps", ""), kind(t, "pods", "")
	many := wide(150_000)
	data := map[string]any{}
	for key := range many.Data {
		data[key] = ""
	}
	pod, small := usual(0), wide(1)
	for i := range maxListItems + 1 {
		pod.Finalizers = append(pod.Finalizers, fmt.Sprintf("example.com/%06d", maxListItems-i))
	}
	configuration := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "wide", "namespace": "default"}, "data": data}}
	cost := costtest.Of(t, func() {
		if err := m.Update(maps, nil, many, "tester"); !apierrors.IsRequestEntityTooLargeError(err) {
			t.Errorf("150,000 keys: %v", err)
		}
		if err := m.Update(pods, nil, pod, "tester"); !apierrors.IsRequestEntityTooLargeError(err) {
			t.Errorf("%d finalizers: %v", len(pod.Finalizers), err)
		}
		if _, err := m.Apply(maps, nil, configuration.Object, "tester", false); !apierrors.IsRequestEntityTooLargeError(err) {
			t.Errorf("150,000 keys are applied: %v", err)
		}
		var owned strings.Builder
		for i := range 200_000 {
			fmt.Fprintf(&owned, `"f:%06d":{},`, 200_000-i)
		}
		claimed := wide(1)
		claimed.ManagedFields = []metav1.ManagedFieldsEntry{{
			Manager: "claimant", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(`{"f:data":{` + strings.TrimSuffix(owned.String(), ",") + `}}`),
		}}
		if err := m.Update(maps, nil, claimed, "tester"); !apierrors.IsRequestEntityTooLargeError(err) {
			t.Errorf("an owner of 200,000 fields: %v", err)
		}
		many.SetUID("uid")
		if err := m.Update(maps, many, small, "tester"); err != nil {
			t.Errorf("what is too wide cannot be made smaller: %v", err)
		}
	})
	if cost.Processor > 30*time.Second {
		t.Errorf("that took %v of processor time", cost.Processor)
	}
}
