package admit

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func requesting(uid int, cpu string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint(uid))},
		Spec: v1.PodSpec{Containers: []v1.Container{{
			Name: "main", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}},
		}}},
	}
}

// A sum has the pods as they are now, and forgets those that are gone.
func TestSums(t *testing.T) {
	s := &Sums{}
	var pods []*v1.Pod
	for i := range 10 {
		pods = append(pods, requesting(i, "100m"))
	}
	for _, test := range []struct {
		pods []*v1.Pod
		want string
	}{
		{pods, "1"},
		{append([]*v1.Pod{requesting(0, "600m")}, pods[1:]...), "1500m"},
		{pods[5:], "500m"},
		{pods[:1], "100m"},
		{nil, "0"},
		{pods, "1"},
	} {
		got := s.Requests(test.pods, v1.ResourceCPU)
		if want := resource.MustParse(test.want); got.Cpu().Cmp(want) != 0 {
			t.Errorf("%d pods: %s, want %s", len(test.pods), got.Cpu(), test.want)
		}
		if len(s.known) > 2*max(1, len(test.pods)) {
			t.Errorf("%d pods are remembered of %d", len(s.known), len(test.pods))
		}
	}
}

// Each start on a node adds up all pods of the node, so that a pod that has not
// changed must cost next to nothing.
func TestSumsOfUnchangedPods(t *testing.T) {
	s := &Sums{}
	var pods []*v1.Pod
	for i := range 250 {
		pods = append(pods, requesting(i, "100m"))
	}
	s.Requests(pods, v1.ResourceCPU)
	if n := testing.AllocsPerRun(10, func() { s.Requests(pods, v1.ResourceCPU) }); n > 10 {
		t.Errorf("%v allocations for 250 unchanged pods", n)
	}
}

// A pod with very many resources that the node does not have makes the start of no other
// pod expensive.
func TestSumsOfManyResources(t *testing.T) {
	s := &Sums{}
	pod := requesting(1, "100m")
	for i := range 10_000 {
		pod.Spec.Containers[0].Resources.Requests[v1.ResourceName(fmt.Sprintf("example.com/r%d", i))] = resource.MustParse("1")
	}
	next, allocatable := requesting(2, "1"), v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}
	admit := func() *Rejection { return resources(next, []*v1.Pod{pod}, allocatable, s.Requests) }
	if r := admit(); r == nil || r.Reason != "OutOfcpu" {
		t.Errorf("the next pod is rejected: %v", r)
	}
	if n := testing.AllocsPerRun(10, func() { admit() }); n > 100 {
		t.Errorf("%v allocations for a pod after one with 10,000 resources", n)
	}
}
