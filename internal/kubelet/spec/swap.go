package spec

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/podquery"
)

// The values of memorySwap.swapBehavior. With LimitedSwap, containers of burstable
// pods may use swap in proportion to their memory requests. With NoSwap, no
// container uses swap.
const (
	NoSwap      = "NoSwap"
	LimitedSwap = "LimitedSwap"
)

// ResizeInfeasible returns why a pod cannot be resized in place from its
// allocated resources, "" if it can: runtimes do not change how much a running
// container may swap. A container that a resize of its memory restarts gets its
// new limit.
func (n *Node) ResizeInfeasible(desired, allocated *v1.Pod) string {
	if n.SwapCapacity == nil {
		return ""
	}
	for c := range podquery.Containers(&desired.Spec) {
		restarts := slices.ContainsFunc(c.ResizePolicy, func(p v1.ContainerResizePolicy) bool {
			return p.ResourceName == v1.ResourceMemory && p.RestartPolicy == v1.RestartContainer
		})
		before := podquery.Container(&allocated.Spec, c.Name)
		if before != nil && !restarts && n.swapLimit(desired, c, *n.SwapCapacity) != n.swapLimit(allocated, before, *n.SwapCapacity) {
			return "In-place resize of containers with swap is not supported."
		}
	}
	return ""
}

// swapLimit returns the swap limit of a container in bytes (KEP-2400). swap is the
// swap space of the machine. A container that requests more memory than the machine has,
// as one of a static pod may, does not swap.
func (n *Node) swapLimit(pod *v1.Pod, c *v1.Container, swap int64) int64 {
	limited := n.Configuration.MemorySwap.SwapBehavior == LimitedSwap
	if !limited || n.MemoryCapacity <= 0 || podquery.IsCritical(pod) || podquery.QOSClass(pod) != v1.PodQOSBurstable {
		return 0
	}
	request := quantity(c.Resources.Requests, v1.ResourceMemory)
	if request <= 0 || request > n.MemoryCapacity || request == quantity(c.Resources.Limits, v1.ResourceMemory) {
		return 0
	}
	return int64(float64(request) / float64(n.MemoryCapacity) * float64(swap))
}
