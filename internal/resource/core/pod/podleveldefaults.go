package pod

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresource "k8s.io/component-helpers/resource"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/resource/core/resourcelist"
)

// The defaults of pod-level resources (KEP-2837) follow from the containers.
// They apply only to pods that set at least one pod-level resource.

// hasPodLevelResources reports whether a pod sets pod-level resources.
func hasPodLevelResources(spec *corev1.PodSpec) bool {
	return spec.Resources != nil && len(spec.Resources.Limits)+len(spec.Resources.Requests) > 0
}

// defaultPodLevelResources sets the missing limits for huge pages and, if the
// pod has limits, the missing requests.
func defaultPodLevelResources(spec *corev1.PodSpec) {
	if !hasPodLevelResources(spec) {
		return
	}
	defaultHugePageLimits(spec)
	defaultPodRequests(spec)
}

// defaultHugePageLimits sets the limits for huge pages to what the containers
// use in total, except for sizes that the pod requests.
func defaultHugePageLimits(spec *corev1.PodSpec) {
	for name, total := range podresource.AggregateContainerLimits(&corev1.Pod{Spec: *spec}, podresource.PodResourcesOptions{}) {
		if _, requested := spec.Resources.Requests[name]; resourcelist.IsHugePages(name) && !requested {
			setIfMissing(&spec.Resources.Limits, name, total)
		}
	}
}

// defaultPodRequests sets the missing requests of a pod that has limits: the
// total that its containers request, or else the limit. Requests for huge pages
// always equal the limit.
func defaultPodRequests(spec *corev1.PodSpec) {
	if len(spec.Resources.Limits) == 0 {
		return
	}
	for name, total := range podresource.AggregateContainerRequests(&corev1.Pod{Spec: *spec}, podresource.PodResourcesOptions{}) {
		if podresource.IsSupportedPodLevelResource(name) && resourcelist.IsOvercommittable(name) {
			setIfMissing(&spec.Resources.Requests, name, total)
		}
	}
	for name, limit := range spec.Resources.Limits {
		if podresource.IsSupportedPodLevelResource(name) {
			setIfMissing(&spec.Resources.Requests, name, limit)
		}
	}
}

// defaultPodLimits sets the missing limits of a new pod for resources that all
// its containers limit: their total. Only new pods get these limits, because
// they would be a resize of stored ones.
func defaultPodLimits(features *feature.Set, spec *corev1.PodSpec) {
	if !hasPodLevelResources(spec) || !features.Enabled(feature.PodLevelResourcesFixDefaulting) {
		return
	}
	for name, total := range podresource.AggregateContainerLimits(&corev1.Pod{Spec: *spec}, podresource.PodResourcesOptions{}) {
		if podresource.IsSupportedPodLevelResource(name) && !resourcelist.IsHugePages(name) && allLimit(spec, name) {
			setIfMissing(&spec.Resources.Limits, name, total)
		}
	}
	defaultPodRequests(spec)
}

// allLimit reports whether all containers have a limit for a resource.
func allLimit(spec *corev1.PodSpec, name corev1.ResourceName) bool {
	for c := range podquery.Containers(spec) {
		if _, limited := c.Resources.Limits[name]; !limited {
			return false
		}
	}
	return true
}

// setIfMissing sets an entry of a list that has none of this name. It makes the
// list if necessary.
func setIfMissing(list *corev1.ResourceList, name corev1.ResourceName, quantity resource.Quantity) {
	if _, ok := (*list)[name]; ok {
		return
	}
	if *list == nil {
		*list = corev1.ResourceList{}
	}
	(*list)[name] = quantity.DeepCopy()
}
