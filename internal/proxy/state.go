package proxy

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// state holds the newest objects and computes Rules from those that changed.
// Informers call it from several goroutines.
type state struct {
	// changed has a message when rules would return a new value.
	changed chan struct{}
	// queued is when the last message was sent, in nanoseconds since 1970.
	queued atomic.Int64

	mu       sync.Mutex // guards the rest
	node     Node
	services map[types.NamespacedName]*v1.Service
	slices   map[types.NamespacedName]map[string]*discoveryv1.EndpointSlice
	pods     map[types.NamespacedName]*v1.Pod
	dirty    map[types.NamespacedName]bool
	began    time.Time
	changes  endpointChanges
	// serviceChanges and sliceChanges are counted for metrics.
	serviceChanges changes
	sliceChanges   changes
	// cidrs maps the names of ServiceCIDRs to their ranges.
	cidrs map[string][]netip.Prefix
	// nodes maps nodes' names to their addresses. known are the addresses of all, nil if
	// they have changed since it was made.
	nodes map[string][]netip.Addr
	known *nodeAddresses
	// primary are the addresses of this node, as primaryAddresses returns them.
	// podCIDRs are the ranges of its pods. nodePorts says at which addresses node
	// ports answer.
	primary   []netip.Addr
	podCIDRs  []netip.Prefix
	nodePorts NodePortAddresses
	// byService has the ports of each Service, served those of the last Rules.
	byService map[types.NamespacedName]map[PortName]*ServicePort
	served    ServicePorts
	frontends *frontends
	// hostPorts are those of the last Rules, nil if the pods have changed since.
	hostPorts map[LocalPort]HostPort
	sizes     map[string]*sizes // by namespace
	excess    map[string]bool   // the namespaces of which the last Rules leave out Services
	// mostOfNamespace is as in Config.
	mostOfNamespace int
}

func newState(nodeName string) *state {
	return &state{
		changed:  make(chan struct{}, 1),
		node:     Node{Name: nodeName},
		nodes:    map[string][]netip.Addr{},
		services: map[types.NamespacedName]*v1.Service{},
		slices:   map[types.NamespacedName]map[string]*discoveryv1.EndpointSlice{},
		pods:     map[types.NamespacedName]*v1.Pod{},
		dirty:    map[types.NamespacedName]bool{},
		began:    time.Now(),
		changes:  endpointChanges{},

		serviceChanges: changes{pending: map[types.NamespacedName]bool{}},
		sliceChanges:   changes{pending: map[types.NamespacedName]bool{}},
		cidrs:          map[string][]netip.Prefix{},
		byService:      map[types.NamespacedName]map[PortName]*ServicePort{},
		frontends:      newFrontends(),
		sizes:          map[string]*sizes{},
		excess:         map[string]bool{},

		mostOfNamespace: mostOfNamespace,
	}
}

// begin forgets what the last Rules were made of, so that the next ones are made from the
// objects alone.
func (s *state) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byService, s.served, s.frontends = map[types.NamespacedName]map[PortName]*ServicePort{}, ServicePorts{}, newFrontends()
	s.sizes, s.excess = map[string]*sizes{}, map[string]bool{}
	s.hostPorts, s.known = nil, nil
	for name := range s.services {
		s.dirty[name] = true
	}
}

func (s *state) notify() {
	s.queued.Store(time.Now().UnixNano())
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func (s *state) markDirty(name types.NamespacedName) {
	s.dirty[name] = true
	s.notify()
}

func (s *state) setService(service *v1.Service) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := types.NamespacedName{Namespace: service.Namespace, Name: service.Name}
	if old := s.services[name]; old == nil || !old.CreationTimestamp.Equal(&service.CreationTimestamp) {
		s.sizesOf(name.Namespace).changed = true
		s.frontends.stale = s.frontends.stale || s.byService[name] != nil // there was another one of this name
	}
	s.services[name] = service
	s.serviceChanges.note(name)
	s.markDirty(name)
}

func (s *state) deleteService(service *v1.Service) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := types.NamespacedName{Namespace: service.Namespace, Name: service.Name}
	delete(s.services, name)
	s.serviceChanges.note(name)
	s.markDirty(name)
}

// serviceOf returns the Service that has the endpoints of a slice, one without a name if
// none does, or if this proxy does not handle the slice (see proxied).
func serviceOf(slice *discoveryv1.EndpointSlice) types.NamespacedName {
	name := types.NamespacedName{Namespace: slice.Namespace}
	if isProxied(slice.Labels) {
		name.Name = slice.Labels[discoveryv1.LabelServiceName]
	}
	return name
}

func (s *state) setSlice(slice *discoveryv1.EndpointSlice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := serviceOf(slice)
	if s.slices[name] == nil {
		s.slices[name] = map[string]*discoveryv1.EndpointSlice{}
	}
	s.changes.note(s.slices[name][slice.Name], slice, s.began)
	s.slices[name][slice.Name] = slice
	s.sliceChanges.note(name)
	s.markDirty(name)
}

// updateSlice replaces a slice. Its label may name another Service than before.
func (s *state) updateSlice(old, slice *discoveryv1.EndpointSlice) {
	if serviceOf(old) != serviceOf(slice) {
		s.deleteSlice(old)
	}
	s.setSlice(slice)
}

func (s *state) deleteSlice(slice *discoveryv1.EndpointSlice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := serviceOf(slice)
	delete(s.slices[name], slice.Name)
	delete(s.changes, nameOf(slice))
	if len(s.slices[name]) == 0 {
		delete(s.slices, name)
	}
	s.sliceChanges.note(name)
	s.markDirty(name)
}

// setNode records the addresses of each node, and of this one the primary addresses,
// the ranges of pods and the zone.
func (s *state) setNode(node *v1.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if addresses := addressesOf(node); !slices.Equal(addresses, s.nodes[node.Name]) {
		s.nodes[node.Name] = addresses
		s.nodesChanged()
	}
	if node.Name != s.node.Name {
		return
	}
	primary, podCIDRs := primaryAddresses(node), prefixes(node.Spec.PodCIDRs)
	if !slices.Equal(primary, s.primary) || !slices.Equal(podCIDRs, s.podCIDRs) {
		s.primary, s.podCIDRs = primary, podCIDRs
		s.notify()
	}
	zone := node.Labels[v1.LabelTopologyZone]
	if zone == s.node.Zone {
		return
	}
	s.node.Zone = zone
	for name := range s.services {
		s.dirty[name] = true
	}
	s.notify()
}

func (s *state) deleteNode(node *v1.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.nodes, node.Name)
	if node.Name == s.node.Name {
		s.primary, s.podCIDRs = nil, nil
	}
	s.nodesChanged()
}

// nodesChanged records that nodes have other addresses.
func (s *state) nodesChanged() {
	s.known = nil
	s.notify()
}

// setCIDR stores the ranges of a ServiceCIDR.
func (s *state) setCIDR(c *networkingv1.ServiceCIDR) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ranges := prefixes(c.Spec.CIDRs); !slices.Equal(ranges, s.cidrs[c.Name]) {
		s.cidrs[c.Name] = ranges
		s.notify()
	}
}

func (s *state) deleteCIDR(c *networkingv1.ServiceCIDR) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.cidrs, c.Name)
	s.notify()
}

// serviceCIDRs returns the ranges of all ServiceCIDRs, each one once. The caller
// must hold the mutex.
func (s *state) serviceCIDRs() []netip.Prefix {
	all := slices.Concat(slices.Collect(maps.Values(s.cidrs))...)
	slices.SortFunc(all, netip.Prefix.Compare)
	return slices.Compact(all)
}

// prefixes returns the ranges in a list of CIDRs.
func prefixes(cidrs []string) (list []netip.Prefix) {
	for _, text := range cidrs {
		if p, err := netip.ParsePrefix(text); err == nil {
			list = append(list, p.Masked())
		}
	}
	return list
}

// addressesOf returns the IP addresses of a node.
func addressesOf(node *v1.Node) []netip.Addr {
	var list []netip.Addr
	for _, address := range node.Status.Addresses {
		if a, err := netip.ParseAddr(address.Address); err == nil {
			list = append(list, a)
		}
	}
	return list
}

// setPod stores the pod if it has host ports.
func (s *state) setPod(pod *v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	var before map[LocalPort]HostPort
	if old := s.pods[name]; old != nil {
		before = podHostPorts(old, anywhere)
	}
	after := podHostPorts(pod, anywhere)
	if len(after) == 0 {
		delete(s.pods, name)
	} else {
		s.pods[name] = pod
	}
	if len(before)+len(after) > 0 {
		s.hostPorts = nil
	}
	if !maps.Equal(before, after) {
		s.notify()
	}
}

func (s *state) deletePod(pod *v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	if s.pods[name] != nil {
		delete(s.pods, name)
		s.hostPorts = nil
		s.notify()
	}
}

// localNode returns this node, with the addresses that it has beside those of its
// object.
func (s *state) localNode(addresses ...netip.Addr) *localNode {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known = &nodeAddresses{}
		for _, list := range s.nodes {
			for _, a := range list {
				(*s.known)[a] = true
			}
		}
	}
	n := &localNode{addresses: map[netip.Addr]bool{}, nodes: s.known}
	for _, a := range slices.Concat(s.nodes[s.node.Name], addresses) {
		n.addresses[a] = true
	}
	return n
}

// rules computes the Services that changed and returns the Rules of all, as far as
// they depend on the objects and the node's addresses. What has not changed is taken over
// from the last Rules.
func (s *state) rules(n *localNode) Rules {
	s.mu.Lock()
	defer s.mu.Unlock()
	touched, namespaces := map[PortName]bool{}, map[string]bool{}
	for name := range s.dirty {
		s.compute(name, touched)
		namespaces[name.Namespace] = true
	}
	for namespace := range namespaces {
		for _, name := range s.bound(namespace) {
			for key := range s.byService[name] {
				touched[key] = true
			}
		}
	}
	// They are made anew, because it takes long to visit or to clear a map that was large.
	s.dirty = map[types.NamespacedName]bool{}
	s.serviceChanges.pending = map[types.NamespacedName]bool{}
	s.sliceChanges.pending = map[types.NamespacedName]bool{}
	if s.hostPorts == nil || !n.equal(s.frontends.node) {
		s.hostPorts = hostPorts(s.pods, n.isLocal)
	}
	s.serve(touched, n)
	return Rules{
		Services: s.served, HostPorts: s.hostPorts,
		ServiceCIDRs: s.serviceCIDRs(), NodePortRanges: s.nodePorts.ranges(s.primary), LoopbackNodePorts: s.nodePorts.Loopback,
		PodCIDRs: s.podCIDRs,
	}
}

// serve makes s.served what the objects say of touched ports, and of those that get or lose
// external addresses. The caller must hold the mutex.
func (s *state) serve(touched map[PortName]bool, n *localNode) {
	for key := range touched {
		s.frontends.set(key, s.asked(key))
	}
	if s.frontends.stale || !n.equal(s.frontends.node) {
		created := func(name types.NamespacedName) metav1.Time { return s.services[name].CreationTimestamp }
		for _, key := range s.frontends.arbitrate(created, n) {
			touched[key] = true
		}
	}
	for key := range touched {
		if p := s.frontends.allowed(key); p != nil {
			s.served = s.served.With(key, reused(s.served.Get(key), p))
		} else {
			s.served = s.served.Without(key)
		}
	}
}

// asked returns what a port of a Service is by the objects, nil if it is gone or too much
// for its namespace. The caller must hold the mutex.
func (s *state) asked(key PortName) *ServicePort {
	if of := s.sizes[key.Namespace]; of != nil && of.excess[key.NamespacedName] {
		return nil
	}
	return s.byService[key.NamespacedName][key]
}

// owner returns the pod or the Service that wants a port, or nil if it is gone.
func (s *state) owner(w *want) owner {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.ofPod() {
		if pod := s.pods[w.pod]; pod != nil {
			return pod
		}
		return nil
	}
	if service := s.services[w.service.NamespacedName]; service != nil {
		return service
	}
	return nil
}

// compute computes the ports of a Service, and adds those that differ from before to
// touched. The caller must hold the mutex.
func (s *state) compute(name types.NamespacedName, touched map[PortName]bool) {
	before, ports := s.byService[name], s.portsOf(name)
	for key := range before {
		if ports[key] == nil {
			touched[key] = true
		}
	}
	for key, port := range ports {
		if ports[key] = reused(before[key], port); ports[key] != before[key] {
			touched[key] = true
		}
	}
	if s.byService[name] = ports; ports == nil {
		delete(s.byService, name)
	}
}

// reused returns a port of a Service: the former value, if it is the same.
func reused(before, p *ServicePort) *ServicePort {
	if before != nil && (before == p || reflect.DeepEqual(before, p)) {
		return before
	}
	return p
}

// portsOf returns the ports of a Service, nil if it is gone or too large, and records
// its size.
func (s *state) portsOf(name types.NamespacedName) map[PortName]*ServicePort {
	service := s.services[name]
	if service == nil {
		s.setSize(name, 0)
		return nil
	}
	var list []*discoveryv1.EndpointSlice
	for _, slice := range s.slices[name] {
		list = append(list, slice)
	}
	size := sizeOf(service, list)
	s.setSize(name, size)
	if size > s.mostOfNamespace {
		return nil
	}
	return serviceRules(service, list, s.node)
}
