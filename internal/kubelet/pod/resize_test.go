package pod

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/kubelet/plan"
	"github.com/coracle-io/coracle/internal/kubelet/spec"
)

// A container restarts for other controls only if a resource changes whose policy says so,
// and otherwise changes in place. Resources with the same controls are no change of them.
func TestRestartsByResizePolicy(t *testing.T) {
	w := &worker{config: &Config{Node: spec.Node{MemoryCapacity: 16 << 30, Configuration: &kubeletconfig.KubeletConfiguration{CPUCFSQuota: new(true)}}}}
	of := func(requested, limit string) (r v1.ResourceRequirements) { // as "cpu memory"
		list := func(text string) v1.ResourceList {
			l := v1.ResourceList{}
			for i, q := range strings.Fields(text) {
				l[[]v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory}[i]] = resource.MustParse(q)
			}
			return l
		}
		return v1.ResourceRequirements{Requests: list(requested), Limits: list(limit)}
	}
	for _, test := range []struct {
		what               string
		restarts           string // resources
		before, after      v1.ResourceRequirements
		restarted, changed bool
	}{
		{"both, in place", "", of("", "100m 100Mi"), of("", "200m 200Mi"), false, true},
		{"both, CPU restarts", "cpu", of("", "100m 100Mi"), of("", "200m 200Mi"), true, true},
		{"both, memory restarts", "memory", of("", "100m 100Mi"), of("", "200m 200Mi"), true, true},
		{"memory, CPU restarts", "cpu", of("", "100m 100Mi"), of("", "100m 200Mi"), false, true},
		{"CPU, memory restarts", "memory", of("", "100m 100Mi"), of("", "200m 100Mi"), false, true},
		{"the request of CPU", "cpu", of("100m", ""), of("200m", ""), true, true},
		{"the request of memory, which has no control", "memory", of("100m 100Mi", ""), of("100m 200Mi", ""), false, false},
		{"less than the least CPU", "cpu memory", of("2m", "10m"), of("1m", "1m"), false, false},
		{"nothing", "cpu memory", of("", "100m 100Mi"), of("", "100m 100Mi"), false, false},
	} {
		c := v1.Container{Name: "main", Resources: test.before}
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			policy := v1.ContainerResizePolicy{ResourceName: name, RestartPolicy: v1.NotRequired}
			if strings.Contains(test.restarts, string(name)) {
				policy.RestartPolicy = v1.RestartContainer
			}
			c.ResizePolicy = append(c.ResizePolicy, policy)
		}
		pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{c}}}
		running := &cri.Container{ID: "1", Name: "main", State: cri.Running, Resources: w.wanted(pod, &c)}
		declared := &pod.Spec.Containers[0]
		declared.Resources = test.after
		if got := w.resizeRestarts(pod, declared, running); got != test.restarted {
			t.Errorf("%s: restarts %v", test.what, got)
		}
		all, ok := controls(pod, &cri.Pod{Containers: []*cri.Container{running}}, &plan.Plan{}, func(c *v1.Container) *runtimeapi.LinuxContainerResources { return w.wanted(pod, c) })
		if !ok || (len(all) == 1) != test.changed {
			t.Errorf("%s: the changes are %v, %v", test.what, all, ok)
		}
	}
}

// A container keeps its CPU time in the period that an earlier kubelet has set, also if it
// is to restart for other CPU, until its CPU changes.
func TestPeriodOfQuotas(t *testing.T) {
	w := &worker{config: &Config{Node: spec.Node{MemoryCapacity: 16 << 30, Configuration: &kubeletconfig.KubeletConfiguration{
		CPUCFSQuota: new(true), CPUCFSQuotaPeriod: &metav1.Duration{Duration: 10 * time.Millisecond}}}}}
	list := v1.ResourceList{v1.ResourceCPU: resource.MustParse("500m")}
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{
		Name: "main", Resources: v1.ResourceRequirements{Requests: list, Limits: list},
		ResizePolicy: []v1.ContainerResizePolicy{{ResourceName: v1.ResourceCPU, RestartPolicy: v1.RestartContainer}},
	}}}}
	for _, test := range []struct {
		quota, period int64
		changes       int
	}{{50_000, 100_000, 0}, {50_000, 0, 0}, {5000, 10_000, 0}, {1500, 3001, 0}, {60_000, 100_000, 1}, {50_000, 10_000, 1}, {0, 100_000, 1}} {
		running := &cri.Container{ID: "1", Name: "main", State: cri.Running, Resources: &runtimeapi.LinuxContainerResources{CpuShares: 512, CpuQuota: test.quota, CpuPeriod: test.period}}
		all, ok := controls(pod, &cri.Pod{Containers: []*cri.Container{running}}, &plan.Plan{}, func(c *v1.Container) *runtimeapi.LinuxContainerResources { return w.wanted(pod, c) })
		if restarts := w.resizeRestarts(pod, &pod.Spec.Containers[0], running); restarts != (test.changes > 0) || !ok || len(all) != test.changes {
			t.Errorf("%+v: restarts %t, the changes are %v, %t", test, restarts, all, ok)
			continue
		}
		for _, one := range all {
			if quota, period := one.want.GetCpuQuota(), one.want.GetCpuPeriod(); quota != 5000 || period != 10_000 {
				t.Errorf("%+v: changes to %d in %d", test, quota, period)
			}
		}
	}
}

// A running container gets the memory that the kernel keeps for it in place, also if it is
// to restart for another limit. A runtime may not report it.
func TestMemoryThatIsKept(t *testing.T) {
	w := &worker{config: &Config{Node: spec.Node{MemoryCapacity: 16 << 30, Configuration: &kubeletconfig.KubeletConfiguration{
		CPUCFSQuota: new(true), MemoryReservationPolicy: kubeletconfig.TieredReservationMemoryReservationPolicy}}}}
	memory := func(size string) v1.ResourceList { return v1.ResourceList{v1.ResourceMemory: resource.MustParse(size)} }
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{
		Name: "main", Resources: v1.ResourceRequirements{Requests: memory("1000"), Limits: memory("4000")},
		ResizePolicy: []v1.ContainerResizePolicy{{ResourceName: v1.ResourceMemory, RestartPolicy: v1.RestartContainer}},
	}}}}
	for _, test := range []struct {
		reported map[string]string
		changes  int
	}{
		{nil, 0}, {map[string]string{"memory.oom.group": "1"}, 0},
		{map[string]string{"memory.low": "1000", "memory.oom.group": "1"}, 0}, {map[string]string{"memory.low": "500"}, 1},
	} {
		running := &cri.Container{ID: "1", Name: "main", State: cri.Running, Resources: &runtimeapi.LinuxContainerResources{CpuShares: 2, MemoryLimitInBytes: 4000, Unified: test.reported}}
		all, ok := controls(pod, &cri.Pod{Containers: []*cri.Container{running}}, &plan.Plan{}, func(c *v1.Container) *runtimeapi.LinuxContainerResources { return w.wanted(pod, c) })
		if w.resizeRestarts(pod, &pod.Spec.Containers[0], running) || !ok || len(all) != test.changes || test.changes > 0 && all[0].want.GetUnified()["memory.low"] != "1000" {
			t.Errorf("%v: the changes are %v, %t", test.reported, all, ok)
		}
	}
}

// A container with CPUs of its own that an earlier kubelet gave a quota of CPU time
// loses it in place, also if it is to restart for other CPUs. It does so once.
func TestQuotaOfOwnCPUsIsLifted(t *testing.T) {
	w := &worker{config: &Config{Node: spec.Node{MemoryCapacity: 16 << 30, Configuration: &kubeletconfig.KubeletConfiguration{CPUCFSQuota: new(true), CPUManagerPolicy: "static"}}}}
	list := v1.ResourceList{v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("1Gi")}
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{
		Name: "main", Resources: v1.ResourceRequirements{Requests: list, Limits: list},
		ResizePolicy: []v1.ContainerResizePolicy{{ResourceName: v1.ResourceCPU, RestartPolicy: v1.RestartContainer}},
	}}}}
	c := &pod.Spec.Containers[0]
	for quota, changes := range map[int64]int{200_000: 1, 0: 0, -1: 0} {
		running := &cri.Container{ID: "1", Name: "main", State: cri.Running, Resources: &runtimeapi.LinuxContainerResources{
			CpuShares: 2048, CpuQuota: quota, CpuPeriod: 100_000, MemoryLimitInBytes: 1 << 30}}
		all, ok := controls(pod, &cri.Pod{Containers: []*cri.Container{running}}, &plan.Plan{}, func(c *v1.Container) *runtimeapi.LinuxContainerResources { return w.wanted(pod, c) })
		if w.resizeRestarts(pod, c, running) || !ok || len(all) != changes || changes > 0 && all[0].want.GetCpuQuota() != -1 {
			t.Errorf("with a quota of %d the changes are %v, %t", quota, all, ok)
		}
	}
}
