package registry_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/apiserver/registry"
	"github.com/coracle-io/coracle/internal/apiserver/registry/registrytest"
	"github.com/coracle-io/coracle/internal/resource"
)

// A Writer follows the rules of kinds and retries after conflicts, without
// admission.
func TestWriter(t *testing.T) {
	admission := &steps{}
	g := registrytest.Start(t, func(c *registry.Config) { c.Admission = admission })
	kind := g.Cache.At("configmaps")
	w := registry.Writer{Clock: clock.RealClock{}}
	given := configMap("x", map[string]string{"n": ""})
	given.Namespace = "default"
	if err := w.Create(t.Context(), kind, given); err != nil || given.UID != "" {
		t.Fatalf("%+v, %v", given.ObjectMeta, err)
	}
	e, err := kind.Read(t.Context(), "default", "x")
	if err != nil || e.Object.GetUID() == "" || e.Object.GetCreationTimestamp() == (metav1.Time{}) {
		t.Fatalf("%+v, %v", e, err)
	}
	if err := w.Create(t.Context(), kind, e.Object); !apierrors.IsAlreadyExists(err) {
		t.Errorf("made again: %v", err)
	}
	append1 := func(current resource.Object) (resource.Object, error) {
		next := current.(*corev1.ConfigMap).DeepCopy()
		next.Data["n"] += "1"
		return next, nil
	}
	met := false
	err = w.Update(t.Context(), kind, "default", "x", func(current resource.Object) (resource.Object, error) {
		if !met {
			met = true
			if err := w.UpdateUnchecked(t.Context(), kind, "default", "x", append1); err != nil {
				t.Fatal(err)
			}
		}
		return append1(current)
	})
	if n := get(t, g)["n"]; err != nil || n != "11" {
		t.Errorf("%q, %v", n, err)
	}
	err = w.Update(t.Context(), kind, "default", "x", func(current resource.Object) (resource.Object, error) {
		next := current.DeepCopyObject().(*corev1.ConfigMap)
		next.Data["not a key"] = ""
		return next, nil
	})
	if !apierrors.IsInvalid(err) {
		t.Errorf("a key that is none: %v", err)
	}
	if err := w.Update(t.Context(), kind, "default", "x", func(resource.Object) (resource.Object, error) { return nil, nil }); err != nil {
		t.Errorf("left as it is: %v", err)
	}
	other := "0"
	if err := w.Delete(t.Context(), kind, "default", "x", &metav1.Preconditions{ResourceVersion: &other}); !apierrors.IsConflict(err) {
		t.Errorf("deleted at another revision: %v", err)
	}
	if err := w.Delete(t.Context(), kind, "default", "x", nil); err != nil {
		t.Error(err)
	}
	if err := w.UpdateUnchecked(t.Context(), kind, "default", "x", append1); !apierrors.IsNotFound(err) {
		t.Errorf("of none: %v", err)
	}
	if len(admission.taken) > 0 {
		t.Errorf("admission saw %q", admission.taken)
	}
}
