package resource_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/resourcetest"
)

// claims returns a resource with a spec and a status, and only one rule.
func claims() *resource.Resource {
	return resource.Define(resource.Definition[corev1.PersistentVolumeClaim, *corev1.PersistentVolumeClaim]{
		GroupVersion: corev1.SchemeGroupVersion,
		Names:        resource.Names{Kind: "PersistentVolumeClaim", Plural: "persistentvolumeclaims"},
		Spec:         func(c *corev1.PersistentVolumeClaim) any { return &c.Spec },
		Status:       resource.Status[*corev1.PersistentVolumeClaim]{Copy: func(c, from *corev1.PersistentVolumeClaim) { c.Status = from.Status }},
		Strategy: resource.Strategy[*corev1.PersistentVolumeClaim]{
			Validate: func(_ *resource.RequestContext, c *corev1.PersistentVolumeClaim) field.ErrorList {
				if c.Spec.VolumeName == "bad" {
					return field.ErrorList{field.Forbidden(field.NewPath("spec", "volumeName"), "bad")}
				}
				return nil
			},
		},
	})
}

func claim(change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Name: "c", Namespace: "ns", UID: "u", ResourceVersion: "1", Generation: 3,
		CreationTimestamp: metav1.NewTime(time.Unix(1, 0)),
	}}
	if change != nil {
		change(c)
	}
	return c
}

func TestBeforeCreate(t *testing.T) {
	c := claim(func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimBound })
	if errs := resourcetest.BeforeCreate(claims(), &resource.RequestContext{}, c); len(errs) > 0 {
		t.Fatal(errs)
	}
	if c.Generation != 1 || c.Status.Phase != "" {
		t.Errorf("generation %d, phase %q: a new object starts at generation 1 without a status", c.Generation, c.Status.Phase)
	}
}

func TestBeforeUpdate(t *testing.T) {
	for name, test := range map[string]struct {
		change     func(*corev1.PersistentVolumeClaim)
		generation int64
		errors     int
	}{
		"nothing":            {func(*corev1.PersistentVolumeClaim) {}, 3, 0},
		"labels":             {func(c *corev1.PersistentVolumeClaim) { c.Labels = map[string]string{"a": "b"} }, 3, 0},
		"spec":               {func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "v" }, 4, 0},
		"status is kept":     {func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimLost }, 3, 0},
		"own generation":     {func(c *corev1.PersistentVolumeClaim) { c.Generation = 99 }, 3, 0},
		"forgotten uid":      {func(c *corev1.PersistentVolumeClaim) { c.UID = "" }, 3, 0},
		"other uid":          {func(c *corev1.PersistentVolumeClaim) { c.UID = "x" }, 3, 2},
		"undated":            {func(c *corev1.PersistentVolumeClaim) { c.CreationTimestamp = metav1.Time{} }, 3, 0},
		"bad spec":           {func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "bad" }, 4, 1},
		"bad label":          {func(c *corev1.PersistentVolumeClaim) { c.Labels = map[string]string{"a": "b c"} }, 3, 4},
		"finalizer's domain": {func(c *corev1.PersistentVolumeClaim) { c.Finalizers = []string{"mine"} }, 3, 2},
	} {
		t.Run(name, func(t *testing.T) {
			old := claim(func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimBound })
			next := old.DeepCopy()
			test.change(next)
			errs := resourcetest.BeforeUpdate(claims(), &resource.RequestContext{}, next, old)
			if len(errs) != test.errors {
				t.Errorf("%d errors, want %d: %v", len(errs), test.errors, errs)
			}
			if next.Generation != test.generation {
				t.Errorf("generation %d, want %d", next.Generation, test.generation)
			}
			if next.Status.Phase != corev1.ClaimBound {
				t.Errorf("an update of the object changed the status to %q", next.Status.Phase)
			}
		})
	}
}

func TestStatusUpdate(t *testing.T) {
	r := claims()
	old := claim(nil)
	next := claim(func(c *corev1.PersistentVolumeClaim) {
		c.Spec.VolumeName = "bad"
		c.Labels = map[string]string{"a": "b"}
		c.Status.Phase = corev1.ClaimBound
	})
	if errs := resourcetest.BeforeSubresourceUpdate(r, r.Subresource("status"), &resource.RequestContext{}, next, old); len(errs) > 0 {
		t.Fatal(errs)
	}
	want := claim(func(c *corev1.PersistentVolumeClaim) {
		c.Labels = map[string]string{"a": "b"}
		c.Status.Phase = corev1.ClaimBound
	})
	if diff := cmp.Diff(want, next); diff != "" {
		t.Error(diff)
	}
}

func TestDefaultTable(t *testing.T) {
	want := []any{"c", "1970-01-01T00:00:01Z"}
	if diff := cmp.Diff(want, claims().Table.Row(claim(nil), time.Now())); diff != "" {
		t.Error(diff)
	}
}

func TestDeprecated(t *testing.T) {
	r := resource.Define(resource.Definition[corev1.Endpoints, *corev1.Endpoints]{ //nolint:staticcheck // the deprecation is what is tested
		GroupVersion: corev1.SchemeGroupVersion, Names: resource.Names{Kind: "Endpoints", Plural: "endpoints"},
	})
	const want = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"
	if got := r.Hub().Deprecated; got != want {
		t.Errorf("got %q", got)
	}
}
