package spec

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// Only containers of burstable pods may swap, in proportion to their requests,
// and only if the node lets them.
func TestSwapOfContainers(t *testing.T) {
	memory := func(size string) v1.ResourceList { return v1.ResourceList{v1.ResourceMemory: resource.MustParse(size)} }
	both := memory("1Gi")
	both[v1.ResourceCPU] = resource.MustParse("1")
	critical := int32(2000000000)
	for name, test := range map[string]struct {
		requests, limits v1.ResourceList
		beside           v1.ResourceList // what another container requests
		priority         *int32
		none             bool
		want             string
	}{
		"burstable":                  {requests: memory("1Gi"), want: "536870912"},
		"burstable with a limit":     {requests: memory("1Gi"), limits: memory("2Gi"), want: "536870912"},
		"all that the machine has":   {requests: memory("4Gi"), want: "2147483648"},
		"more than the machine has":  {requests: memory("100Gi"), want: "0"},
		"guaranteed":                 {requests: both, limits: both, want: "0"},
		"as much as the limit":       {requests: memory("1Gi"), limits: memory("1Gi"), want: "0"},
		"the limit, beside another":  {requests: both, limits: both, beside: memory("2Gi"), want: "0"},
		"less, beside another":       {requests: memory("1Gi"), beside: memory("2Gi"), want: "536870912"},
		"nothing, beside another":    {beside: memory("2Gi"), want: "0"},
		"zero, beside another":       {requests: memory("0"), limits: memory("0"), beside: memory("2Gi"), want: "0"},
		"best effort":                {want: "0"},
		"critical":                   {requests: memory("1Gi"), priority: &critical, want: "0"},
		"burstable where none swaps": {requests: memory("1Gi"), none: true, want: "0"},
	} {
		pod := &v1.Pod{Spec: v1.PodSpec{Priority: test.priority, Containers: []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Requests: test.requests, Limits: test.limits}}}}}
		if test.beside != nil {
			pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: "other", Resources: v1.ResourceRequirements{Requests: test.beside}})
		}
		config := &kubeletconfig.KubeletConfiguration{SingleProcessOOMKill: new(true)}
		if !test.none {
			config.MemorySwap.SwapBehavior = LimitedSwap
		}
		node := &Node{Configuration: config, MemoryCapacity: 4 << 30, SwapCapacity: new(int64(2 << 30))}
		if got := unified(pod, &pod.Spec.Containers[0], node)["memory.swap.max"]; got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
	if got := unified(&v1.Pod{}, &v1.Container{}, &Node{Configuration: &kubeletconfig.KubeletConfiguration{SingleProcessOOMKill: new(true)}}); len(got) > 0 {
		t.Errorf("without swap: %v", got)
	}
}

// A resize that would change how much a container may swap needs a restart of
// the container.
func TestResizeOfSwappingContainers(t *testing.T) {
	pod := func(request, limit string, policy ...v1.ContainerResizePolicy) *v1.Pod {
		list := func(size string) v1.ResourceList { return v1.ResourceList{v1.ResourceMemory: resource.MustParse(size)} }
		return &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{
			Name: "main", ResizePolicy: policy, Resources: v1.ResourceRequirements{Requests: list(request), Limits: list(limit)},
		}}}}
	}
	restart := v1.ContainerResizePolicy{ResourceName: v1.ResourceMemory, RestartPolicy: v1.RestartContainer}
	capacity, none := int64(2<<30), int64(0)
	for name, test := range map[string]struct {
		behavior        string
		capacity        *int64
		desired, before *v1.Pod
		feasible        bool
	}{
		"request":                  {LimitedSwap, &capacity, pod("2Gi", "3Gi"), pod("1Gi", "3Gi"), false},
		"limit":                    {LimitedSwap, &capacity, pod("1Gi", "3Gi"), pod("1Gi", "2Gi"), true},
		"request and restart":      {LimitedSwap, &capacity, pod("2Gi", "3Gi", restart), pod("1Gi", "3Gi"), true},
		"guaranteed":               {LimitedSwap, &capacity, pod("2Gi", "2Gi"), pod("1Gi", "1Gi"), true},
		"request without swapping": {NoSwap, &capacity, pod("2Gi", "3Gi"), pod("1Gi", "3Gi"), true},
		"request without swap":     {LimitedSwap, &none, pod("2Gi", "3Gi"), pod("1Gi", "3Gi"), true},
		"not limited":              {LimitedSwap, nil, pod("2Gi", "3Gi"), pod("1Gi", "3Gi"), true},
	} {
		config := &kubeletconfig.KubeletConfiguration{MemorySwap: kubeletconfig.MemorySwapConfiguration{SwapBehavior: test.behavior}}
		node := &Node{Configuration: config, MemoryCapacity: 4 << 30, SwapCapacity: test.capacity}
		if message := node.ResizeInfeasible(test.desired, test.before); (message == "") != test.feasible {
			t.Errorf("%s: %q", name, message)
		}
	}
}
