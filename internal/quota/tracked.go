package quota

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The resources whose quota usage is more than their count.
var (
	Pods           = schema.GroupResource{Resource: "pods"}
	Services       = schema.GroupResource{Resource: "services"}
	Claims         = schema.GroupResource{Resource: "persistentvolumeclaims"}
	ResourceClaims = schema.GroupResource{Group: "resource.k8s.io", Resource: "resourceclaims"}
	// DeviceClasses use nothing. The usage of ResourceClaims depends on them.
	DeviceClasses = schema.GroupResource{Group: "resource.k8s.io", Resource: "deviceclasses"}
)

// plainName returns the name under which a quota can limit the count of a
// resource's objects, besides count/NAME. ok is false if there is none.
func plainName(gr schema.GroupResource) (name corev1.ResourceName, ok bool) {
	if gr.Group != "" {
		return "", false
	}
	switch name = corev1.ResourceName(gr.Resource); name {
	case corev1.ResourcePods, corev1.ResourceServices, corev1.ResourcePersistentVolumeClaims, corev1.ResourceReplicationControllers,
		corev1.ResourceQuotas, corev1.ResourceSecrets, corev1.ResourceConfigMaps:
		return name, true
	}
	return "", false
}

const counted = "count/"

// countName returns the name under which a quota limits the count of a
// resource: count/RESOURCE.GROUP, or count/RESOURCE in the core group.
func countName(gr schema.GroupResource) corev1.ResourceName {
	return corev1.ResourceName(counted + gr.String())
}

// Tracked returns the resources whose objects count under a name in spec.hard.
// There is none for an unknown name. The second of two counts where it is served.
func Tracked(name corev1.ResourceName) []schema.GroupResource {
	s := string(name)
	if of, ok := strings.CutPrefix(s, counted); ok {
		if of == "" {
			return nil
		}
		return []schema.GroupResource{schema.ParseGroupResource(of)}
	}
	gr := schema.GroupResource{Resource: s}
	if _, ok := plainName(gr); ok {
		return []schema.GroupResource{gr}
	}
	switch {
	case name == corev1.ResourceServicesNodePorts, name == corev1.ResourceServicesLoadBalancers:
		return []schema.GroupResource{Services}
	case name == corev1.ResourceRequestsStorage, strings.Contains(s, ofStorageClass):
		return []schema.GroupResource{Claims}
	case strings.HasSuffix(s, ofDeviceClass):
		return []schema.GroupResource{ResourceClaims}
	}
	asked := corev1.ResourceName(strings.TrimPrefix(s, corev1.DefaultResourceRequestsPrefix))
	limit := corev1.ResourceName(strings.TrimPrefix(s, "limits."))
	switch {
	case computed(asked), computed(limit), strings.HasPrefix(string(asked), corev1.ResourceHugePagesPrefix):
		return []schema.GroupResource{Pods}
	case asked != name && requestedOnly(asked):
		return []schema.GroupResource{Pods, ResourceClaims}
	}
	return nil
}
