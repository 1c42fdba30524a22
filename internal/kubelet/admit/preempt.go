package admit

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/coracle-io/coracle/internal/podquery"
)

// Victims returns the pods to evict so that the node can admit a critical pod that it
// rejected because of its resources, nil if there are none. candidates are those of
// the running pods that may be evicted. It stands for upstream's critical pod
// admission handler (package preemption).
func (p *Policy) Victims(pod *v1.Pod, rejected *Rejection, running, candidates []*v1.Pod) []*v1.Pod {
	if !podquery.IsCritical(pod) || !strings.HasPrefix(rejected.Reason, outOf) {
		return nil
	}
	lacks := needs{}
	for _, s := range shortages(pod, running, p.Allocatable(), p.sums.Requests) {
		lacks[s.name] = max(s.requested-(s.capacity-s.used), 1)
	}
	return lacks.victims(slices.DeleteFunc(slices.Clone(candidates), func(c *v1.Pod) bool { return !lessImportant(c, pod) }))
}

// lessImportant reports whether a pod may be evicted for a critical one.
func lessImportant(pod, critical *v1.Pod) bool {
	return !podquery.IsCritical(pod) || *pod.Spec.Priority < *critical.Spec.Priority
}

// needs are the amounts of resources that a pod lacks, more than 0 of each.
type needs map[v1.ResourceName]int64

// victims returns the pods that have what is needed: guaranteed ones only if the others
// do not suffice, burstable ones only if those that request nothing do not. It
// returns nil if all together do not have it.
func (n needs) victims(pods []*v1.Pod) []*v1.Pod {
	of := map[v1.PodQOSClass][]*v1.Pod{}
	for _, p := range pods {
		class := podquery.QOSClass(p)
		of[class] = append(of[class], p)
	}
	if len(n.without(pods)) > 0 {
		return nil
	}
	guaranteed := n.without(slices.Concat(of[v1.PodQOSBestEffort], of[v1.PodQOSBurstable])).nearest(of[v1.PodQOSGuaranteed])
	burstable := n.without(slices.Concat(of[v1.PodQOSBestEffort], guaranteed)).nearest(of[v1.PodQOSBurstable])
	bestEffort := n.without(slices.Concat(burstable, guaranteed)).nearest(of[v1.PodQOSBestEffort])
	return slices.Concat(bestEffort, burstable, guaranteed)
}

// without returns what is still needed when the pods are gone.
func (n needs) without(pods []*v1.Pod) needs {
	left := needs{}
	for name, amount := range n {
		for _, p := range pods {
			amount -= requested(p, name)
		}
		if amount > 0 {
			left[name] = amount
		}
	}
	return left
}

// nearest returns pods that have what is needed, as few as possible: one after another
// that which leaves the smallest parts of the needs, and of several the one with the
// smallest requests.
func (n needs) nearest(pods []*v1.Pod) (chosen []*v1.Pod) {
	pods = slices.Clone(pods)
	for len(n) > 0 && len(pods) > 0 {
		best := 0
		for i := range pods {
			this, least := n.distance(pods[i]), n.distance(pods[best])
			if this < least || this == least && smaller(pods[i], pods[best]) {
				best = i
			}
		}
		chosen = append(chosen, pods[best])
		n = n.without(pods[best : best+1])
		pods = slices.Delete(pods, best, best+1)
	}
	return chosen
}

// distance returns the sum of the squares of the parts of the needs that the pod leaves.
func (n needs) distance(pod *v1.Pod) (sum float64) {
	for name, amount := range n {
		if left := amount - requested(pod, name); left > 0 {
			part := float64(left) / float64(amount)
			sum += part * part
		}
	}
	return sum
}

func smaller(a, b *v1.Pod) bool {
	for _, name := range []v1.ResourceName{v1.ResourceMemory, v1.ResourceCPU} {
		if x, y := requested(a, name), requested(b, name); x != y {
			return x < y
		}
	}
	return false
}

func requested(pod *v1.Pod, name v1.ResourceName) int64 {
	if name == v1.ResourcePods {
		return 1
	}
	return counted(name, resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})[name])
}
