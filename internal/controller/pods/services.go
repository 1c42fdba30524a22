package pods

import (
	"time"

	v1 "k8s.io/api/core/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	endpointsliceutil "k8s.io/endpointslice/util"

	"github.com/coracle-io/coracle/internal/controller"
)

// ServiceSources returns sources that enqueue each Service that changes, and the
// Services whose endpoints may change with a pod. batch is how long changes of
// pods wait, to be written together with those that follow.
func ServiceSources(core coreinformers.Interface, queue *controller.Queue[controller.Key], batch time.Duration) []controller.Source {
	services := core.Services().Lister()
	return []controller.Source{
		controller.On(core.Services().Informer(), func(old, new *v1.Service) {
			if new == nil {
				new = old
			}
			queue.Add(cache.MetaObjectToName(new))
		}),
		controller.On(core.Pods().Informer(), func(old, new *v1.Pod) {
			for _, service := range servicesOf(services, old, new) {
				queue.AddAfter(service, batch)
			}
		}),
	}
}

// servicesOf returns the keys of the Services whose endpoints may change when a
// pod changes from old to new. old is nil for an added pod, new is nil for a
// deleted one.
func servicesOf(services corelisters.ServiceLister, old, new *v1.Pod) []cache.ObjectName {
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
