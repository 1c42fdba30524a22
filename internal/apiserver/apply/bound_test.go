package apply

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The owners of an object's fields are tracked up to so many fields, and what
// has more is not applied: the time would grow with the square of their number.
func TestFieldsWithoutEnd(t *testing.T) {
	m := newManagers(t)
	k := kind(t, "configmaps", "")
	many, data := map[string]string{}, map[string]any{}
	for i := range 150_000 {
		many[fmt.Sprint("key", i)] = ""
		data[fmt.Sprint("key", i)] = ""
	}
	obj := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "many"}, Data: many}
	begun := time.Now()
	m.Update(k, nil, obj, "tester")
	if len(obj.ManagedFields) != 0 {
		t.Error("150,000 fields are tracked")
	}
	small := obj.DeepCopy()
	small.Data = map[string]string{"a": "b"}
	m.Update(k, obj, small, "tester")
	configuration := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "many", "namespace": "default"}, "data": data}
	if _, err := m.Apply(k, nil, configuration, "tester", false); !apierrors.IsRequestEntityTooLargeError(err) {
		t.Errorf("150,000 fields are applied: %v", err)
	}
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("that took %v", took)
	}
	fine := &corev1.ConfigMap{TypeMeta: obj.TypeMeta, ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "fine"}, Data: map[string]string{"a": "b"}}
	if m.Update(k, nil, fine, "tester"); len(fine.ManagedFields) != 1 {
		t.Errorf("the owners of one field: %v", fine.ManagedFields)
	}
}
