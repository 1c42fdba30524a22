package spec

import (
	"math"
	"os"
	"strconv"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/coracle-io/coracle/internal/podquery"
)

// The controls of memory beside its limit that groups of version 2 have.
const (
	MemoryMin  = "memory.min"  // what the kernel never takes back
	MemoryLow  = "memory.low"  // what it takes back last
	memoryHigh = "memory.high" // beyond which it takes back, and slows the processes down
)

// TieredReservation reports whether the kernel keeps pods the memory that they request:
// from guaranteed ones it takes none of it back, and from burstable ones last
// (memoryReservationPolicy).
func TieredReservation(k *kubeletconfig.KubeletConfiguration) bool {
	return k.MemoryReservationPolicy == kubeletconfig.TieredReservationMemoryReservationPolicy
}

// memoryControls returns the controls with which the kernel keeps a container the memory
// that it requests, and slows it down before it reaches its limit (KEP-2570). Without a
// limit, it is slowed down before it has all memory that the node has for pods.
func (n *Node) memoryControls(pod *v1.Pod, c *v1.Container) map[string]string {
	request, limit := quantity(c.Resources.Requests, v1.ResourceMemory), quantity(c.Resources.Limits, v1.ResourceMemory)
	kept := protection(n.Configuration, pod, request)
	if limit > 0 {
		return slowed(kept, n.Configuration, request, limit)
	}
	if resourcehelper.IsPodLevelLimitsSet(pod) && quantity(pod.Spec.Resources.Limits, v1.ResourceMemory) > 0 {
		return kept // the group of the pod is slowed down
	}
	return slowed(kept, n.Configuration, request, n.MemoryForPods)
}

// PodMemoryControls returns these controls of the pod's cgroup. Only pods with resources
// of their own are slowed down as a whole.
func PodMemoryControls(k *kubeletconfig.KubeletConfiguration, pod *v1.Pod) map[string]string {
	request := quantity(resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}), v1.ResourceMemory)
	kept := protection(k, pod, request)
	if !resourcehelper.IsPodLevelResourcesSet(pod) {
		return kept
	}
	return slowed(kept, k, request, MemoryLimit(pod))
}

// protection returns the controls that keep a pod, or one of its containers, the memory
// that it requests, nil if the node has none.
func protection(k *kubeletconfig.KubeletConfiguration, pod *v1.Pod, request int64) map[string]string {
	if !TieredReservation(k) {
		return nil
	}
	bytes := strconv.FormatInt(request, 10)
	if podquery.QOSClass(pod) == v1.PodQOSGuaranteed {
		return map[string]string{MemoryMin: bytes}
	}
	return map[string]string{MemoryLow: bytes}
}

// slowed adds the control of a group that is slowed down on the way from what it
// requests to the most that it may have (memoryThrottlingFactor), 0 for no bound. A
// group that requests all of it is not.
func slowed(controls map[string]string, k *kubeletconfig.KubeletConfiguration, request, most int64) map[string]string {
	if k.MemoryThrottlingFactor == nil || most == 0 {
		return controls
	}
	factor, page := *k.MemoryThrottlingFactor, int64(os.Getpagesize())
	high := int64(math.Floor(float64(request)+factor*(float64(most)-float64(request)))) / page * page
	if high <= request {
		return controls
	}
	if controls == nil {
		controls = map[string]string{}
	}
	controls[memoryHigh] = strconv.FormatInt(high, 10)
	return controls
}
