package cgroup

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// podsOf returns pods with one container each, which asks for CPU and memory and has
// limits of them, as in "1 128Mi" and "2 256Mi".
func podsOf(t *testing.T, resources ...[2]string) []*v1.Pod {
	t.Helper()
	list := func(text string) v1.ResourceList {
		if text == "" {
			return nil
		}
		var cpu, memory string
		if _, err := fmt.Sscan(text, &cpu, &memory); err != nil {
			t.Fatal(err)
		}
		return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
	}
	var pods []*v1.Pod
	for i, r := range resources {
		pod := &v1.Pod{}
		pod.UID = types.UID(fmt.Sprint("uid-", i))
		pod.Spec.Containers = []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Requests: list(r[0]), Limits: list(r[1])}}}
		pods = append(pods, pod)
	}
	return pods
}

// Burstable pods share the sum of their requests of CPU, and those of other classes do
// not count. Best-effort pods have the least shares.
func TestSharesOfServiceClasses(t *testing.T) {
	guaranteed, burstable, bestEffort := [2]string{"1 128Mi", "1 128Mi"}, [2]string{"1 128Mi", "2 256Mi"}, [2]string{}
	for what, test := range map[string]struct {
		pods []*v1.Pod
		want int64 // of burstable pods
	}{
		"none":                      {nil, 2},
		"guaranteed":                {podsOf(t, guaranteed), 2},
		"burstable":                 {podsOf(t, burstable), 1024},
		"best effort":               {podsOf(t, bestEffort), 2},
		"guaranteed and burstable":  {podsOf(t, guaranteed, burstable), 1024},
		"best effort and burstable": {podsOf(t, bestEffort, burstable), 1024},
		"two that are burstable":    {podsOf(t, burstable, burstable, guaranteed), 2048},
	} {
		groups := &Memory{}
		p := &Pods{Groups: groups, Configuration: &kubeletconfig.KubeletConfiguration{CgroupsPerQOS: new(true)}}
		if err := p.ApplyClasses(test.pods); err != nil {
			t.Fatal(err)
		}
		shares := func(class v1.PodQOSClass) int64 { return groups.Get(Parent("", class)).GetCpuShares() }
		if all, burst, best := shares(v1.PodQOSGuaranteed), shares(v1.PodQOSBurstable), shares(v1.PodQOSBestEffort); all != 0 || burst != test.want || best != 2 {
			t.Errorf("%s: all have %d shares, burstable pods %d, best-effort pods %d, want 0, %d and 2", what, all, burst, best, test.want)
		}
	}
}
