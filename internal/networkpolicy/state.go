package networkpolicy

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/coracle-io/coracle/internal/order"
	"github.com/coracle-io/coracle/internal/persistent"
	"github.com/coracle-io/coracle/internal/podquery"
)

// state has the newest objects and computes Rules from them. Parts that a change
// does not affect are not computed again. Informers and the kubelet call it from
// several goroutines.
type state struct {
	// changed has a message when rules would return a new value.
	changed chan struct{}
	node    string

	mu         sync.Mutex                                    // guards the rest
	generation uint64                                        // counts the changes
	policies   map[string]map[types.NamespacedName]*compiled // by namespace
	namespaces map[string]labels.Set
	pods       map[string]map[types.NamespacedName]*pod // by namespace
	local      map[types.NamespacedName]*pod            // those of this node
	admitted   map[types.NamespacedName]admission
	claims     map[netip.Addr][]*pod // the pods that say that an address is theirs
	// closed are addresses of isolated pods of this node, the oldest first, whose
	// processes may run although the API does not have the pods any more, or not
	// their addresses yet.
	closed []netip.Addr
	// groups and ports are those of the last Rules, made to follow the pods since.
	groups map[Group]*group
	ports  map[NamedPort]PodPorts
}

func newState(node string) *state {
	return &state{
		changed: make(chan struct{}, 1), node: node,
		policies: map[string]map[types.NamespacedName]*compiled{}, namespaces: map[string]labels.Set{},
		pods: map[string]map[types.NamespacedName]*pod{}, local: map[types.NamespacedName]*pod{}, admitted: map[types.NamespacedName]admission{},
		claims: map[netip.Addr][]*pod{}, groups: map[Group]*group{}, ports: map[NamedPort]PodPorts{},
	}
}

// maxClosed bounds state.closed. It is more than the addresses that a node's pods
// have in a while.
const maxClosed = 4096

// admission holds what the kubelet has reported about a pod's sandbox.
type admission struct {
	uid        types.UID
	addresses  []netip.Addr
	generation uint64 // of the state
	verified   uint64 // the first generation with the pod's policies; 0: not known
}

// pod holds the fields of a pod that policies depend on. The pod has, or will
// have, addresses of its own.
type pod struct {
	name      types.NamespacedName
	uid       types.UID
	mirror    bool // of a static pod, whose UID is another
	local     bool // on this node
	deleting  bool
	created   int64
	labels    labels.Set
	status    []netip.Addr
	ports     []containerPort
	admission *admission // nil: the status has the addresses
	// generation is the first one of the state with this pod.
	generation uint64
	// selected is what selection returns, "" before.
	selected string
}

type containerPort struct {
	NamedPort
	number uint16
}

func (p *pod) addresses() []netip.Addr {
	if p.admission != nil {
		return p.admission.addresses
	}
	return p.status
}

// runningUID returns the UID of the pod that runs. It is "" if only the UID of
// its mirror pod is known, because mirror pods come and go while the pod runs.
func (p *pod) runningUID() types.UID {
	switch {
	case p.admission != nil:
		return p.admission.uid
	case p.mirror:
		return ""
	}
	return p.uid
}

// successor returns an empty state that has the admissions of s.
func (s *state) successor() *state {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := newState(s.node)
	next.generation, next.closed = s.generation, s.closed
	for name, a := range s.admitted {
		a.verified = 0
		next.admitted[name] = a
	}
	return next
}

// notify records a change. The caller must hold the mutex.
func (s *state) notify() {
	s.generation++
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func (s *state) setPolicy(p *networkingv1.NetworkPolicy) {
	after := compile(p)
	if after.size > mostOfNamespace { // it is in excess whatever the others are
		after.policy, after.groups = &Policy{}, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.policies[p.Namespace] == nil {
		s.policies[p.Namespace] = map[types.NamespacedName]*compiled{}
	}
	s.policies[p.Namespace][after.name] = after
	s.notify()
}

func (s *state) deletePolicy(p *networkingv1.NetworkPolicy) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.policies[p.Namespace], types.NamespacedName{Namespace: p.Namespace, Name: p.Name})
	if len(s.policies[p.Namespace]) == 0 {
		delete(s.policies, p.Namespace)
	}
	s.notify()
}

func (s *state) setNamespace(n *v1.Namespace) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if before, ok := s.namespaces[n.Name]; ok && maps.Equal(before, n.Labels) {
		return
	}
	s.namespaces[n.Name] = n.Labels
	s.namespaceChanged()
}

func (s *state) deleteNamespace(n *v1.Namespace) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.namespaces, n.Name)
	s.namespaceChanged()
}

func (s *state) namespaceChanged() {
	for _, g := range s.groups {
		g.stale = g.stale || g.namespaces != nil
	}
	s.notify()
}

func (s *state) setPod(p *v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
	before := s.pods[name.Namespace][name]
	after := s.read(p)
	if before == nil && after == nil || before != nil && after != nil && before.equal(after) {
		return
	}
	s.replace(before, after)
}

func (s *state) deletePod(p *v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
	a, ok := s.admitted[name]
	if ok && isMirror(p) {
		return // its static pod runs on
	}
	if ok && a.uid == p.UID {
		delete(s.admitted, name)
	}
	s.replace(s.pods[name.Namespace][name], nil)
}

// close closes the addresses of a pod of this node that the API does not have any
// more, if policies isolate it. It may have been deleted by force, and run on for
// as long as its own grace period says. The caller must hold the mutex.
func (s *state) close(p *pod) {
	if !p.local {
		return
	}
	if i := isolate(p, s.candidates(p.name.Namespace)); !i.ingress && !i.egress {
		return
	}
	for _, a := range p.addresses() {
		if s.owner(a) != p {
			continue
		}
		s.closed = append(slices.DeleteFunc(slices.Clone(s.closed), func(c netip.Addr) bool { return c == a }), a)
	}
	s.closed = s.closed[max(0, len(s.closed)-maxClosed):]
}

// closeAll closes addresses that have no owner.
func (s *state) closeAll(addresses []netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = append(slices.Clone(s.closed), addresses...)
	s.closed = s.closed[max(0, len(s.closed)-maxClosed):]
}

// setStatic adds a static pod whose mirror pod is not known yet, and reports
// whether it has.
func (s *state) setStatic(p *v1.Pod) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
	after := s.read(p)
	if after == nil || s.pods[name.Namespace][name] != nil {
		return false
	}
	after.local, after.mirror = true, true
	after.admit(s.admitted)
	s.replace(nil, after)
	return true
}

func isMirror(p *v1.Pod) bool { return p.Annotations[v1.MirrorPodAnnotationKey] != "" }

// hasAddress reports whether a pod has, or can get, an address of its own: it has a node,
// does not use the node's address, and has not ended.
func hasAddress(p *v1.Pod) bool {
	return p.Spec.NodeName != "" && !p.Spec.HostNetwork && !podquery.IsFinished(p)
}

// read returns what matters of a pod, nil if it has no address of its own.
func (s *state) read(p *v1.Pod) *pod {
	if !hasAddress(p) {
		return nil
	}
	out := &pod{
		name: types.NamespacedName{Namespace: p.Namespace, Name: p.Name}, uid: p.UID, mirror: isMirror(p),
		local: p.Spec.NodeName == s.node, deleting: p.DeletionTimestamp != nil, created: p.CreationTimestamp.UnixNano(), labels: p.Labels,
	}
	for _, ip := range p.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil {
			out.status = append(out.status, a.Unmap())
		}
	}
	read := func(list []v1.Container) {
		for i := range list {
			for _, port := range list[i].Ports {
				if port.Name != "" && port.ContainerPort > 0 && port.ContainerPort <= 65535 {
					protocol := cmp.Or(port.Protocol, v1.ProtocolTCP)
					out.ports = append(out.ports, containerPort{NamedPort{protocol, port.Name}, uint16(port.ContainerPort)})
				}
			}
		}
	}
	read(p.Spec.Containers)
	read(p.Spec.InitContainers)
	out.admit(s.admitted)
	return out
}

// admit takes the addresses that the kubelet has said, if they are of this pod.
func (p *pod) admit(admitted map[types.NamespacedName]admission) {
	if a, ok := admitted[p.name]; ok && (a.uid == p.uid || p.mirror) {
		p.admission = &a
	}
}

func (p *pod) equal(o *pod) bool {
	return p.uid == o.uid && p.local == o.local && p.deleting == o.deleting && maps.Equal(p.labels, o.labels) &&
		slices.Equal(p.addresses(), o.addresses()) && slices.Equal(p.ports, o.ports)
}

// replace replaces a pod. Either may be nil. The caller must hold the mutex.
func (s *state) replace(before, after *pod) {
	touched := map[*pod]bool{}
	var addresses []netip.Addr
	if before != nil {
		touched[before] = true
		addresses = slices.Concat(addresses, before.addresses())
		if after == nil || after.uid != before.uid { // a watch may show only that another one came
			s.close(before)
		}
		for _, a := range before.addresses() {
			s.claims[a] = slices.DeleteFunc(s.claims[a], func(p *pod) bool { return p == before })
			if len(s.claims[a]) == 0 {
				delete(s.claims, a)
			}
			s.touch(touched, a)
		}
		delete(s.local, before.name)
		delete(s.pods[before.name.Namespace], before.name)
		if len(s.pods[before.name.Namespace]) == 0 {
			delete(s.pods, before.name.Namespace)
		}
	}
	if after != nil {
		touched[after] = true
		addresses = slices.Concat(addresses, after.addresses())
		for _, a := range after.addresses() {
			s.touch(touched, a)
			s.claims[a] = append(s.claims[a], after)
		}
		if s.pods[after.name.Namespace] == nil {
			s.pods[after.name.Namespace] = map[types.NamespacedName]*pod{}
		}
		if s.pods[after.name.Namespace][after.name] = after; after.local {
			s.local[after.name] = after
		}
	}
	for _, a := range addresses {
		s.follow(a, touched)
	}
	s.notify()
	if after != nil {
		after.generation = s.generation
	}
}

// touch adds the pods that claim an address to touched.
func (s *state) touch(touched map[*pod]bool, a netip.Addr) {
	for _, p := range s.claims[a] {
		touched[p] = true
	}
}

// admit records the addresses of the sandbox of a pod of this node. It returns
// the first generation with the pod and, once they are verified, with its
// policies.
func (s *state) admit(name types.NamespacedName, uid types.UID, addresses []netip.Addr) (generation uint64, known, verified bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pods[name.Namespace][name]
	known = p != nil && (p.uid == uid || p.mirror)
	if a, ok := s.admitted[name]; !ok || a.uid != uid || !slices.Equal(a.addresses, addresses) {
		first := admission{uid: uid, addresses: addresses, generation: s.generation + 1}
		if known && slices.Equal(p.status, addresses) {
			first.verified = p.generation // of a sandbox that was admitted before its status was written
		}
		s.admitted[name] = first
		if known {
			after := *p
			after.admit(s.admitted)
			s.replace(p, &after)
			p = &after
		} else {
			s.notify()
		}
	}
	if !known {
		return 0, false, false
	}
	return max(p.generation, s.admitted[name].verified), true, s.admitted[name].verified > 0
}

// now returns the generation of the state.
func (s *state) now() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.generation
}

// has reports whether the state has all given policies of a namespace.
func (s *state) has(namespace string, policies []networkingv1.NetworkPolicy) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range policies {
		known := s.policies[namespace][types.NamespacedName{Namespace: namespace, Name: policies[i].Name}]
		if known == nil {
			return false
		}
		if order, err := resourceversion.CompareResourceVersion(known.version, policies[i].ResourceVersion); err != nil || order < 0 {
			return false
		}
	}
	return true
}

// verify records that the state has the policies of the pods of a namespace that were
// admitted until the generation since.
func (s *state) verify(namespace string, since uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, a := range s.admitted {
		if name.Namespace == namespace && a.generation <= since && a.verified == 0 {
			a.verified = s.generation
			s.admitted[name] = a
		}
	}
}

// forget removes what admit has recorded of a pod that is not known.
func (s *state) forget(name types.NamespacedName, uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a, ok := s.admitted[name]; ok && a.uid == uid && s.pods[name.Namespace][name] == nil {
		delete(s.admitted, name)
	}
}

// owner returns the pod whose rights an address has. A pod may still say that
// an address is its own when another one has it already. The newest sandbox of
// this node wins, then a pod that is not deleted, then the one created last. The
// caller must hold the mutex.
func (s *state) owner(a netip.Addr) *pod {
	list := s.claims[a]
	if len(list) == 0 {
		return nil
	}
	return slices.MaxFunc(list, func(p, o *pod) int {
		return cmp.Or(cmp.Compare(p.rank(), o.rank()), order.FalseFirst(o.deleting, p.deleting), cmp.Compare(p.created, o.created), cmp.Compare(p.uid, o.uid))
	})
}

// rank orders the sandboxes of this node by their age, above what statuses say.
func (p *pod) rank() uint64 {
	if p.admission == nil {
		return 0
	}
	return p.admission.generation
}

// rules returns the Rules, and the generation of the state that they are of.
func (s *state) rules() (Rules, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := Rules{
		Pods: map[netip.Addr]Isolation{}, Owners: map[netip.Addr]types.UID{}, Policies: map[types.NamespacedName]*Policy{},
		Groups: map[Group]Addresses{}, Ports: map[NamedPort]PodPorts{},
	}
	isolated, used := s.isolations(&r)
	for _, a := range s.closed {
		if s.owner(a) == nil {
			r.Pods[a] = Isolation{Ingress: []types.NamespacedName{}, Egress: []types.NamespacedName{}}
		}
	}
	groups := map[Group]*group{}
	missing := map[NamedPort]map[netip.AddrPort]struct{}{}
	sizes := map[string]int{} // by namespace
	excess := map[*compiled]bool{}
	for _, c := range slices.SortedFunc(maps.Keys(used), byAge) {
		size := c.size + used[c]
		if sizes[c.name.Namespace]+size > mostOfNamespace {
			excess[c], r.TooLarge = true, append(r.TooLarge, c.name)
			continue
		}
		sizes[c.name.Namespace] += size
		r.Policies[c.name] = c.policy
		for _, rule := range slices.Concat(c.policy.Ingress, c.policy.Egress) {
			for _, g := range rule.Groups {
				if groups[g] == nil {
					groups[g] = s.members(g, c.groups[g])
					r.Groups[g] = groups[g].found
				}
			}
			for _, n := range rule.Named {
				if found, known := s.ports[n]; known {
					r.Ports[n] = found
				} else {
					missing[n] = map[netip.AddrPort]struct{}{}
				}
			}
		}
	}
	for i, addresses := range isolated {
		left := i.without(excess)
		for _, a := range addresses {
			r.Pods[a] = left
		}
	}
	s.findPorts(missing)
	for n, found := range missing {
		r.Ports[n] = persistent.Of(found)
	}
	s.groups, s.ports = groups, maps.Clone(r.Ports)
	return r, s.generation
}
