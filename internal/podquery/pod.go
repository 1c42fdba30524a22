// Package podquery answers what every component asks of a pod: its containers,
// its quality of service class, its claims, and what its status says.
package podquery

import (
	"iter"
	"slices"

	v1 "k8s.io/api/core/v1"
	podresource "k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/storage/ephemeral"
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

// IsCritical reports whether a pod has the priority of a system-critical pod,
// which a node does not evict when it is short of resources.
func IsCritical(p *v1.Pod) bool {
	return p.Spec.Priority != nil && *p.Spec.Priority >= systemCriticalPriority
}

// IsMirror reports whether a pod has the annotation of a mirror pod, which
// represents a static pod in the API.
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
// one that follows from its CPU and memory: Guaranteed if every container has
// limits for both and requests nothing else, BestEffort if no container has a
// request or limit for either, and Burstable otherwise. Resources of the pod
// itself count instead of resources of its containers.
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

// ClaimName returns the name of the PersistentVolumeClaim that a volume of a pod
// refers to, or "". The claim of an ephemeral volume is named after both, and
// is the pod's only if the pod controls it.
func ClaimName(pod *v1.Pod, volume *v1.Volume) (name string, isEphemeral bool) {
	switch {
	case volume.PersistentVolumeClaim != nil:
		return volume.PersistentVolumeClaim.ClaimName, false
	case volume.Ephemeral != nil:
		return ephemeral.VolumeClaimName(pod, volume), true
	}
	return "", false
}

// SetClaimTemplates gives a named pod of a StatefulSet the volumes of the
// templates, in place of others of the same names. A claim is named after its
// template and the pod.
func SetClaimTemplates(pod *v1.Pod, templates []v1.PersistentVolumeClaim) {
	var volumes []v1.Volume
	names := map[string]bool{}
	for i := range templates {
		name := templates[i].Name
		names[name] = true
		volumes = append(volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name + "-" + pod.Name},
		}})
	}
	for i := range pod.Spec.Volumes {
		if !names[pod.Spec.Volumes[i].Name] {
			volumes = append(volumes, pod.Spec.Volumes[i])
		}
	}
	pod.Spec.Volumes = volumes
}

// ClaimNames yields the names of the PersistentVolumeClaims of a pod, including
// the claims of its ephemeral volumes. A name may occur twice.
func ClaimNames(pod *v1.Pod) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range pod.Spec.Volumes {
			if name, _ := ClaimName(pod, &pod.Spec.Volumes[i]); name != "" && !yield(name) {
				return
			}
		}
	}
}

// HasUserNamespace reports whether a pod has a user namespace of its own (KEP-127).
func HasUserNamespace(spec *v1.PodSpec) bool { return spec.HostUsers != nil && !*spec.HostUsers }

// IsOnDisk reports whether the kubelet keeps a volume of a pod on the node's disk.
func IsOnDisk(v *v1.Volume) bool {
	return v.ConfigMap != nil || v.EmptyDir != nil && v.EmptyDir.Medium == v1.StorageMediumDefault
}
