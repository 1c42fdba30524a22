package servicelb

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/coracle-io/coracle/internal/addresspool"
	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/order"
)

// Annotations of Services that ask for addresses of pools. Their names are those of
// MetalLB, with another prefix.
const (
	// AddressesAnnotation is a list of addresses with commas between, at most one of
	// each family. It has precedence over spec.loadBalancerIP.
	AddressesAnnotation = "coracle.io/loadBalancerIPs"
	// PoolAnnotation is the name of a pool.
	PoolAnnotation = "coracle.io/address-pool"
	// SharingAnnotation is a key. Services of a namespace with the same key may have one
	// address, if no port is that of both, and traffic that may go to any node may do so
	// for both of them, or both have the same pods.
	SharingAnnotation = "coracle.io/allow-shared-ip"
)

// NodesAnnotation has the UID of a Service that keeps the addresses of nodes though a
// pool is for it, also while no node serves it. A copy of the Service has another UID.
const NodesAnnotation = "coracle.io/servicelb-nodes"

// pooled reports whether a Service gets its addresses from pools: it asks for that, has
// one of a pool that is for it, or there is a pool that needs no asking. Otherwise it
// gets those of nodes, as without pools. One that has addresses of nodes, which clients
// know, keeps them until it asks for others, though a pool might give it some: kept. What
// is in a pool was not given as an address of a node.
func pooled(s *v1.Service, held []netip.Addr, pools addresspool.Pools, others map[netip.Addr]string) (yes, kept bool) {
	if len(pools) == 0 {
		return false, false
	}
	if asks(s, pools) {
		return true, false
	}
	offered := slices.ContainsFunc(pools, func(p addresspool.Pool) bool { return p.AutoAssign && p.Admits(s.Namespace) })
	if isMarked(s) || slices.ContainsFunc(held, func(a netip.Addr) bool { return others[a] == ofNode && pools.Of(a) == nil }) {
		return false, offered
	}
	has := slices.ContainsFunc(held, func(a netip.Addr) bool {
		pool := pools.Of(a)
		return pool != nil && pool.Admits(s.Namespace)
	})
	return offered || has, false
}

// asks reports whether a Service asks for addresses of pools. spec.loadBalancerIP does
// if it is in one: without pools, it means nothing.
func asks(s *v1.Service, pools addresspool.Pools) bool {
	if s.Annotations[AddressesAnnotation] != "" || s.Annotations[PoolAnnotation] != "" {
		return true
	}
	a, err := netip.ParseAddr(s.Spec.LoadBalancerIP)
	return err == nil && pools.Of(a) != nil
}

// isMarked reports whether NodesAnnotation says that a Service keeps the addresses of
// nodes.
func isMarked(s *v1.Service) bool {
	return s.UID != "" && s.Annotations[NodesAnnotation] == string(s.UID)
}

// allocate decides which addresses of pools each Service gets: those that it has, if
// it may keep them, then those that it asks for, and then the lowest free ones. An
// older Service has precedence over a younger one. Others are the addresses that are
// not for these Services, with the reason.
//
// An address that a Service is to lose stays taken, so that no other one gets it
// before the API server has the loss.
func allocate(services []service, pools addresspool.Pools, others map[netip.Addr]string) map[controller.Key]assignment {
	services = slices.Clone(services)
	slices.SortFunc(services, func(a, b service) int { return order.ByAge(a.Service, b.Service) })
	al := &allocator{
		pools: pools, others: others, holders: map[netip.Addr][]*v1.Service{}, keepers: map[netip.Addr][]*v1.Service{},
		shared: map[string][]netip.Addr{}, next: map[netip.Addr]netip.Addr{},
	}
	for _, s := range services {
		for _, a := range s.held {
			al.holders[a] = append(al.holders[a], s.Service)
			al.note(s.Service, a)
		}
	}
	al.inUse = len(al.holders)
	assignments := map[controller.Key]assignment{}
	for _, s := range services {
		assignments[controller.Key{Namespace: s.Namespace, Name: s.Name}] = al.assign(s)
	}
	return assignments
}

// allocator is the state of allocate.
type allocator struct {
	pools  addresspool.Pools
	others map[netip.Addr]string
	// holders are the Services that have an address now, and keepers those that are to
	// have it, the oldest first.
	holders, keepers map[netip.Addr][]*v1.Service
	// inUse is how many addresses have holders or keepers.
	inUse int
	// shared has the addresses of Services by their sharingKey.
	shared map[string][]netip.Addr
	// next is the lowest address of a range that may be free, by the first one of the
	// range. In one allocate, no address becomes free.
	next map[netip.Addr]netip.Addr
}

// note records that a Service has an address, for those with the same sharing key.
func (al *allocator) note(s *v1.Service, a netip.Addr) {
	if key := sharingKey(s); key != "" && !slices.Contains(al.shared[key], a) {
		al.shared[key] = append(al.shared[key], a)
	}
}

// wish is what a Service asks for.
type wish struct {
	pool      *addresspool.Pool // nil: any
	addresses map[v1.IPFamily]netip.Addr
}

// fits reports whether a pool is one from which a Service of a namespace gets addresses
// that it does not name.
func (w wish) fits(pool *addresspool.Pool, namespace string) bool {
	return pool == w.pool || w.pool == nil && pool.AutoAssign && pool.Admits(namespace)
}

// wishOf returns what a Service asks for, or why that cannot be.
func (al *allocator) wishOf(s *v1.Service) (w wish, problem string) {
	if name := s.Annotations[PoolAnnotation]; name != "" {
		if w.pool = al.pools.Named(name); w.pool == nil {
			return w, fmt.Sprintf("there is no address pool %q, for which the annotation %s asks", name, PoolAnnotation)
		}
	}
	from, text := "the annotation "+AddressesAnnotation, s.Annotations[AddressesAnnotation]
	if text == "" {
		from, text = "spec.loadBalancerIP", s.Spec.LoadBalancerIP
	}
	if text == "" {
		return w, ""
	}
	w.addresses = map[v1.IPFamily]netip.Addr{}
	for one := range strings.SplitSeq(text, ",") {
		a, err := netip.ParseAddr(strings.TrimSpace(one))
		if err != nil {
			return w, fmt.Sprintf("%s: %q is not an IP address", from, one)
		}
		family := addresspool.FamilyOf(a)
		switch {
		case !slices.Contains(s.Spec.IPFamilies, family):
			return w, fmt.Sprintf("%s: %s is not of a family in spec.ipFamilies", from, a)
		case w.addresses[family].IsValid():
			return w, fmt.Sprintf("%s: %s and %s are of one family", from, w.addresses[family], a)
		}
		w.addresses[family] = a
	}
	return w, ""
}

// assign decides for one Service, after all older ones.
func (al *allocator) assign(s service) assignment {
	out := assignment{pooled: true}
	w, problem := al.wishOf(s.Service)
	if problem != "" {
		out.problem = problem
		out.released = al.released(s, w, nil)
		return out
	}
	for _, family := range s.Spec.IPFamilies {
		a, problem := al.choose(s, w, family)
		if problem == "" {
			if al.isFree(a) {
				al.inUse++
			}
			out.addresses = append(out.addresses, a)
			al.keepers[a] = append(al.keepers[a], s.Service)
			al.note(s.Service, a)
			continue
		}
		out.problem = cmp.Or(out.problem, problem)
	}
	if len(out.addresses) > 0 && s.Spec.IPFamilyPolicy != nil && *s.Spec.IPFamilyPolicy == v1.IPFamilyPolicyPreferDualStack {
		out.problem = "" // one family is enough
	}
	out.released = al.released(s, w, out.addresses)
	return out
}

// choose returns the address of a family for a Service, or why it gets none.
func (al *allocator) choose(s service, w wish, family v1.IPFamily) (netip.Addr, string) {
	for _, a := range s.held {
		if addresspool.FamilyOf(a) == family && al.refusal(s.Service, w, a) == "" && al.conflict(s.Service, al.keepers[a]) == nil {
			return a, ""
		}
	}
	if a, asked := w.addresses[family]; asked {
		return a, cmp.Or(al.refusal(s.Service, w, a), al.takenBy(s.Service, a), al.bound(a))
	}
	for _, a := range al.shared[sharingKey(s.Service)] {
		pool := al.pools.Of(a)
		if addresspool.FamilyOf(a) == family && pool != nil && w.fits(pool, s.Namespace) && al.refusal(s.Service, w, a) == "" && al.takenBy(s.Service, a) == "" {
			return a, ""
		}
	}
	var names []string
	for i := range al.pools {
		pool := &al.pools[i]
		if w.fits(pool, s.Namespace) {
			if a := al.lowest(pool, family); a.IsValid() {
				return a, cmp.Or(al.refusal(s.Service, w, a), al.bound(a))
			}
			names = append(names, pool.Name)
		}
	}
	if len(names) == 0 {
		return netip.Addr{}, "no address pool is for this Service"
	}
	return netip.Addr{}, fmt.Sprintf("no %s address is free in the pools %s", family, strings.Join(names, ", "))
}

// refusal returns why a Service may not have an address, whoever else has it; "" if
// it may. A pool without AutoAssign leaves Services what they have of it.
func (al *allocator) refusal(s *v1.Service, w wish, a netip.Addr) string {
	pool, asked := al.pools.Of(a), w.addresses[addresspool.FamilyOf(a)]
	switch {
	case asked.IsValid() && asked != a:
		return fmt.Sprintf("%s is not %s, for which the Service asks", a, asked)
	case pool == nil:
		return fmt.Sprintf("%s is in no address pool", a)
	case !pool.Admits(s.Namespace):
		return fmt.Sprintf("%s is in the address pool %s, which is not for namespace %s", a, pool.Name, s.Namespace)
	case w.pool != nil && pool.Name != w.pool.Name:
		return fmt.Sprintf("%s is in the address pool %s, and the Service asks for %s", a, pool.Name, w.pool.Name)
	case al.others[a] != "":
		return fmt.Sprintf("%s is %s", a, al.others[a])
	}
	return ""
}

// takenBy returns which other Service has an address and keeps this one from it; ""
// if none does.
func (al *allocator) takenBy(s *v1.Service, a netip.Addr) string {
	other := al.conflict(s, al.keepers[a])
	if other == nil {
		other = al.conflict(s, al.holders[a])
	}
	switch {
	case other == nil:
		return ""
	case other.Namespace == s.Namespace:
		return fmt.Sprintf("%s is that of Service %s", a, other.Name)
	}
	return fmt.Sprintf("%s is that of a Service in another namespace", a)
}

// conflict returns the first of the Services that does not share an address with
// another one, or nil.
func (al *allocator) conflict(s *v1.Service, with []*v1.Service) *v1.Service {
	for _, other := range with {
		if order.ByAge(s, other) != 0 && !share(s, other) {
			return other
		}
	}
	return nil
}

// share reports whether two Services may have one address: both ask for it, one node
// can serve both of them, and they are of one namespace. Otherwise who guesses the key
// of a stranger could answer at other ports of the stranger's address. Services with
// very many ports share nothing: to compare them takes long.
func share(a, b *v1.Service) bool {
	if key := sharingKey(a); key == "" || key != sharingKey(b) {
		return false
	}
	if len(a.Spec.Ports) > mostSharedPorts || len(b.Spec.Ports) > mostSharedPorts {
		return false
	}
	if of := ports(a); slices.ContainsFunc(ports(b), func(p port) bool { return slices.Contains(of, p) }) {
		return false
	}
	if !addresspool.IsLocal(a) && !addresspool.IsLocal(b) {
		return true
	}
	return len(a.Spec.Selector) > 0 && equality.Semantic.DeepEqual(a.Spec.Selector, b.Spec.Selector)
}

// sharingKey returns the key of a Service with its namespace, or "" if it has none.
func sharingKey(s *v1.Service) string {
	if key := s.Annotations[SharingAnnotation]; key != "" {
		return s.Namespace + "/" + key
	}
	return ""
}

// mostSharedPorts bounds the ports of a Service that shares an address.
const mostSharedPorts = 100

// isFree reports whether no Service has an address, or is to have it.
func (al *allocator) isFree(a netip.Addr) bool { return len(al.keepers[a])+len(al.holders[a]) == 0 }

// bound returns why an address cannot be one more in use; "" if it can. Who has one
// keeps it, so that nobody loses the announcement of an address by those of others.
func (al *allocator) bound(a netip.Addr) string {
	if !al.isFree(a) || al.inUse < addresspool.MostAddresses {
		return ""
	}
	return fmt.Sprintf("%d addresses are in use, and nodes announce no more", al.inUse)
}

// lowest returns the lowest free address of a pool in a family, of the first range
// that has one. It is not valid if there is none.
func (al *allocator) lowest(pool *addresspool.Pool, family v1.IPFamily) netip.Addr {
	for _, r := range pool.Ranges {
		if addresspool.FamilyOf(r.From) != family {
			continue
		}
		a, begun := al.next[r.From]
		if !begun {
			a = r.From
		}
		for r.Contains(a) && (pool.Avoids(a) || al.others[a] != "" || !al.isFree(a)) {
			a = a.Next()
		}
		al.next[r.From] = a
		if r.Contains(a) {
			return a
		}
	}
	return netip.Addr{}
}

// released returns why a Service loses addresses that it has, one line for each.
// Addresses of nodes, which it had without pools, go without a word.
func (al *allocator) released(s service, w wish, kept []netip.Addr) []string {
	var lines []string
	for _, a := range s.held {
		if slices.Contains(kept, a) || al.others[a] == ofNode && al.pools.Of(a) == nil {
			continue
		}
		line := al.refusal(s.Service, w, a)
		if line == "" {
			line = al.takenBy(s.Service, a)
		}
		lines = append(lines, cmp.Or(line, fmt.Sprintf("%s is not needed any more", a)))
	}
	return lines
}

// ofNode is the reason why no Service gets an address of a node from a pool.
const ofNode = "an address of a node"
