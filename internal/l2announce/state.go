package l2announce

import (
	"maps"
	"net/netip"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/addresspool"
)

// state holds what the API says. Informers call it from several goroutines.
type state struct {
	own string
	// changed has a message when wanted may return something else, and configured when
	// the pools have changed.
	changed, configured chan struct{}

	mu       sync.Mutex // guards the rest
	pools    addresspool.Pools
	complete bool // the objects below are all that there are
	services map[types.NamespacedName]*v1.Service
	// holders are the Services with each address that wanted has returned last, and others.
	holders map[netip.Addr][]*v1.Service
	nodes   map[string]bool // candidates, and whether they are ready
	// taken has the addresses of each node, also of those that are no candidates. A
	// Service may have them, and they may be in a pool, but each node answers for its own.
	taken map[string][]netip.Addr
	// local has the nodes with ready endpoints, by Service and slice.
	local map[types.NamespacedName]map[string][]string
}

func newState(own string) *state {
	s := &state{own: own, changed: make(chan struct{}, 1), configured: make(chan struct{}, 1)}
	s.forget()
	return s
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// forget forgets all objects, but not the pools.
func (s *state) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.complete, s.holders = false, nil
	s.services, s.local = map[types.NamespacedName]*v1.Service{}, map[types.NamespacedName]map[string][]string{}
	s.nodes, s.taken = map[string]bool{}, map[string][]netip.Addr{}
	signal(s.changed)
}

// setComplete says that all objects are known. Before, nothing is wanted.
func (s *state) setComplete() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.complete = true
	signal(s.changed)
}

func (s *state) setPools(pools addresspool.Pools) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pools = pools
	signal(s.configured)
	signal(s.changed)
}

// hasPools reports whether there are any pools.
func (s *state) hasPools() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.pools) > 0
}

func nameOf(o interface{ GetNamespace() string }, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: name}
}

func (s *state) setService(service *v1.Service) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := nameOf(service, service.Name)
	before, after := s.services[name], service
	if !addresspool.IsBalanced(service) {
		after = nil
	}
	if after == nil {
		delete(s.services, name)
	} else {
		s.services[name] = after
	}
	if before == nil || after == nil || addresspool.IsLocal(before) != addresspool.IsLocal(after) || !slices.Equal(addresspool.Ingress(before), addresspool.Ingress(after)) {
		signal(s.changed)
	}
}

func (s *state) deleteService(service *v1.Service) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.services, nameOf(service, service.Name))
	signal(s.changed)
}

func (s *state) setNode(n *v1.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, known := s.nodes[n.Name]
	candidate, ready, taken := isCandidate(n), isReady(n), addressesOf(n)
	if known == candidate && before == (candidate && ready) && slices.Equal(s.taken[n.Name], taken) { // as after most heartbeats
		return
	}
	s.taken[n.Name] = taken
	delete(s.nodes, n.Name)
	if candidate {
		s.nodes[n.Name] = ready
	}
	signal(s.changed)
}

func (s *state) deleteNode(n *v1.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.nodes, n.Name)
	delete(s.taken, n.Name)
	signal(s.changed)
}

func (s *state) setSlice(slice *discoveryv1.EndpointSlice) {
	s.setLocal(nameOf(slice, slice.Labels[discoveryv1.LabelServiceName]), slice.Name, readyNodes(slice))
}

// updateSlice replaces a slice. Its label may name another Service than before.
func (s *state) updateSlice(old, slice *discoveryv1.EndpointSlice) {
	if old.Labels[discoveryv1.LabelServiceName] != slice.Labels[discoveryv1.LabelServiceName] {
		s.deleteSlice(old)
	}
	s.setSlice(slice)
}

func (s *state) deleteSlice(slice *discoveryv1.EndpointSlice) {
	s.setLocal(nameOf(slice, slice.Labels[discoveryv1.LabelServiceName]), slice.Name, nil)
}

// setLocal sets the nodes of a slice. Most changes of endpoints change nothing here.
func (s *state) setLocal(service types.NamespacedName, slice string, nodes []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Equal(s.local[service][slice], nodes) {
		return
	}
	if s.local[service] == nil {
		s.local[service] = map[string][]string{}
	}
	s.local[service][slice] = nodes
	if len(nodes) == 0 {
		delete(s.local[service], slice)
	}
	if len(s.local[service]) == 0 {
		delete(s.local, service)
	}
	if of := s.services[service]; of != nil && addresspool.IsLocal(of) {
		signal(s.changed)
	}
}

// wanted returns the addresses that this node may announce, and its place in the order
// of each.
func (s *state) wanted() map[netip.Addr]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.complete || len(s.pools) == 0 {
		return nil
	}
	taken := map[netip.Addr]bool{}
	for addresses := range maps.Values(s.taken) {
		for _, a := range addresses {
			taken[a] = true
		}
	}
	var list []balancer
	s.holders = map[netip.Addr][]*v1.Service{}
	for name, service := range s.services {
		free := slices.DeleteFunc(addresspool.Ingress(service), func(a netip.Addr) bool { return taken[a] })
		for _, a := range free {
			s.holders[a] = append(s.holders[a], service)
		}
		b := balancer{namespace: name.Namespace, addresses: free}
		if addresspool.IsLocal(service) {
			b.local = map[string]bool{}
			for nodes := range maps.Values(s.local[name]) {
				for _, node := range nodes {
					b.local[node] = true
				}
			}
		}
		list = append(list, b)
	}
	return ranks(s.own, candidates(s.nodes), s.pools, list)
}

// with returns the Services that have an address, as wanted has seen them last. It looks at
// no others: a node can begin to answer for all of its addresses at once.
func (s *state) with(a netip.Addr) []*v1.Service {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holders[a]
}
