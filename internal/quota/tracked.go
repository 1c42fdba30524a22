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

// Tracked returns the resource whose objects count under a name in spec.hard.
// It returns false if there is none.
func Tracked(name corev1.ResourceName) (schema.GroupResource, bool) {
	s := string(name)
	if of, ok := strings.CutPrefix(s, counted); ok {
		return schema.ParseGroupResource(of), of != ""
	}
	gr := schema.GroupResource{Resource: s}
	if _, ok := plainName(gr); ok {
		return gr, true
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
	case asked != name && requestedOnly(asked):
		return Pods, true
	}
	return schema.GroupResource{}, false
}
