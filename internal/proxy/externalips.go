package proxy

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Any user who can write a Service can name any address in spec.externalIPs
// (CVE-2020-8554). The proxy does not give a Service these addresses:
//
//   - the cluster IP of a Service, at any port;
//   - the endpoints of default/kubernetes;
//   - the addresses of pods, and of other nodes, whose proxies know what serves
//     there;
//   - this node's addresses with a node port of another Service, or with a port that
//     anything else on the node has (ports.go);
//   - the addresses of load balancers in other namespaces, at any port, except those of
//     this node: the nodes may announce them;
//   - addresses and ports of an older Service.

// apiServers is the Service whose endpoints are the API servers.
var apiServers = types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}

// frontend is an address at which connections arrive.
type frontend struct {
	at       netip.AddrPort
	protocol v1.Protocol
}

// frontends are the ports of all Services, with the last decision about who gets which
// external address. That depends on few of them, so that it is taken again only if one of
// those has changed, or the node.
type frontends struct {
	ports map[PortName]*ServicePort // as their objects say
	// outside are those of them that are reached from outside the cluster, api those of
	// apiServers.
	outside, api map[PortName]*ServicePort
	clusterIPs   map[netip.Addr]int // how many ports have an address
	wanted       map[netip.Addr]int // how many want it as an external address
	// stale says that the decision may be another one by now.
	stale bool
	node  *localNode // for which it was taken; nil before the first one
	kept  map[PortName]kept
}

// kept are the external addresses that a port keeps which loses others.
type kept struct{ external, loadBalancer []netip.Addr }

func newFrontends() *frontends {
	return &frontends{
		ports: map[PortName]*ServicePort{}, outside: map[PortName]*ServicePort{}, api: map[PortName]*ServicePort{},
		clusterIPs: map[netip.Addr]int{}, wanted: map[netip.Addr]int{},
	}
}

// set replaces a port; nil removes it.
func (f *frontends) set(name PortName, p *ServicePort) {
	before := f.ports[name]
	if before == p {
		return
	}
	decides := f.decides(name, before)
	f.count(name, before, -1)
	if f.count(name, p, 1); p != nil {
		f.ports[name] = p
	} else {
		delete(f.ports, name)
	}
	if decides || f.decides(name, p) {
		f.stale = f.stale || name.NamespacedName == apiServers || !sameFrontends(before, p)
	}
}

// decides reports whether external addresses may depend on a port; nil is none.
func (f *frontends) decides(name PortName, p *ServicePort) bool {
	return p != nil && (f.outside[name] != nil || f.wanted[p.ClusterIP] > 0 || name.NamespacedName == apiServers)
}

// sameFrontends reports whether two values of a port differ by their endpoints alone.
func sameFrontends(a, b *ServicePort) bool {
	return a != nil && b != nil && a.ClusterIP == b.ClusterIP && a.Port == b.Port && a.NodePort == b.NodePort && a.HealthCheckNodePort == b.HealthCheckNodePort &&
		slices.Equal(a.External, b.External) && slices.Equal(a.LoadBalancer, b.LoadBalancer)
}

// count adds a port to what f counts n times, 1 or -1; nil is none.
func (f *frontends) count(name PortName, p *ServicePort, n int) {
	if p == nil {
		return
	}
	add := func(to map[netip.Addr]int, a netip.Addr) {
		if to[a] += n; to[a] == 0 {
			delete(to, a)
		}
	}
	add(f.clusterIPs, p.ClusterIP)
	for _, a := range slices.Concat(p.External, p.LoadBalancer) {
		add(f.wanted, a)
	}
	for _, of := range []struct {
		ports map[PortName]*ServicePort
		has   bool
	}{{f.outside, hasFrontendsOutside(p)}, {f.api, name.NamespacedName == apiServers}} {
		if of.has && n > 0 {
			of.ports[name] = p
		} else {
			delete(of.ports, name)
		}
	}
}

// arbitrate decides which Service gets which external address. An older Service wins over
// a younger one. Among Services of the same age, the order of names decides. It returns
// the ports that lose addresses now, or did so before.
func (f *frontends) arbitrate(created func(types.NamespacedName) metav1.Time, node *localNode) []PortName {
	before := f.kept
	f.stale, f.node, f.kept = false, node, map[PortName]kept{}
	if len(f.wanted) > 0 {
		c := f.claims(created, node)
		for _, name := range f.contenders(c) {
			p := f.outside[name]
			k := kept{c.allow(name, p.Port, p.External, true), c.allow(name, p.Port, p.LoadBalancer, false)}
			if len(k.external) < len(p.External) || len(k.loadBalancer) < len(p.LoadBalancer) {
				f.kept[name] = k
			}
		}
	}
	return slices.AppendSeq(slices.Collect(maps.Keys(before)), maps.Keys(f.kept))
}

// contenders returns the ports that want external addresses, in the order in which they
// get them.
func (f *frontends) contenders(c *claims) (list []PortName) {
	for name, p := range f.outside {
		if len(p.External)+len(p.LoadBalancer) > 0 {
			list = append(list, name)
		}
	}
	slices.SortFunc(list, func(a, b PortName) int {
		return cmp.Or(c.compareAge(a.NamespacedName, b.NamespacedName), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Family, b.Family))
	})
	return list
}

// claims returns what is taken before anybody gets an external address.
func (f *frontends) claims(created func(types.NamespacedName) metav1.Time, node *localNode) *claims {
	c := &claims{
		clusterIPs: f.clusterIPs, taken: map[frontend]types.NamespacedName{}, nodePorts: map[frontend]types.NamespacedName{},
		balancers: map[netip.Addr][]string{}, created: created, node: node,
	}
	for name, p := range f.outside {
		c.addNodePort(name.NamespacedName, name.Protocol, p.NodePort)
		c.addNodePort(name.NamespacedName, v1.ProtocolTCP, p.HealthCheckNodePort)
		for _, a := range p.LoadBalancer {
			if !slices.Contains(c.balancers[a], name.Namespace) {
				c.balancers[a] = append(c.balancers[a], name.Namespace)
			}
		}
	}
	for name, p := range f.api {
		for _, endpoint := range p.Cluster {
			c.taken[frontend{endpoint, name.Protocol}] = apiServers
		}
	}
	return c
}

// allowed returns a port without the addresses that it loses, or nil if it is not there.
func (f *frontends) allowed(name PortName) *ServicePort {
	p := f.ports[name]
	k, loses := f.kept[name]
	if p == nil || !loses {
		return p
	}
	left := *p
	left.External, left.LoadBalancer = k.external, k.loadBalancer
	return &left
}

// claims decides which Service gets which external address.
type claims struct {
	clusterIPs map[netip.Addr]int // how many ports have one
	taken      map[frontend]types.NamespacedName
	// nodePorts has the Services with node ports; the address of its keys is not set.
	nodePorts map[frontend]types.NamespacedName
	// balancers has the namespaces of the Services with an address in status.loadBalancer.
	balancers map[netip.Addr][]string
	created   func(types.NamespacedName) metav1.Time
	node      *localNode
}

// compareAge compares Services by age, the oldest first, as the controller
// service-lb-controller does.
func (c *claims) compareAge(a, b types.NamespacedName) int {
	ageA, ageB := c.created(a), c.created(b)
	return cmp.Or(ageA.Compare(ageB.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// addNodePort records a node port of a Service; 0 is none.
func (c *claims) addNodePort(name types.NamespacedName, protocol v1.Protocol, port uint16) {
	f := frontend{netip.AddrPortFrom(netip.Addr{}, port), protocol}
	if owner, taken := c.nodePorts[f]; port != 0 && (!taken || c.compareAge(name, owner) < 0) {
		c.nodePorts[f] = name
	}
}

// hasNodePort reports whether an address and port of this node belong to another
// Service, by its node port. Its age does not matter: the range of node ports is
// theirs, so that nobody can lie in wait there for the next one.
func (c *claims) hasNodePort(name types.NamespacedName, f frontend) bool {
	owner, taken := c.nodePorts[frontend{netip.AddrPortFrom(netip.Addr{}, f.at.Port()), f.protocol}]
	return taken && c.node.isLocal(f.at.Addr()) && owner != name
}

// ofBalancer reports whether an address is that of load balancers in other namespaces
// alone, and not this node's, whose ports are free for all.
func (c *claims) ofBalancer(namespace string, a netip.Addr) bool {
	owners := c.balancers[a]
	return len(owners) > 0 && !slices.Contains(owners, namespace) && !c.node.isLocal(a)
}

// allow assigns a Service the given addresses, except those that it may not have,
// and returns the assigned ones. Those that a user asks for are not taken from load
// balancers.
func (c *claims) allow(name PortName, port uint16, addresses []netip.Addr, byUser bool) []netip.Addr {
	var kept []netip.Addr
	for _, a := range addresses {
		f := frontend{netip.AddrPortFrom(a, port), name.Protocol}
		owner, taken := c.taken[f]
		if c.clusterIPs[a] > 0 || byUser && c.ofBalancer(name.Namespace, a) || taken && owner != name.NamespacedName || c.node.ofOthers(a) || c.hasNodePort(name.NamespacedName, f) {
			continue
		}
		c.taken[f] = name.NamespacedName
		kept = append(kept, a)
	}
	return kept
}
