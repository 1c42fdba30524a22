package proxy

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/order"
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

// sizes are those of the Services of a namespace, see sizeOf.
type sizes struct {
	of  map[types.NamespacedName]int
	sum int
	// changed says that sizes or ages differ from those by which excess was decided:
	// the Services that the last Rules leave out, because they do not fit with the older
	// ones.
	changed bool
	excess  map[types.NamespacedName]bool
}

// sizesOf returns the sizes of a namespace, which may change.
func (s *state) sizesOf(namespace string) *sizes {
	if s.sizes[namespace] == nil {
		s.sizes[namespace] = &sizes{of: map[types.NamespacedName]int{}}
	}
	return s.sizes[namespace]
}

// setSize records the size of a Service, 0 if it is gone.
func (s *state) setSize(name types.NamespacedName, size int) {
	of := s.sizesOf(name.Namespace)
	of.changed = of.changed || of.of[name] != size
	of.sum += size - of.of[name]
	if of.of[name] = size; size == 0 {
		delete(of.of, name)
	}
}

// bound decides which Services of a namespace the rules leave out, if that may differ from
// the last decision, and returns those for which it does. The caller must hold the mutex.
func (s *state) bound(namespace string) (differ []types.NamespacedName) {
	of := s.sizes[namespace]
	if of == nil || !of.changed && len(of.of) > 0 {
		return nil
	}
	before, now := of.excess, s.tooLarge(of)
	for name := range before {
		if !now[name] {
			differ = append(differ, name)
		}
	}
	for name := range now {
		if !before[name] {
			differ = append(differ, name)
		}
	}
	of.excess, of.changed = now, false
	if len(now) > 0 {
		s.excess[namespace] = true
	} else {
		delete(s.excess, namespace)
	}
	if len(of.of) == 0 {
		delete(s.sizes, namespace)
	}
	return differ
}

// tooLarge returns the Services that do not fit with the older ones of their
// namespace. The caller must hold the mutex.
func (s *state) tooLarge(of *sizes) map[types.NamespacedName]bool {
	if of.sum <= s.mostOfNamespace {
		return nil
	}
	oldest := slices.SortedFunc(maps.Keys(of.of), func(a, b types.NamespacedName) int {
		return order.ByAge(s.services[a], s.services[b])
	})
	excess, fit := map[types.NamespacedName]bool{}, 0
	for _, name := range oldest {
		if fit+of.of[name] > s.mostOfNamespace {
			excess[name] = true
			continue
		}
		fit += of.of[name]
	}
	return excess
}

// left returns the Services that the last Rules leave out.
func (s *state) left() (list []*v1.Service) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for namespace := range s.excess {
		for name := range s.sizes[namespace].excess {
			if service := s.services[name]; service != nil {
				list = append(list, service)
			}
		}
	}
	return list
}
