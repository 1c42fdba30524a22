package spec

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// memoryOf returns the controls of memory in MiB, without the beginning of their names.
func memoryOf(t *testing.T, controls map[string]string) string {
	t.Helper()
	var words []string
	for _, name := range slices.Sorted(maps.Keys(controls)) {
		bytes, err := strconv.ParseInt(controls[name], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		words = append(words, fmt.Sprint(strings.TrimPrefix(name, "memory."), " ", bytes>>20))
	}
	return strings.Join(words, ", ")
}

// The kernel keeps containers and pods the memory that they request, from guaranteed ones
// in any case. It slows a container down half way to its limit, or to the 1 GiB that the
// node has for pods, and a pod if it has a limit of its own.
func TestMemoryQoS(t *testing.T) {
	type list = map[string]string
	memory := func(request, limit string) v1.ResourceRequirements {
		of := func(size string) list {
			if size == "" {
				return nil
			}
			return list{"memory": size}
		}
		return resources(of(request), of(limit))
	}
	guaranteed := resources(list{"cpu": "1", "memory": "256Mi"}, list{"cpu": "1", "memory": "256Mi"})
	whole := memory("128Mi", "256Mi")
	cpu := resources(nil, list{"cpu": "2"})
	none := v1.ResourceRequirements{}
	node := &Node{MemoryCapacity: 2 << 30, MemoryForPods: 1 << 30, Configuration: &kubeletconfig.KubeletConfiguration{
		CPUCFSQuota: new(true), SingleProcessOOMKill: new(false),
		MemoryReservationPolicy: kubeletconfig.TieredReservationMemoryReservationPolicy, MemoryThrottlingFactor: new(0.5),
	}}
	for what, test := range map[string]struct {
		pod               *v1.ResourceRequirements // as a whole
		container         v1.ResourceRequirements
		overhead          string
		want, wantOfWhole string
	}{
		"burstable":                 {nil, memory("128Mi", "256Mi"), "", "high 192, low 128", "low 128"},
		"without a limit":           {nil, memory("128Mi", ""), "", "high 576, low 128", "low 128"},
		"best effort":               {nil, none, "", "high 512, low 0", "low 0"},
		"guaranteed":                {nil, guaranteed, "", "min 256", "min 256"},
		"as much as the limit":      {nil, memory("256Mi", "256Mi"), "", "low 256", "low 256"},
		"a limit alone":             {nil, memory("", "256Mi"), "", "high 128, low 0", "low 0"},
		"more than the node has":    {nil, memory("3Gi", ""), "", "low 3072", "low 3072"},
		"the pod's limit":           {&whole, none, "", "low 0", "high 192, low 128"},
		"the pod's limit and less":  {&whole, memory("64Mi", "128Mi"), "", "high 96, low 64", "high 192, low 128"},
		"the pod's limit of CPU":    {&cpu, memory("128Mi", ""), "", "high 576, low 128", "low 128"},
		"a guaranteed pod":          {&guaranteed, memory("128Mi", "256Mi"), "", "high 192, min 128", "min 256"},
		"the pod's, with overhead":  {&whole, none, "64Mi", "low 0", "high 256, low 192"},
		"burstable, with overhead":  {nil, memory("128Mi", "256Mi"), "64Mi", "high 192, low 128", "low 192"},
		"guaranteed, with overhead": {nil, guaranteed, "64Mi", "min 256", "min 320"},
	} {
		pod := &v1.Pod{Spec: v1.PodSpec{Resources: test.pod, Containers: []v1.Container{{Name: "main", Resources: test.container}}}}
		if test.overhead != "" {
			pod.Spec.Overhead = resources(list{"memory": test.overhead}, nil).Requests
		}
		c := &pod.Spec.Containers[0]
		if got := memoryOf(t, node.Resources(pod, c).Unified); got != test.want {
			t.Errorf("%s: the container has %s, want %s", what, got, test.want)
		}
		if got := memoryOf(t, PodMemoryControls(node.Configuration, pod)); got != test.wantOfWhole {
			t.Errorf("%s: the pod has %s, want %s", what, got, test.wantOfWhole)
		}
	}
}

// Each of both may be off, and then has no control.
func TestMemoryQoSInParts(t *testing.T) {
	limits := resources(map[string]string{"memory": "128Mi"}, map[string]string{"memory": "256Mi"})
	pod := &v1.Pod{Spec: v1.PodSpec{Resources: &limits, Containers: []v1.Container{{Name: "main", Resources: limits}}}}
	for _, test := range []struct {
		policy kubeletconfig.MemoryReservationPolicy
		factor *float64
		want   string
	}{
		{kubeletconfig.TieredReservationMemoryReservationPolicy, new(0.5), "high 192, low 128"},
		{kubeletconfig.TieredReservationMemoryReservationPolicy, nil, "low 128"},
		{kubeletconfig.NoneMemoryReservationPolicy, new(0.5), "high 192"},
		{kubeletconfig.NoneMemoryReservationPolicy, new(1.0), "high 256"},
		{kubeletconfig.NoneMemoryReservationPolicy, nil, ""},
	} {
		node := machine(8 << 30)
		node.Configuration.SingleProcessOOMKill = new(false)
		node.Configuration.MemoryReservationPolicy, node.Configuration.MemoryThrottlingFactor = test.policy, test.factor
		c := &pod.Spec.Containers[0]
		if got := memoryOf(t, node.Resources(pod, c).Unified); got != test.want {
			t.Errorf("%s: the container has %s, want %s", test.policy, got, test.want)
		}
		if got := memoryOf(t, PodMemoryControls(node.Configuration, pod)); got != test.want {
			t.Errorf("%s: the pod has %s, want %s", test.policy, got, test.want)
		}
		created := unified(pod, c, node)
		if created["memory.oom.group"] != "1" || len(created) != len(node.Resources(pod, c).Unified)+1 {
			t.Errorf("%s: the container is created with %v", test.policy, created)
		}
	}
}
