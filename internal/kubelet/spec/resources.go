package spec

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/coracle-io/coracle/internal/amount"
	"github.com/coracle-io/coracle/internal/podquery"
)

// The kernel's bounds and units of the CPU controls.
const (
	minShares     = 2
	maxShares     = 262144
	sharesPerCPU  = 1024
	defaultPeriod = 100000 // microseconds
	minQuota      = 1000   // microseconds
	maxQuota      = 1<<44 - 1
	noQuota       = -1 // also for a container that has one: 0 changes nothing
	systemReserve = 3  // above the adjustment of guaranteed pods
)

// The OOM score adjustments of the service classes.
const (
	guaranteedOOMScore = -997
	bestEffortOOMScore = 1000
	mostBurstable      = bestEffortOOMScore - 1
)

// systemNodeCritical is the priority class of the pods that the kernel kills last.
const systemNodeCritical = "system-node-critical"

// CPUShares converts thousandths of a CPU to cgroup v1 shares.
func CPUShares(milli int64) int64 {
	if milli == 0 {
		return minShares
	}
	return min(max(amount.Times(milli, sharesPerCPU)/1000, minShares), maxShares)
}

// cpuQuota converts thousandths of a CPU to microseconds per period, which is in
// microseconds too. It returns 0 for no limit.
func cpuQuota(milli, period int64) int64 {
	if milli == 0 {
		return 0
	}
	return min(max(amount.Times(milli, period)/1000, minQuota), maxQuota)
}

// quotaPeriod returns the period of quotas of CPU time (cpuCFSQuotaPeriod), in
// microseconds.
func quotaPeriod(k *kubeletconfig.KubeletConfiguration) int64 {
	if k.CPUCFSQuotaPeriod == nil {
		return defaultPeriod
	}
	return k.CPUCFSQuotaPeriod.Microseconds()
}

// StaticCPUs is the policy of CPUs with which containers have some for themselves.
const StaticCPUs = "static"

// OwnCPUs returns how many CPUs of its own a container gets: those that it asks for, if
// the pod is guaranteed and the number is an integer. Of a quota of CPU time, the kernel
// gives each CPU a slice, so that such a container would be throttled before it has used
// its CPUs: it has no quota, and neither has its pod.
func OwnCPUs(k *kubeletconfig.KubeletConfiguration, pod *v1.Pod, c *v1.Container) int {
	if k.CPUManagerPolicy != StaticCPUs || podquery.QOSClass(pod) != v1.PodQOSGuaranteed || resourcehelper.IsPodLevelResourcesSet(pod) {
		return 0
	}
	milli := amount.Milli(c.Resources.Requests[v1.ResourceCPU])
	if milli%1000 != 0 {
		return 0
	}
	return int(milli / 1000)
}

// PodQuotaPeriod returns the period in which a pod as a whole may have a quota of CPU
// time, in microseconds, 0 if it may have none.
func PodQuotaPeriod(k *kubeletconfig.KubeletConfiguration, pod *v1.Pod) int64 {
	for c := range podquery.Containers(&pod.Spec) {
		if OwnCPUs(k, pod, c) > 0 {
			return 0
		}
	}
	if !*k.CPUCFSQuota {
		return 0
	}
	return quotaPeriod(k)
}

// Resources returns the runtime's controls of one container.
func (n *Node) Resources(pod *v1.Pod, c *v1.Container) *runtimeapi.LinuxContainerResources {
	request, requested := c.Resources.Requests[v1.ResourceCPU]
	limit, memory := limits(pod, c)
	if !requested && !limit.IsZero() {
		request = limit
	}
	r := &runtimeapi.LinuxContainerResources{
		CpuShares:          CPUShares(amount.Milli(request)),
		MemoryLimitInBytes: amount.Value(memory),
		OomScoreAdj:        oomScore(pod, c, n.MemoryCapacity),
		HugepageLimits:     hugePageLimits(pod, c),
		Unified:            n.memoryControls(pod, c),
	}
	period := quotaPeriod(n.Configuration)
	if quota := cpuQuota(amount.Milli(limit), period); *n.Configuration.CPUCFSQuota && quota > 0 {
		r.CpuPeriod, r.CpuQuota = period, quota
		if OwnCPUs(n.Configuration, pod, c) > 0 {
			r.CpuQuota = noQuota
		}
	}
	return r
}

// limits returns the limits that hold for a container: its own ones, or else those
// of the pod as a whole (KEP-2837). No limit is 0.
func limits(pod *v1.Pod, c *v1.Container) (cpu, memory resource.Quantity) {
	of := func(name v1.ResourceName) resource.Quantity {
		own := c.Resources.Limits[name]
		if own.IsZero() && resourcehelper.IsPodLevelLimitsSet(pod) {
			return pod.Spec.Resources.Limits[name]
		}
		return own
	}
	return of(v1.ResourceCPU), of(v1.ResourceMemory)
}

// hugePageLimits returns the limits of huge pages that hold for a container: its own
// ones and, of the sizes that it does not name, those of the pod as a whole.
func hugePageLimits(pod *v1.Pod, c *v1.Container) []*runtimeapi.HugepageLimit {
	limits := hugePages(c.Resources.Limits)
	if resourcehelper.IsPodLevelLimitsSet(pod) {
		for _, whole := range hugePages(pod.Spec.Resources.Limits) {
			if ofSize(limits, whole.GetPageSize()) == nil {
				limits = append(limits, whole)
			}
		}
	}
	return limits
}

// ofSize returns the limit of huge pages of a size, nil if there is none.
func ofSize(limits []*runtimeapi.HugepageLimit, size string) *runtimeapi.HugepageLimit {
	for _, l := range limits {
		if l.GetPageSize() == size {
			return l
		}
	}
	return nil
}

// hugePages returns the huge pages in a list, sorted by name. It is never nil. A size may
// have several names: hugepages-2Mi and hugepages-2048Ki are added up.
func hugePages(list v1.ResourceList) []*runtimeapi.HugepageLimit {
	found := []*runtimeapi.HugepageLimit{}
	for _, name := range slices.Sorted(maps.Keys(list)) {
		size, limit := hugePageSize(name), uint64(quantity(list, name))
		if size == "" {
			continue
		}
		if l := ofSize(found, size); l != nil {
			l.Limit += min(limit, math.MaxUint64-l.Limit)
		} else {
			found = append(found, &runtimeapi.HugepageLimit{PageSize: size, Limit: limit})
		}
	}
	return found
}

// noOthers adds limits of 0 for the machine's other sizes of huge pages: these pages
// are for containers that have limits of them.
func noOthers(own []*runtimeapi.HugepageLimit, machine []string) []*runtimeapi.HugepageLimit {
	for _, size := range machine {
		if ofSize(own, size) == nil {
			own = append(own, &runtimeapi.HugepageLimit{PageSize: size})
		}
	}
	return own
}

// HugePageSizes returns the sizes of the huge pages that are in a list of resources,
// sorted, as in the kernel's files.
func HugePageSizes(list v1.ResourceList) (sizes []string) {
	for _, name := range slices.Sorted(maps.Keys(list)) {
		if size := hugePageSize(name); size != "" {
			sizes = append(sizes, size)
		}
	}
	return sizes
}

// hugePageSize returns the size of huge pages that a resource stands for, "" for
// another resource: hugepages-2Mi is 2MB.
func hugePageSize(name v1.ResourceName) string {
	text, ok := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix)
	if size, err := amount.Parse(text); ok && err == nil && size.Value() > 0 {
		return pageSize(size.Value())
	}
	return ""
}

// pageSize returns a size of huge pages as in the kernel's files: 2 MiB is 2MB.
func pageSize(bytes int64) string {
	units := []string{"B", "KB", "MB", "GB"}
	for len(units) > 1 && bytes%1024 == 0 {
		bytes, units = bytes/1024, units[1:]
	}
	return strconv.FormatInt(bytes, 10) + units[0]
}

func quantity(list v1.ResourceList, name v1.ResourceName) int64 {
	return amount.Value(list[name])
}

// oomScore returns the adjustment of the kernel's OOM score for a container. The
// kernel kills first the containers that exceed their memory requests most. A
// sidecar is not killed before the regular container with the smallest request.
func oomScore(pod *v1.Pod, c *v1.Container, memoryCapacity int64) int64 {
	if pod.Spec.PriorityClassName == systemNodeCritical {
		return guaranteedOOMScore
	}
	switch podquery.QOSClass(pod) {
	case v1.PodQOSGuaranteed:
		return guaranteedOOMScore
	case v1.PodQOSBestEffort:
		return bestEffortOOMScore
	}
	share := unallocatedMemory(pod)
	score := func(c *v1.Container) int64 {
		if memoryCapacity <= 0 {
			return mostBurstable
		}
		request := amount.Sum(quantity(c.Resources.Requests, v1.ResourceMemory), share)
		return min(max(1000-amount.Times(request, 1000)/memoryCapacity, systemReserve), mostBurstable)
	}
	adjustment := score(c)
	if isSidecarOf(pod, c) {
		most := int64(0)
		for i := range pod.Spec.Containers {
			most = max(most, score(&pod.Spec.Containers[i]))
		}
		adjustment = min(adjustment, most)
	}
	return adjustment
}

// isSidecarOf reports whether c is a sidecar of the pod. A regular container may
// have a restart policy of its own, too.
func isSidecarOf(pod *v1.Pod, c *v1.Container) bool {
	return slices.ContainsFunc(pod.Spec.InitContainers, func(init v1.Container) bool { return init.Name == c.Name && podquery.IsSidecar(&init) })
}

// unallocatedMemory returns the share of each container in the memory that the
// pod requests as a whole beyond the requests of its containers (KEP-2837), in
// bytes.
func unallocatedMemory(pod *v1.Pod) int64 {
	if !resourcehelper.IsPodLevelRequestsSet(pod) {
		return 0
	}
	whole := quantity(pod.Spec.Resources.Requests, v1.ResourceMemory)
	requests := resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{})
	return max(whole-quantity(requests, v1.ResourceMemory), 0) / int64(max(len(pod.Spec.Containers)+len(pod.Spec.InitContainers), 1))
}

// PodResources returns the controls of the pod's cgroup. It sets a limit only if
// every container has one, of CPU time in a period in microseconds, unless that is 0. Of
// huge pages, the pod has none beyond its limits.
func PodResources(pod *v1.Pod, period int64) *runtimeapi.LinuxContainerResources {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	limits := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})
	cpuLimited, memoryLimited := Limited(pod)
	r := &runtimeapi.LinuxContainerResources{CpuShares: CPUShares(amount.Milli(*requests.Cpu())), HugepageLimits: hugePages(limits)}
	if podquery.QOSClass(pod) == v1.PodQOSBestEffort {
		r.CpuShares = minShares
		return r
	}
	if cpuLimited && period > 0 {
		r.CpuPeriod, r.CpuQuota = period, cpuQuota(amount.Milli(*limits.Cpu()), period)
	}
	if memoryLimited {
		r.MemoryLimitInBytes = amount.Value(*limits.Memory())
	}
	return r
}

// sandboxResources returns what the runtime is told of the controls of a pod's cgroup:
// those without the pod's overhead, and those of the overhead, which counts as request
// and limit. A runtime that gives each pod a virtual machine adds them up.
func sandboxResources(pod *v1.Pod, k *kubeletconfig.KubeletConfiguration) (containers, overhead *runtimeapi.LinuxContainerResources) {
	own, overhead := *pod, &runtimeapi.LinuxContainerResources{}
	if cpu, memory := pod.Spec.Overhead.Cpu(), pod.Spec.Overhead.Memory(); len(pod.Spec.Overhead) > 0 {
		own.Spec.Overhead = nil
		overhead.CpuShares, overhead.MemoryLimitInBytes = CPUShares(amount.Milli(*cpu)), amount.Value(*memory)
		period := quotaPeriod(k)
		if quota := cpuQuota(amount.Milli(*cpu), period); *k.CPUCFSQuota && quota > 0 {
			overhead.CpuPeriod, overhead.CpuQuota = period, quota
		}
	}
	return PodResources(&own, PodQuotaPeriod(k, pod)), overhead
}

// Limited reports whether the pod's cgroup has limits of CPU time and memory: the pod as a
// whole has one, or each of its containers.
func Limited(pod *v1.Pod) (cpu, memory bool) {
	cpu, memory = true, true
	for c := range podquery.Containers(&pod.Spec) {
		cpu = cpu && !c.Resources.Limits.Cpu().IsZero()
		memory = memory && !c.Resources.Limits.Memory().IsZero()
	}
	if resourcehelper.IsPodLevelLimitsSet(pod) {
		cpu = cpu || !pod.Spec.Resources.Limits.Cpu().IsZero()
		memory = memory || !pod.Spec.Resources.Limits.Memory().IsZero()
	}
	return cpu, memory
}

// MemoryLimit returns the limit of memory of the pod's cgroup, in bytes, 0 if it has none.
func MemoryLimit(pod *v1.Pod) int64 {
	if _, limited := Limited(pod); !limited {
		return 0
	}
	limits := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})
	return amount.Value(*limits.Memory())
}

// SandboxUpdate returns what the runtime is told of a pod's sandbox after a resize.
func SandboxUpdate(sandboxID string, pod *v1.Pod, k *kubeletconfig.KubeletConfiguration) *runtimeapi.UpdatePodSandboxResourcesRequest {
	containers, overhead := sandboxResources(pod, k)
	return &runtimeapi.UpdatePodSandboxResourcesRequest{PodSandboxId: sandboxID, Overhead: overhead, Resources: containers}
}

// ToRequirements converts the controls of a running container to the resources
// in its status. A limit that the container does not declare is the pod's, and not
// shown. Requests that the controls do not express come from the
// specification.
func ToRequirements(c *v1.Container, running *runtimeapi.LinuxContainerResources) *v1.ResourceRequirements {
	out := c.Resources.DeepCopy()
	if running == nil {
		return out
	}
	if q := running.GetCpuQuota(); q > 0 && running.GetCpuPeriod() > 0 {
		milli := (q*1000 + running.GetCpuPeriod() - 1) / running.GetCpuPeriod()
		if want, ok := c.Resources.Limits[v1.ResourceCPU]; ok && cpuQuota(amount.Milli(want), running.GetCpuPeriod()) != q {
			set(&out.Limits, v1.ResourceCPU, *resource.NewMilliQuantity(milli, resource.DecimalSI))
		}
	}
	if m := running.GetMemoryLimitInBytes(); m > 0 {
		if want, ok := c.Resources.Limits[v1.ResourceMemory]; ok && amount.Value(want) != m {
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
