package core_test

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core"
)

// A deletion that says nothing of dependents leaves the pods of a ReplicationController.
func TestReplicationControllersOrphanByDefault(t *testing.T) {
	background, orphan := metav1.DeletePropagationBackground, metav1.DeletePropagationOrphan
	for name, test := range map[string]struct {
		options metav1.DeleteOptions
		want    []string
	}{
		"nothing":    {metav1.DeleteOptions{}, []string{metav1.FinalizerOrphanDependents}},
		"orphan":     {metav1.DeleteOptions{PropagationPolicy: &orphan}, []string{metav1.FinalizerOrphanDependents}},
		"background": {metav1.DeleteOptions{PropagationPolicy: &background}, nil},
	} {
		set := &corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "web"}}
		decision := resource.BeforeDelete(core.ReplicationControllers(), set, &test.options, time.Unix(1_800_000_000, 0))
		var got []string
		if decision.Object != nil {
			got = decision.Object.GetFinalizers()
		}
		if !slices.Equal(got, test.want) || (decision.Action == resource.DeleteNow) != (test.want == nil) {
			t.Errorf("%s: finalizers %q, action %v; want %q", name, got, decision.Action, test.want)
		}
	}
}
