// Package pod answers what every component asks of a pod: its containers,
// its quality of service class, and what its status says. It imports only
// the API's types.
package pod

import (
	"iter"
	"slices"

	v1 "k8s.io/api/core/v1"
	podresource "k8s.io/component-helpers/resource"
	"k8s.io/klog/v2"
)

// systemCriticalPriority is the priority from which a pod is critical to the
// system (scheduling.SystemCriticalPriority).
const systemCriticalPriority = 2_000_000_000

// Containers yields the init containers and then the regular containers.
func Containers(s *v1.PodSpec) iter.Seq[*v1.Container] {
	return func(yield func(*v1.Container) bool) {
		for i := range s.InitContainers {
			if !yield(&s.InitContainers[i]) {
				return
			}
		}
		for i := range s.Containers {
			if !yield(&s.Containers[i]) {
				return
			}
		}
	}
}

// AllContainers yields the init, regular and ephemeral containers, in this order.
func AllContainers(s *v1.PodSpec) iter.Seq[*v1.Container] {
	return func(yield func(*v1.Container) bool) {
		for c := range Containers(s) {
			if !yield(c) {
				return
			}
		}
		for i := range s.EphemeralContainers {
			if !yield((*v1.Container)(&s.EphemeralContainers[i].EphemeralContainerCommon)) {
				return
			}
		}
	}
}

// Container returns the init, regular or ephemeral container with a name, or
// nil if there is none.
func Container(s *v1.PodSpec, name string) *v1.Container {
	for c := range AllContainers(s) {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// IsSidecar reports whether an init container is a restartable one, which
// runs beside the regular containers (KEP-753).
func IsSidecar(c *v1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}

// IsCritical reports whether a pod has one of the system's own priorities,
// which nodes keep whatever they are short of.
func IsCritical(p *v1.Pod) bool {
	return p.Spec.Priority != nil && *p.Spec.Priority >= systemCriticalPriority
}

// IsMirror reports whether a pod claims to be the API server's image of a
// static pod.
func IsMirror(p *v1.Pod) bool {
	_, mirror := p.Annotations[v1.MirrorPodAnnotationKey]
	return mirror
}

// Tolerates reports whether one of the tolerations tolerates a taint. numeric
// says whether the operators Lt and Gt count (KEP-5471).
func Tolerates(tolerations []v1.Toleration, taint *v1.Taint, numeric bool) bool {
	return slices.ContainsFunc(tolerations, func(t v1.Toleration) bool {
		return t.ToleratesTaint(klog.Logger{}, taint, numeric)
	})
}

// QOSClass returns the quality of service class in a pod's status, or else the
// one that its CPU and memory make it: Guaranteed if every container has
// limits for both and requests nothing else, BestEffort if no container has a
// request or limit for either, and Burstable otherwise. Resources of the pod
// itself count in place of those of its containers.
func QOSClass(p *v1.Pod) v1.PodQOSClass {
	if p.Status.QOSClass != "" {
		return p.Status.QOSClass
	}
	if podresource.IsPodLevelResourcesSet(p) {
		return qosClass(func(yield func(*v1.ResourceRequirements) bool) { yield(p.Spec.Resources) })
	}
	return qosClass(func(yield func(*v1.ResourceRequirements) bool) {
		for c := range Containers(&p.Spec) {
			if !yield(&c.Resources) {
				return
			}
		}
	})
}

func qosClass(all iter.Seq[*v1.ResourceRequirements]) v1.PodQOSClass {
	bestEffort, guaranteed := true, true
	for r := range all {
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			request, limit := r.Requests[name], r.Limits[name]
			if request.Sign() > 0 || limit.Sign() > 0 {
				bestEffort = false
			}
			if limit.Sign() <= 0 || request.Sign() > 0 && request.Cmp(limit) != 0 {
				guaranteed = false
			}
		}
	}
	switch {
	case bestEffort:
		return v1.PodQOSBestEffort
	case guaranteed:
		return v1.PodQOSGuaranteed
	}
	return v1.PodQOSBurstable
}
