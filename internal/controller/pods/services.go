package pods

import (
	v1 "k8s.io/api/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	endpointsliceutil "k8s.io/endpointslice/util"
)

// ServicesOf returns the Services whose endpoints the change of a pod may
// alter; old is nil for a new pod, new for one that is gone.
func ServicesOf(services corelisters.ServiceLister, old, new *v1.Pod) []cache.ObjectName {
	var projection *endpointsliceutil.PodProjectionKey
	switch {
	case old == nil:
		projection = endpointsliceutil.GetPodUpdateProjectionKey(nil, new)
	case new == nil:
		projection = endpointsliceutil.GetPodUpdateProjectionKey(nil, old)
	default:
		projection = endpointsliceutil.GetPodUpdateProjectionKey(old, new)
	}
	if projection == nil {
		return nil
	}
	keys, err := endpointsliceutil.GetServicesToUpdate(services, projection)
	if err != nil {
		return nil
	}
	var names []cache.ObjectName
	for key := range keys {
		if name, err := cache.ParseObjectName(key); err == nil {
			names = append(names, name)
		}
	}
	return names
}
