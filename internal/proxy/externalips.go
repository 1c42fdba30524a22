package proxy

import (
	"cmp"
	"net/netip"
	"reflect"
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

// claims decides which Service gets which external address.
type claims struct {
	clusterIPs map[netip.Addr]bool
	taken      map[frontend]types.NamespacedName
	// nodePorts has the Services with node ports; the address of its keys is not set.
	nodePorts map[frontend]types.NamespacedName
	// balancers has the namespaces of the Services with an address in status.loadBalancer.
	balancers map[netip.Addr][]string
	created   func(types.NamespacedName) metav1.Time
	node      *localNode
}

// arbitrate returns copies, without the lost addresses, of the ports that lose
// external addresses. An older Service wins over a younger one. Among Services of the
// same age, the order of names decides.
func arbitrate(services map[PortName]*ServicePort, created func(types.NamespacedName) metav1.Time, node *localNode) map[PortName]*ServicePort {
	var contenders []PortName
	for name, p := range services {
		if len(p.External)+len(p.LoadBalancer) > 0 {
			contenders = append(contenders, name)
		}
	}
	if len(contenders) == 0 {
		return nil
	}
	c := claims{
		clusterIPs: map[netip.Addr]bool{}, taken: map[frontend]types.NamespacedName{}, nodePorts: map[frontend]types.NamespacedName{},
		balancers: map[netip.Addr][]string{}, created: created, node: node,
	}
	for name, p := range services {
		c.clusterIPs[p.ClusterIP] = true
		c.addNodePort(name.NamespacedName, name.Protocol, p.NodePort)
		c.addNodePort(name.NamespacedName, v1.ProtocolTCP, p.HealthCheckNodePort)
		for _, a := range p.LoadBalancer {
			if !slices.Contains(c.balancers[a], name.Namespace) {
				c.balancers[a] = append(c.balancers[a], name.Namespace)
			}
		}
		if name.NamespacedName == apiServers {
			for _, endpoint := range p.Cluster {
				c.taken[frontend{endpoint, name.Protocol}] = apiServers
			}
		}
	}
	slices.SortFunc(contenders, func(a, b PortName) int {
		return cmp.Or(c.compareAge(a.NamespacedName, b.NamespacedName), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Family, b.Family))
	})
	losers := map[PortName]*ServicePort{}
	for _, name := range contenders {
		p := services[name]
		left := *p
		left.External = c.allow(name, p.Port, p.External, true)
		left.LoadBalancer = c.allow(name, p.Port, p.LoadBalancer, false)
		if len(left.External) < len(p.External) || len(left.LoadBalancer) < len(p.LoadBalancer) {
			losers[name] = &left
		}
	}
	return losers
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
		if c.clusterIPs[a] || byUser && c.ofBalancer(name.Namespace, a) || taken && owner != name.NamespacedName || c.node.ofOthers(a) || c.hasNodePort(name.NamespacedName, f) {
			continue
		}
		c.taken[f] = name.NamespacedName
		kept = append(kept, a)
	}
	return kept
}

// reuseUnchanged replaces ports in services by those that lost addresses. A
// port that equals the one in before keeps its pointer.
func reuseUnchanged(services, losers, before map[PortName]*ServicePort) {
	for name, p := range losers {
		if old := before[name]; old != nil && reflect.DeepEqual(old, p) {
			losers[name] = old
		}
		services[name] = losers[name]
	}
}
