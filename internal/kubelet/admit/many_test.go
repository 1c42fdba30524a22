package admit

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/coracle-io/coracle/internal/costtest"
	"github.com/coracle-io/coracle/internal/kubelet/plan"
)

// The sync loop admits pods, so that a pod with very many host ports must not be
// compared one by one with another one.
func TestManyHostPorts(t *testing.T) {
	const many = 40_000
	with := func(ip func(i int) string, first int32) *v1.Pod {
		p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{}}}}
		for i := range many {
			p.Spec.Containers[0].Ports = append(p.Spec.Containers[0].Ports, v1.ContainerPort{ContainerPort: 1, HostPort: first + int32(i), HostIP: ip(i)})
		}
		return p
	}
	at := func(address string) func(int) string { return func(int) string { return address } }
	for _, test := range []struct {
		name       string
		pod, other *v1.Pod
		rejected   bool
	}{
		{"of two addresses", with(at("192.0.2.1"), 1), with(at("192.0.2.2"), 1), false},
		{"of all addresses", with(at("192.0.2.1"), 1), with(at(""), many), true},
		{"of one address", with(at(""), 1), with(at("192.0.2.1"), many), true},
		{"of none in common", with(at(""), 1), with(at("192.0.2.1"), many+1), false},
	} {
		var r *Rejection
		cost := costtest.Of(t, func() { r = ports(test.pod, []*v1.Pod{test.other}) })
		if rejected := r != nil; rejected != test.rejected {
			t.Errorf("%s: %v", test.name, r)
		}
		if cost.Processor > 2*time.Second {
			t.Errorf("%s: %v of processor time", test.name, cost.Processor)
		}
	}
}

func TestManyContainers(t *testing.T) {
	policy := Policy{
		Pressure: func() []v1.NodeConditionType { return nil }, Node: func() *v1.Node { return nil },
		Allocatable: func() v1.ResourceList { return nil },
	}
	pod := &v1.Pod{Spec: v1.PodSpec{InitContainers: make([]v1.Container, 12), Containers: make([]v1.Container, plan.MaxContainers-12)}}
	if r := policy.Admit(pod, nil); r != nil {
		t.Errorf("a pod with as many containers as a node runs: %v", r)
	}
	pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{})
	want := fmt.Sprintf("Pod has %d containers, and a node runs at most %d of a pod", plan.MaxContainers+1, plan.MaxContainers)
	if r := policy.Admit(pod, nil); r == nil || r.Reason != "TooManyContainers" || r.Message != want {
		t.Errorf("a pod with one more: %v", r)
	}
}

func TestManyResources(t *testing.T) {
	policy := Policy{
		Pressure: func() []v1.NodeConditionType { return nil }, Node: func() *v1.Node { return nil },
		Allocatable: func() v1.ResourceList { return nil },
	}
	pod := &v1.Pod{Spec: v1.PodSpec{InitContainers: make([]v1.Container, 1), Containers: make([]v1.Container, 1)}}
	list := func(n int) v1.ResourceList {
		out := v1.ResourceList{}
		for i := range n {
			out[v1.ResourceName(fmt.Sprintf("example.com/r%d", i))] = resource.MustParse("1")
		}
		return out
	}
	pod.Spec.InitContainers[0].Resources.Limits = list(maxResources / 2)
	pod.Spec.Containers[0].Resources.Requests = list(maxResources / 2)
	if r := policy.Admit(pod, nil); r != nil {
		t.Errorf("a pod with as many resources as a node accepts: %v", r)
	}
	pod.Spec.Containers[0].Resources.Limits = list(1)
	if r := policy.Admit(pod, nil); r == nil || r.Reason != "TooManyResources" {
		t.Errorf("a pod with one more: %v", r)
	}
}
