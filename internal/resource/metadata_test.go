package resource

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"pgregory.net/rapid"
)

// TestPlainMetadataIsValid draws nearly valid metadata and checks that the
// library finds no error in what is recognized as plain.
func TestPlainMetadataIsValid(t *testing.T) {
	plain, changes := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		obj, old := metadata().Draw(t, "new"), metadata().Draw(t, "old")
		namespaced := rapid.Bool().Draw(t, "namespaced")
		if plainMetadata(obj, namespaced, validation.NameIsDNSSubdomain) {
			plain++
			if errs := validation.ValidateObjectMetaAccessor(obj, namespaced, validation.NameIsDNSSubdomain, field.NewPath("metadata")); len(errs) > 0 {
				t.Fatalf("%+v is taken for plain: %v", obj, errs)
			}
		}
		if plainChange(obj, old) {
			changes++
			if errs := validation.ValidateObjectMetaAccessorUpdate(obj, old, field.NewPath("metadata")); len(errs) > 0 {
				t.Fatalf("from %+v to %+v is taken for plain: %v", old, obj, errs)
			}
		}
	})
	if plain == 0 || changes == 0 {
		t.Errorf("%d of the metadata was plain, and %d changes", plain, changes)
	}
}

// mostly draws the first value at least nine times out of ten, else one of the
// others. Small integers are drawn more often than large ones.
func mostly[T any](t *rapid.T, name string, usual T, odd ...T) T {
	if rapid.IntRange(0, 9).Draw(t, "odd "+name) < 9 {
		return usual
	}
	return rapid.SampledFrom(odd).Draw(t, name)
}

// metadata draws from few values, so that two draws are often alike.
func metadata() *rapid.Generator[*metav1.ObjectMeta] {
	names := rapid.StringMatching(`[a-zA-Z0-9._/ -]{0,3}`)
	keys := rapid.OneOf(rapid.StringMatching(`([a-zA-Z0-9.-]{0,4}/)?[a-zA-Z0-9._-]{0,4}/?`), rapid.StringMatching(`[a-z]{60,70}`))
	return rapid.Custom(func(t *rapid.T) *metav1.ObjectMeta {
		deleted, yes := metav1.Unix(2e9, 0), true
		m := &metav1.ObjectMeta{
			Name:                       mostly(t, "name", "a", names.Draw(t, "odd")),
			GenerateName:               mostly(t, "prefix", "", names.Draw(t, "odd")),
			Namespace:                  mostly(t, "namespace", "default", "", "a.b", "-", "UP"),
			ResourceVersion:            mostly(t, "version", "1", ""),
			UID:                        mostly(t, "uid", types.UID("u"), "v"),
			Generation:                 mostly(t, "generation", int64(1), 0, -1),
			CreationTimestamp:          mostly(t, "created", metav1.Unix(1e9, 0), metav1.Unix(1e9, int64(time.Second)), metav1.Time{}),
			DeletionTimestamp:          mostly(t, "deleted", nil, &deleted),
			DeletionGracePeriodSeconds: mostly(t, "grace", nil, new(int64)),
			Finalizers:                 mostly(t, "finalizers", nil, []string{""}, []string{"a"}, []string{"x/y"}, []string{"x/y/z"}, []string{metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents}),
			Labels:                     map[string]string{mostly(t, "label", "app", keys.Draw(t, "odd")): mostly(t, "label's value", "web", "", keys.Draw(t, "odd"))},
			Annotations: map[string]string{mostly(t, "annotation", "example.com/note", keys.Draw(t, "odd")): mostly(t, "annotation's value", "any text",
				string(make([]byte, validation.TotalAnnotationSizeLimitB)))},
		}
		for range rapid.IntRange(0, 2).Draw(t, "owners") {
			m.OwnerReferences = append(m.OwnerReferences, metav1.OwnerReference{
				APIVersion: mostly(t, "owner's version", "apps/v1", "v1", "", "/", "/v1", "a/", "a/b/c"),
				Kind:       mostly(t, "owner's kind", "Pod", "Event", ""),
				Name:       mostly(t, "owner's name", "n", ""),
				UID:        mostly(t, "owner's uid", types.UID("u"), ""),
				Controller: mostly(t, "controller", nil, new(bool), &yes),
			})
		}
		for range rapid.IntRange(0, 1).Draw(t, "managers") {
			m.ManagedFields = append(m.ManagedFields, metav1.ManagedFieldsEntry{
				Manager:     mostly(t, "manager", "kubectl", "", "b\x00d", "ü"),
				Operation:   mostly(t, "operation", metav1.ManagedFieldsOperationUpdate, "Apply", "", "Other"),
				FieldsType:  mostly(t, "type", "FieldsV1", "", "FieldsV2"),
				Subresource: mostly(t, "subresource", "", "status", string(make([]byte, 300))),
			})
		}
		return m
	})
}

func BenchmarkValidateMetadata(b *testing.B) {
	obj := &metav1.ObjectMeta{
		Name: "web-5d4f8", Namespace: "default", ResourceVersion: "1", UID: "u",
		Labels:          map[string]string{"app": "web", "pod-template-hash": "5d4f8", "app.kubernetes.io/name": "web"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "u"}},
		ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "kubectl", Operation: "Update", FieldsType: "FieldsV1"}},
	}
	b.ReportAllocs()
	for b.Loop() {
		if len(ValidateMetadata(obj, true, validation.NameIsDNSSubdomain)) > 0 || len(validateMetadataUpdate(obj, obj)) > 0 {
			b.Fatal("not valid")
		}
	}
}
