package cgroup

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
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

// The groups of all pods and of burstable ones keep as much memory as the pods below them,
// so that the kernel keeps it for these, and nothing once a kubelet does not want it.
func TestMemoryOfServiceClasses(t *testing.T) {
	guaranteed, burstable, cpu := [2]string{"1 128Mi", "1 128Mi"}, [2]string{"1 100Mi", "2 256Mi"}, [2]string{"1 0"}
	const tiered, none = kubeletconfig.TieredReservationMemoryReservationPolicy, kubeletconfig.NoneMemoryReservationPolicy
	groups := &Memory{}
	kept := func(class v1.PodQOSClass) string {
		controls := groups.Get(Parent("", class)).GetUnified()
		var words []string
		for _, name := range []string{"memory.min", "memory.low"} {
			bytes, err := strconv.ParseInt(controls[name], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			words = append(words, fmt.Sprint(bytes>>20))
		}
		return strings.Join(words, " ")
	}
	for _, step := range []struct {
		what                string
		policy              kubeletconfig.MemoryReservationPolicy
		pods                []*v1.Pod
		all, burst, metrics string // minimum and low bound, in MiB
	}{
		{"two classes", tiered, podsOf(t, guaranteed, burstable, burstable, [2]string{}), "328 200", "0 200", "128 200"},
		{"best effort", tiered, podsOf(t, [2]string{}), "0 0", "0 0", "0 0"},
		{"requests of CPU", tiered, podsOf(t, cpu), "0 0", "0 0", "0 0"},
		{"guaranteed", tiered, podsOf(t, guaranteed), "128 0", "0 0", "128 0"},
		{"none", tiered, nil, "0 0", "0 0", "0 0"},
		{"again", tiered, podsOf(t, burstable), "100 100", "0 100", "0 100"},
		{"another kubelet", none, podsOf(t, guaranteed, burstable), "0 0", "0 0", "0 0"},
	} {
		p := &Pods{Groups: groups, Configuration: &kubeletconfig.KubeletConfiguration{
			CgroupsPerQOS: new(true), CPUCFSQuota: new(true), PodPidsLimit: new(int64(-1)), MemoryReservationPolicy: step.policy,
		}}
		registry := prometheus.NewRegistry()
		p.Register(registry)
		if err := p.ApplyClasses(step.pods); err != nil {
			t.Fatal(err)
		}
		if all, burst, best := kept(v1.PodQOSGuaranteed), kept(v1.PodQOSBurstable), kept(v1.PodQOSBestEffort); all != step.all || burst != step.burst || best != "0 0" {
			t.Errorf("%s: %s of all pods, %s of burstable ones and %s of best-effort ones, want %s and %s", step.what, all, burst, best, step.all, step.burst)
		}
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		shown := map[string]float64{}
		for _, f := range families {
			shown[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue()
		}
		if got := fmt.Sprint(int64(shown["kubelet_memory_qos_node_memory_min_bytes"])>>20, " ", int64(shown["kubelet_memory_qos_node_memory_low_bytes"])>>20); got != step.metrics {
			t.Errorf("%s: the metrics are %s, want %s", step.what, got, step.metrics)
		}
		for _, pod := range step.pods {
			if err := p.Apply(pod); err != nil {
				t.Fatal(err)
			}
			if has := len(groups.Get(p.path(pod)).GetUnified()) > 0; has != (step.policy == tiered) {
				t.Errorf("%s: a pod has %v", step.what, groups.Get(p.path(pod)).GetUnified())
			}
		}
	}
}
