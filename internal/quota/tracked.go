package quota

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resources whose objects take more than their place.
var (
	Pods           = schema.GroupResource{Resource: "pods"}
	Services       = schema.GroupResource{Resource: "services"}
	Claims         = schema.GroupResource{Resource: "persistentvolumeclaims"}
	ResourceClaims = schema.GroupResource{Group: "resource.k8s.io", Resource: "resourceclaims"}
)

// plainNames are the resources whose number is also limited under their plain
// name, besides count/NAME.
var plainNames = map[schema.GroupResource]corev1.ResourceName{
	Pods:                                 corev1.ResourcePods,
	Services:                             corev1.ResourceServices,
	Claims:                               corev1.ResourcePersistentVolumeClaims,
	{Resource: "replicationcontrollers"}: corev1.ResourceReplicationControllers,
	{Resource: "resourcequotas"}:         corev1.ResourceQuotas,
	{Resource: "secrets"}:                corev1.ResourceSecrets,
	{Resource: "configmaps"}:             corev1.ResourceConfigMaps,
}

const counted = "count/"

// CountName is the name under which the number of a resource's objects is
// limited: count/RESOURCE.GROUP, and count/RESOURCE in the core group.
func CountName(gr schema.GroupResource) corev1.ResourceName {
	return corev1.ResourceName(counted + gr.String())
}

// Tracked says which resource's objects are counted under a name that a quota
// limits; false if none are.
func Tracked(name corev1.ResourceName) (schema.GroupResource, bool) {
	s := string(name)
	if of, ok := strings.CutPrefix(s, counted); ok {
		return schema.ParseGroupResource(of), of != ""
	}
	for gr, plain := range plainNames {
		if name == plain {
			return gr, true
		}
	}
	switch {
	case name == corev1.ResourceServicesNodePorts, name == corev1.ResourceServicesLoadBalancers:
		return Services, true
	case name == corev1.ResourceRequestsStorage, strings.Contains(s, ofStorageClass):
		return Claims, true
	case strings.HasSuffix(s, ofDeviceClass):
		return ResourceClaims, true
	}
	asked := corev1.ResourceName(strings.TrimPrefix(s, corev1.DefaultResourceRequestsPrefix))
	limit := corev1.ResourceName(strings.TrimPrefix(s, "limits."))
	switch {
	case computed(asked), computed(limit), strings.HasPrefix(string(asked), corev1.ResourceHugePagesPrefix):
		return Pods, true
	case asked != name && Extended(asked):
		return Pods, true
	}
	return schema.GroupResource{}, false
}
