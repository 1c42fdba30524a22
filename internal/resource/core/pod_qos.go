package core

import (
	corev1 "k8s.io/api/core/v1"
	podresource "k8s.io/component-helpers/resource"
)

// QOSClass is the class of service that a pod's resources make it:
// Guaranteed if every container limits cpu and memory to what it requests,
// BestEffort if none asks for either, else Burstable. Resources of the pod
// itself stand for those of its containers.
func QOSClass(p *corev1.Pod) corev1.PodQOSClass {
	if p.Status.QOSClass != "" {
		return p.Status.QOSClass
	}
	if p.Spec.Resources != nil && podresource.IsPodLevelResourcesSet(p) {
		return qosClass([]corev1.ResourceRequirements{*p.Spec.Resources})
	}
	var all []corev1.ResourceRequirements
	for i := range p.Spec.Containers {
		all = append(all, p.Spec.Containers[i].Resources)
	}
	for i := range p.Spec.InitContainers {
		all = append(all, p.Spec.InitContainers[i].Resources)
	}
	return qosClass(all)
}

func qosClass(all []corev1.ResourceRequirements) corev1.PodQOSClass {
	anything, guaranteed := false, true
	for _, r := range all {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			request, limit := r.Requests[name], r.Limits[name]
			if request.Sign() > 0 || limit.Sign() > 0 {
				anything = true
			}
			if limit.Sign() <= 0 || request.Sign() > 0 && request.Cmp(limit) != 0 {
				guaranteed = false
			}
		}
	}
	switch {
	case !anything:
		return corev1.PodQOSBestEffort
	case guaranteed:
		return corev1.PodQOSGuaranteed
	default:
		return corev1.PodQOSBurstable
	}
}
