package dns

import (
	"fmt"
	"net/netip"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// indexes is a view on the shared informers' indexes.
type indexes struct {
	services, endpointSlices, namespaces cache.Indexer
}

// The indexes that this package adds to the informers.
const (
	byClusterIP = "dns.clusterIP" // Services
	byService   = "dns.service"   // slices, namespace/name
	byAddress   = "dns.address"   // slices
)

func newIndexes(factory informers.SharedInformerFactory) (*indexes, []cache.InformerSynced, error) {
	services := factory.Core().V1().Services().Informer()
	endpointSlices := factory.Discovery().V1().EndpointSlices().Informer()
	namespaces := factory.Core().V1().Namespaces().Informer()
	if err := services.AddIndexers(missing(services, cache.Indexers{byClusterIP: func(obj any) ([]string, error) {
		var keys []string
		for _, a := range clusterIPs(obj.(*v1.Service)) {
			keys = append(keys, a.String())
		}
		return keys, nil
	}})); err != nil {
		return nil, nil, fmt.Errorf("indexing Services: %w", err)
	}
	if err := endpointSlices.AddIndexers(missing(endpointSlices, cache.Indexers{
		byService: func(obj any) ([]string, error) {
			slice := obj.(*discoveryv1.EndpointSlice)
			return []string{slice.Namespace + "/" + slice.Labels[discoveryv1.LabelServiceName]}, nil
		},
		byAddress: func(obj any) ([]string, error) {
			var keys []string
			for _, endpoint := range obj.(*discoveryv1.EndpointSlice).Endpoints {
				for _, s := range endpoint.Addresses {
					if a, err := netip.ParseAddr(s); err == nil {
						keys = append(keys, a.String())
					}
				}
			}
			return keys, nil
		},
	})); err != nil {
		return nil, nil, fmt.Errorf("indexing EndpointSlices: %w", err)
	}
	return &indexes{services.GetIndexer(), endpointSlices.GetIndexer(), namespaces.GetIndexer()},
		[]cache.InformerSynced{services.HasSynced, endpointSlices.HasSynced, namespaces.HasSynced}, nil
}

// missing leaves out what an earlier server of the process has added.
func missing(informer cache.SharedIndexInformer, wanted cache.Indexers) cache.Indexers {
	present := informer.GetIndexer().GetIndexers()
	for name := range wanted {
		if present[name] != nil {
			delete(wanted, name)
		}
	}
	return wanted
}

func (i *indexes) service(namespace, name string) *v1.Service {
	obj, exists, err := i.services.GetByKey(namespace + "/" + name)
	if err != nil || !exists {
		return nil
	}
	return obj.(*v1.Service)
}

func (i *indexes) namespace(name string) bool {
	_, exists, err := i.namespaces.GetByKey(name)
	return err == nil && exists
}

func (i *indexes) slices(namespace, service string) []*discoveryv1.EndpointSlice {
	return indexed[*discoveryv1.EndpointSlice](i.endpointSlices, byService, namespace+"/"+service)
}

func (i *indexes) servicesAt(a netip.Addr) []*v1.Service {
	return indexed[*v1.Service](i.services, byClusterIP, a.String())
}

func (i *indexes) slicesAt(a netip.Addr) []*discoveryv1.EndpointSlice {
	return indexed[*discoveryv1.EndpointSlice](i.endpointSlices, byAddress, a.String())
}

func indexed[T any](indexer cache.Indexer, index, key string) []T {
	objects, err := indexer.ByIndex(index, key)
	if err != nil {
		return nil
	}
	list := make([]T, 0, len(objects))
	for _, obj := range objects {
		list = append(list, obj.(T))
	}
	return list
}
