package status

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/coracle-io/coracle/internal/kubelet/cri"
)

// The resources of a pod as a whole are shown when they are allocated, and when
// the pod has them.
func TestPodLevelResources(t *testing.T) {
	of := func(cpu string) *v1.ResourceRequirements {
		list := v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}
		return &v1.ResourceRequirements{Requests: list, Limits: list}
	}
	in := Input{
		Pod:      &v1.Pod{Spec: v1.PodSpec{Resources: of("1"), Containers: []v1.Container{{Name: "main"}}}},
		Observed: &cri.Pod{}, Now: time.Unix(1_800_000_000, 0),
	}
	check := func(when, allocated, has string) {
		t.Helper()
		st := Generate(in)
		if !equality.Semantic.DeepEqual(st.AllocatedResources, of(allocated).Requests) || !equality.Semantic.DeepEqual(st.Resources, of(has)) {
			t.Errorf("%s: allocated %v, has %+v", when, st.AllocatedResources, st.Resources)
		}
		in.Previous = st
	}
	check("at first", "1", "1")
	in.Pod.Spec.Resources = of("2")
	in.Conditions = []v1.PodCondition{{Type: v1.PodResizeInProgress, Status: v1.ConditionTrue}}
	check("during a resize", "2", "1")
	in.Conditions = []v1.PodCondition{{Type: v1.PodResizeInProgress}}
	check("after it", "2", "2")
	in.Pod.Spec.Overhead = of("1").Requests
	check("with overhead", "2", "2")
	in.Pod.Spec.Resources = nil
	if st := Generate(in); st.AllocatedResources != nil || st.Resources != nil {
		t.Errorf("without such resources: %+v", st)
	}
}
