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

// DefaultPodLevelResources sets the pod-level resources that follow from the containers
// and from each other. The containers must be complete and have their defaults: a new pod
// gets them after admission. Without the gate PodLevelResourcesFixDefaulting, only pods
// with limits get requests, and only those for huge pages get limits.
func DefaultPodLevelResources(features *feature.Set, spec *corev1.PodSpec) {
	if !hasPodLevelResources(spec) || !features.Enabled(feature.PodLevelResources) {
		return
	}
	complete := features.Enabled(feature.PodLevelResourcesFixDefaulting)
	defaultHugePageLimits(spec)
	if complete || len(spec.Resources.Limits) > 0 {
		defaultPodRequests(spec)
	}
	if complete {
		defaultPodLimits(spec)
	}
}

// keepPodLevelResources keeps the pod-level resources in an update that has none: its
// client may not know the field.
func keepPodLevelResources(features *feature.Set, spec, old *corev1.PodSpec) {
	if spec.Resources == nil && features.Enabled(feature.PodLevelResourcesFixDefaulting) {
		spec.Resources = old.Resources.DeepCopy()
	}
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

// defaultPodRequests sets the missing requests: the total that the containers request, or
// else the limit. Requests for huge pages always equal the limit.
func defaultPodRequests(spec *corev1.PodSpec) {
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

// defaultPodLimits sets the missing limits for resources that the pod requests and all its
// containers limit: their total, or what the pod requests if that is more.
func defaultPodLimits(spec *corev1.PodSpec) {
	totals := podresource.AggregateContainerLimits(&corev1.Pod{Spec: *spec}, podresource.PodResourcesOptions{})
	for name, request := range spec.Resources.Requests {
		limit, limited := totals[name]
		if !limited || !podresource.IsSupportedPodLevelResource(name) || !allLimit(spec, name) {
			continue
		}
		if request.Cmp(limit) > 0 {
			limit = request
		}
		setIfMissing(&spec.Resources.Limits, name, limit)
	}
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
