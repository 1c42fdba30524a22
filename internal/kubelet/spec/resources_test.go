package spec

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestPageSizesOutOfRange checks that names of huge pages whose size takes hours
// to compute with are left out.
func TestPageSizesOutOfRange(t *testing.T) {
	found := hugePages(v1.ResourceList{
		"hugepages-1e900000000": resource.MustParse("1"), "hugepages-1e-900000000": resource.MustParse("1"), "hugepages-2Mi": resource.MustParse("4Mi"),
	})
	if len(found) != 1 || found[0].GetPageSize() != "2MB" || found[0].GetLimit() != 4<<20 {
		t.Errorf("%v", found)
	}
}

// The runtime is told of a pod's overhead apart from what its containers get.
func TestSandboxUpdate(t *testing.T) {
	cpu := func(text string) v1.ResourceList { return v1.ResourceList{v1.ResourceCPU: resource.MustParse(text)} }
	pod := &v1.Pod{Spec: v1.PodSpec{
		Containers: []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Requests: cpu("1"), Limits: cpu("2")}}},
		Overhead:   v1.ResourceList{v1.ResourceCPU: resource.MustParse("250m"), v1.ResourceMemory: resource.MustParse("64Mi")},
	}}
	got := SandboxUpdate("s", pod, true)
	if got.GetPodSandboxId() != "s" || got.GetResources().GetCpuShares() != 1024 || got.GetResources().GetCpuQuota() != 200_000 || got.GetResources().GetMemoryLimitInBytes() != 0 {
		t.Errorf("resources %v", got.GetResources())
	}
	if o := got.GetOverhead(); o.GetCpuShares() != 256 || o.GetCpuQuota() != 25_000 || o.GetCpuPeriod() != 100_000 || o.GetMemoryLimitInBytes() != 64<<20 {
		t.Errorf("overhead %v", o)
	}
	if pod.Spec.Overhead == nil {
		t.Error("the pod has no overhead any more")
	}
	pod.Spec.Overhead = nil
	if o := SandboxUpdate("s", pod, false).GetOverhead(); o == nil || o.GetCpuShares() != 0 || o.GetCpuQuota() != 0 {
		t.Errorf("without overhead: %v", o)
	}
}
