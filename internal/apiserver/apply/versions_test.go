package apply

import (
	"slices"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/apiserver/registry"
	resources "github.com/coracle-io/coracle/internal/resource"
)

// An apply that changes nothing of a built-in kind works in each of its versions, by the
// same manager or another, and the manager owns its fields in that version.
func TestApplyInEachVersion(t *testing.T) {
	m := newManagers(t)
	hub := kind(t, "horizontalpodautoscalers", "")
	var live resources.Object
	for _, step := range []struct{ version, manager string }{{"v1", "one"}, {"v2", "one"}, {"v2", "two"}, {"v1", "one"}, {"v1", "two"}, {"v1", "two"}, {"v2", "one"}} {
		i := slices.IndexFunc(hub.Resource.Versions, func(v resources.Version) bool { return v.Version == step.version })
		if i < 0 {
			t.Fatalf("there is no %s", step.version)
		}
		in := registry.ManagedKind{Resource: hub.Resource, Version: &hub.Resource.Versions[i]}
		made, err := m.Apply(in, live, map[string]any{
			"apiVersion": "autoscaling/" + step.version, "kind": "HorizontalPodAutoscaler", "metadata": map[string]any{"name": "web", "namespace": "default"},
			"spec": map[string]any{"maxReplicas": int64(3), "scaleTargetRef": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}},
		}, step.manager, false)
		if err != nil {
			t.Fatalf("%s by %s: %v", step.version, step.manager, err)
		}
		managed := made.GetManagedFields()
		owner := slices.IndexFunc(managed, func(e metav1.ManagedFieldsEntry) bool { return e.Manager == step.manager })
		if owner < 0 || managed[owner].APIVersion != "autoscaling/"+step.version {
			t.Errorf("%s by %s: managers %+v", step.version, step.manager, managed)
		}
		if stored, ok := made.(*autoscalingv2.HorizontalPodAutoscaler); !ok || stored.Spec.MaxReplicas != 3 || stored.Spec.ScaleTargetRef.Name != "web" {
			t.Errorf("%s by %s: %T %+v", step.version, step.manager, made, made)
		}
		made.SetUID("uid")
		live = made
	}
}
