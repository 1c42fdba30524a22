package proxy

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
)

// mostOfNamespace is the default of Config.MostOfNamespace, which bounds the sizes of
// the Services of a namespace together. A Service has as many elements in the kernel as
// the product of its ports and endpoints, and an object has room for tens of thousands
// of ports. All Services are in one transaction, so that those of one namespace must not
// make it too large.
const mostOfNamespace = 500_000

// affinitySize is how many elements the set and the chain count as that an endpoint
// of a port has for session affinity.
const affinitySize = 10

// sizeOf returns roughly how many elements a Service becomes.
func sizeOf(service *v1.Service, slicesOf []*discoveryv1.EndpointSlice) int {
	if !proxied(service) {
		return 0
	}
	spec := &service.Spec
	endpoints := 0
	for _, slice := range slicesOf {
		endpoints += len(slice.Ports) * len(slice.Endpoints)
	}
	if spec.SessionAffinity == v1.ServiceAffinityClientIP {
		endpoints *= affinitySize
	}
	outside := min(len(spec.Ports)*(len(spec.ExternalIPs)+len(spec.LoadBalancerSourceRanges)), 2*mostFrontends)
	return len(spec.Ports) + endpoints + outside
}

// setSize records the size of a Service, 0 if it is gone.
func (s *state) setSize(name types.NamespacedName, size int) {
	s.sums[name.Namespace] += size - s.sizes[name]
	if s.sums[name.Namespace] == 0 {
		delete(s.sums, name.Namespace)
	}
	if s.sizes[name] = size; size == 0 {
		delete(s.sizes, name)
	}
}

// tooLarge returns the Services that do not fit with the older ones of their
// namespace. The caller must hold the mutex.
func (s *state) tooLarge() map[types.NamespacedName]bool {
	over := map[string]bool{}
	for namespace, sum := range s.sums {
		if sum > s.mostOfNamespace {
			over[namespace] = true
		}
	}
	if len(over) == 0 {
		return nil
	}
	var names []types.NamespacedName
	for name := range s.sizes {
		if over[name.Namespace] {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b types.NamespacedName) int {
		return cmp.Or(s.services[a].CreationTimestamp.Compare(s.services[b].CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	excess, fit := map[types.NamespacedName]bool{}, map[string]int{}
	for _, name := range names {
		if fit[name.Namespace]+s.sizes[name] > s.mostOfNamespace {
			excess[name] = true
			continue
		}
		fit[name.Namespace] += s.sizes[name]
	}
	return excess
}

// left returns the Services that the last Rules leave out.
func (s *state) left() (list []*v1.Service) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.excess {
		if service := s.services[name]; service != nil {
			list = append(list, service)
		}
	}
	return list
}
