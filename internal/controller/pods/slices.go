package pods

import (
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/controller"
)

// ByService is the name of the EndpointSlice informer's index by the key of the Service.
const ByService = "service"

// SliceKeys is the index function of ByService.
func SliceKeys(o any) ([]string, error) {
	slice, ok := o.(*discovery.EndpointSlice)
	if !ok || slice.Labels[discovery.LabelServiceName] == "" {
		return nil, nil
	}
	return []string{cache.NewObjectName(slice.Namespace, slice.Labels[discovery.LabelServiceName]).String()}, nil
}

// SlicesOf returns the EndpointSlices of a Service that a controller manages, which has
// this value of the label endpointslice.kubernetes.io/managed-by. The informer must have
// the index ByService.
func SlicesOf(informer cache.SharedIndexInformer, service controller.Key, managedBy string) ([]*discovery.EndpointSlice, error) {
	objects, err := informer.GetIndexer().ByIndex(ByService, service.String())
	if err != nil {
		return nil, err
	}
	var managed []*discovery.EndpointSlice
	for _, o := range objects {
		if slice := o.(*discovery.EndpointSlice); slice.Labels[discovery.LabelManagedBy] == managedBy {
			managed = append(managed, slice)
		}
	}
	return managed, nil
}
