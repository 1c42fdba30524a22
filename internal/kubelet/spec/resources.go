package spec

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/amount"
	podutil "github.com/coracle-io/coracle/internal/pod"
)

// The kernel's bounds and units of the CPU controls.
const (
	minShares     = 2
	maxShares     = 262144
	sharesPerCPU  = 1024
	QuotaPeriod   = 100000 // microseconds
	minQuota      = 1000   // microseconds
	maxQuota      = 1<<44 - 1
	systemReserve = 3 // above the adjustment of guaranteed pods
)

// The OOM score adjustments of the service classes.
const (
	guaranteedOOMScore = -997
	bestEffortOOMScore = 1000
)

// CPUShares turns thousandths of a CPU into cgroup v1 shares.
func CPUShares(milli int64) int64 {
	if milli == 0 {
		return minShares
	}
	return min(max(amount.Times(milli, sharesPerCPU)/1000, minShares), maxShares)
}

// CPUQuota turns thousandths of a CPU into microseconds of each period, 0 for none.
func CPUQuota(milli int64) int64 {
	if milli == 0 {
		return 0
	}
	return min(max(amount.Times(milli, QuotaPeriod)/1000, minQuota), maxQuota)
}

// Resources are the runtime's controls for one container of the pod.
// memoryCapacity is the node's, in bytes.
func Resources(pod *v1.Pod, c *v1.Container, memoryCapacity int64, cfsQuota bool) *runtimeapi.LinuxContainerResources {
	request, requested := c.Resources.Requests[v1.ResourceCPU]
	limit := c.Resources.Limits[v1.ResourceCPU]
	if !requested && !limit.IsZero() {
		request = limit
	}
	r := &runtimeapi.LinuxContainerResources{
		CpuShares:          CPUShares(amount.Milli(request)),
		MemoryLimitInBytes: quantity(c.Resources.Limits, v1.ResourceMemory),
		OomScoreAdj:        OOMScore(pod, c, memoryCapacity),
	}
	if cfsQuota {
		r.CpuPeriod = QuotaPeriod
		r.CpuQuota = CPUQuota(amount.Milli(limit))
		if r.CpuQuota == 0 {
			r.CpuPeriod = 0
		}
	}
	return r
}

func quantity(list v1.ResourceList, name v1.ResourceName) int64 {
	return amount.Value(list[name])
}

// OOMScore is the adjustment by which the kernel chooses whom to kill when
// memory runs out: containers that use more than they asked for go first.
func OOMScore(pod *v1.Pod, c *v1.Container, memoryCapacity int64) int64 {
	if podutil.IsCritical(pod) {
		return guaranteedOOMScore
	}
	switch podutil.QOSClass(pod) {
	case v1.PodQOSGuaranteed:
		return guaranteedOOMScore
	case v1.PodQOSBestEffort:
		return bestEffortOOMScore
	}
	score := func(request int64) int64 {
		if memoryCapacity <= 0 {
			return 999
		}
		return min(max(1000-amount.Times(request, 1000)/memoryCapacity, systemReserve), 999)
	}
	adjustment := score(quantity(c.Resources.Requests, v1.ResourceMemory))
	if podutil.IsSidecar(c) {
		for i := range pod.Spec.Containers {
			adjustment = min(adjustment, score(quantity(pod.Spec.Containers[i].Resources.Requests, v1.ResourceMemory)))
		}
	}
	return adjustment
}

// PodResources are the controls of the pod's own cgroup. A limit is set only
// when every container has one.
func PodResources(pod *v1.Pod, cfsQuota bool) *runtimeapi.LinuxContainerResources {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	limits := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})
	cpuLimited, memoryLimited := true, true
	for c := range podutil.Containers(&pod.Spec) {
		cpuLimited = cpuLimited && !c.Resources.Limits.Cpu().IsZero()
		memoryLimited = memoryLimited && !c.Resources.Limits.Memory().IsZero()
	}
	if resourcehelper.IsPodLevelLimitsSet(pod) {
		cpuLimited = cpuLimited || !pod.Spec.Resources.Limits.Cpu().IsZero()
		memoryLimited = memoryLimited || !pod.Spec.Resources.Limits.Memory().IsZero()
	}
	r := &runtimeapi.LinuxContainerResources{CpuShares: CPUShares(amount.Milli(*requests.Cpu()))}
	if podutil.QOSClass(pod) == v1.PodQOSBestEffort {
		r.CpuShares = minShares
		return r
	}
	if cpuLimited && cfsQuota {
		r.CpuPeriod, r.CpuQuota = QuotaPeriod, CPUQuota(amount.Milli(*limits.Cpu()))
	}
	if memoryLimited {
		r.MemoryLimitInBytes = amount.Value(*limits.Memory())
	}
	return r
}

// ToRequirements reads a running container's controls back as the status
// reports them. Requests that the controls cannot tell come from the specification.
func ToRequirements(c *v1.Container, running *runtimeapi.LinuxContainerResources) *v1.ResourceRequirements {
	out := c.Resources.DeepCopy()
	if running == nil {
		return out
	}
	if q := running.GetCpuQuota(); q > 0 && running.GetCpuPeriod() > 0 {
		milli := (q*1000 + running.GetCpuPeriod() - 1) / running.GetCpuPeriod()
		if want := c.Resources.Limits[v1.ResourceCPU]; CPUQuota(amount.Milli(want)) != q {
			set(&out.Limits, v1.ResourceCPU, *resource.NewMilliQuantity(milli, resource.DecimalSI))
		}
	}
	if m := running.GetMemoryLimitInBytes(); m > 0 {
		if want := c.Resources.Limits[v1.ResourceMemory]; amount.Value(want) != m {
			set(&out.Limits, v1.ResourceMemory, *resource.NewQuantity(m, resource.BinarySI))
		}
	}
	if s := running.GetCpuShares(); s > 0 {
		want, ok := c.Resources.Requests[v1.ResourceCPU]
		if ok && CPUShares(amount.Milli(want)) != s {
			set(&out.Requests, v1.ResourceCPU, *resource.NewMilliQuantity((s*1000+sharesPerCPU-1)/sharesPerCPU, resource.DecimalSI))
		}
	}
	return out
}

func set(list *v1.ResourceList, name v1.ResourceName, q resource.Quantity) {
	if *list == nil {
		*list = v1.ResourceList{}
	}
	(*list)[name] = q
}
