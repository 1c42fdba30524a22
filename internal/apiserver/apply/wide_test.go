package apply

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// plain iterates over maps in random order.
func plain(t *testing.T, m *Managers) {
	t.Helper()
	for gv, made := range m.converters {
		m.converters[gv] = made.(ordered).TypeConverter
	}
	m.trackers.Clear()
}

// Wide maps are iterated in order, alone and zipped with the map of another
// object, in all forms of objects.
func TestWideMapsIterateInOrder(t *testing.T) {
	m := newManagers(t)
	types, err := m.converter(corev1.SchemeGroupVersion)
	if err != nil {
		t.Fatal(err)
	}
	typed := wide(2 * wideMap)
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		t.Fatal(err)
	}
	for what, obj := range map[string]runtime.Object{"typed": typed, "unstructured": &unstructured.Unstructured{Object: content}} {
		v, err := types.ObjectToTyped(obj)
		if err != nil {
			t.Fatal(err)
		}
		data, ok := v.AsValue().AsMap().Get("data")
		if !ok {
			t.Fatalf("%s: no data", what)
		}
		for how, through := range map[string]func(func(string)){
			"alone": func(f func(string)) {
				data.AsMap().Iterate(func(key string, _ value.Value) bool { f(key); return true })
			},
			"beside": func(f func(string)) {
				value.MapZip(data.AsMap(), data.AsMap(), value.Unordered, func(key string, _, _ value.Value) bool { f(key); return true })
			},
			"beside nothing": func(f func(string)) {
				value.MapZip(nil, data.AsMap(), value.Unordered, func(key string, _, _ value.Value) bool { f(key); return true })
			},
		} {
			var keys []string
			through(func(key string) { keys = append(keys, key) })
			if len(keys) != 2*wideMap || !slices.IsSorted(keys) {
				t.Errorf("%s, %s: %d keys, sorted: %v", what, how, len(keys), slices.IsSorted(keys))
			}
		}
	}
}

// The result for wide objects does not depend on the order.
func TestResultDoesNotDependOnOrder(t *testing.T) {
	type step func(m *Managers) ([]metav1.ManagedFieldsEntry, error)
	maps, pods := kind(t, "configmaps", ""), kind(t, "pods", "")
	created, changed := wide(wideMap+1), wide(wideMap+1)
	created.SetUID("uid")
	changed.SetUID("uid")
	delete(changed.Data, "key7")
	changed.Data["key8"] = "changed"
	configuration := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "wide", "namespace": "default"}, "data": map[string]any{}}
	for key := range created.Data {
		configuration["data"].(map[string]any)[key] = "applied"
	}
	pod := usual(0)
	for i := range wideMap + 1 {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, fmt.Sprint("a", i), "") // beside lists whose items have keys
	}
	for what, of := range map[string]step{
		"create": func(m *Managers) ([]metav1.ManagedFieldsEntry, error) {
			obj := wide(wideMap + 1)
			err := m.Update(maps, nil, obj, "one")
			return obj.ManagedFields, err
		},
		"update": func(m *Managers) ([]metav1.ManagedFieldsEntry, error) {
			before, after := created.DeepCopy(), changed.DeepCopy()
			if err := m.Update(maps, nil, before, "one"); err != nil {
				return nil, err
			}
			after.ManagedFields = before.ManagedFields
			err := m.Update(maps, before, after, "two")
			return after.ManagedFields, err
		},
		"apply": func(m *Managers) ([]metav1.ManagedFieldsEntry, error) {
			before := created.DeepCopy()
			if err := m.Update(maps, nil, before, "one"); err != nil {
				return nil, err
			}
			made, err := m.Apply(maps, before, runtime.DeepCopyJSON(configuration), "two", true)
			if err != nil {
				return nil, err
			}
			return made.GetManagedFields(), nil
		},
		"pod": func(m *Managers) ([]metav1.ManagedFieldsEntry, error) {
			obj := pod.DeepCopy()
			err := m.Update(pods, nil, obj, "one")
			return obj.ManagedFields, err
		},
	} {
		var outcomes [][]metav1.ManagedFieldsEntry
		for _, inOrder := range []bool{true, false} {
			m := newManagers(t)
			if _, err := m.converter(corev1.SchemeGroupVersion); err != nil {
				t.Fatal(err)
			}
			if !inOrder {
				plain(t, m)
			}
			entries, err := of(m)
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			for i := range entries {
				entries[i].Time = nil
			}
			outcomes = append(outcomes, entries)
		}
		if diff := cmp.Diff(outcomes[1], outcomes[0]); diff != "" || len(outcomes[0]) == 0 {
			t.Errorf("%s (-as it comes +in order):\n%.3000s", what, diff)
		}
	}
}

// Managed fields that a client sends are sorted before parsing. Managed fields
// of long lists in a bad order are refused.
func TestOrderOfLongListsAndOwners(t *testing.T) {
	m := newManagers(t)
	maps, pods := kind(t, "configmaps", ""), kind(t, "pods", "")
	claim := func(format string, n int) *corev1.ConfigMap {
		var owned strings.Builder
		for i := range n {
			fmt.Fprintf(&owned, format+":{},", 999_999-i)
		}
		obj := wide(1)
		obj.ManagedFields = []metav1.ManagedFieldsEntry{{
			Manager: "claimant", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(`{"f:data":{` + strings.TrimSuffix(owned.String(), ",") + `}}`),
		}}
		return obj
	}
	obj := claim(`"f:%06d"`, 20_000)
	if err := sortOwners(wide(0), obj); err != nil {
		t.Fatal(err)
	}
	if text := string(obj.ManagedFields[0].FieldsV1.GetRawBytes()); !strings.HasPrefix(text, `{"f:data":{"f:980000":{},"f:980001":{}`) {
		t.Errorf("the owners are in the order %.100s", text)
	}
	if err := m.Update(maps, nil, claim(`"v:%06d"`, 20_000), "tester"); !apierrors.IsRequestEntityTooLargeError(err) {
		t.Errorf("20,000 items of a list: %v", err)
	}
	finalizers := func(n int, format string) *corev1.Pod {
		pod := usual(0)
		for i := range n {
			pod.Finalizers = append(pod.Finalizers, fmt.Sprintf(format, i, 999_999-i))
		}
		return pod
	}
	if err := m.Update(pods, nil, finalizers(20_000, "example.com/%06[1]d"), "tester"); err != nil {
		t.Errorf("20,000 finalizers in order: %v", err)
	}
	if err := m.Update(pods, nil, finalizers(20_000, "example.com/%06[2]d"), "tester"); !apierrors.IsRequestEntityTooLargeError(err) {
		t.Errorf("20,000 finalizers in reverse order: %v", err)
	}
}
