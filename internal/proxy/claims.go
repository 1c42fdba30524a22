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

// Anybody who may write a Service may name any address in spec.externalIPs
// (CVE-2020-8554). Three kinds of addresses are not his to take:
//
//   - the cluster IP of a Service, at any port: it belongs to that Service;
//   - where the cluster itself serves: the endpoints of default/kubernetes, and
//     the reserved ports of a node's addresses;
//   - what an older Service has already.

// apiServers is the Service whose endpoints are the API servers.
var apiServers = types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}

// front is where connections come in.
type front struct {
	at       netip.AddrPort
	protocol v1.Protocol
}

// claims decides which Service has which external address.
type claims struct {
	clusterIPs map[netip.Addr]bool
	taken      map[front]types.NamespacedName
	nodes      map[netip.Addr]bool
	reserved   []int
}

// arbitrate returns the ports that lose external addresses, as they are
// without them. The older Service comes first, and among those of one age the
// one whose name sorts first.
func arbitrate(services map[PortName]*ServicePort, created func(types.NamespacedName) metav1.Time, nodes map[netip.Addr]bool, reserved []int) map[PortName]*ServicePort {
	var contenders []PortName
	for name, p := range services {
		if len(p.External)+len(p.LoadBalancer) > 0 {
			contenders = append(contenders, name)
		}
	}
	if len(contenders) == 0 {
		return nil
	}
	c := claims{clusterIPs: map[netip.Addr]bool{}, taken: map[front]types.NamespacedName{}, nodes: nodes, reserved: reserved}
	for name, p := range services {
		c.clusterIPs[p.ClusterIP] = true
		if name.NamespacedName == apiServers {
			for _, endpoint := range p.Cluster {
				c.taken[front{endpoint, name.Protocol}] = apiServers
			}
		}
	}
	slices.SortFunc(contenders, func(a, b PortName) int {
		ageA, ageB := created(a.NamespacedName), created(b.NamespacedName)
		return cmp.Or(ageA.Compare(ageB.Time), cmp.Compare(a.String(), b.String()), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Family, b.Family))
	})
	losers := map[PortName]*ServicePort{}
	for _, name := range contenders {
		p := services[name]
		left := *p
		left.External = c.keep(name, p.Port, p.External)
		left.LoadBalancer = c.keep(name, p.Port, p.LoadBalancer)
		if len(left.External) < len(p.External) || len(left.LoadBalancer) < len(p.LoadBalancer) {
			losers[name] = &left
		}
	}
	return losers
}

// keep takes for a Service those of the addresses that it may have.
func (c *claims) keep(name PortName, port uint16, addresses []netip.Addr) []netip.Addr {
	var kept []netip.Addr
	for _, a := range addresses {
		f := front{netip.AddrPortFrom(a, port), name.Protocol}
		owner, taken := c.taken[f]
		if c.clusterIPs[a] || taken && owner != name.NamespacedName || c.nodes[a] && slices.Contains(c.reserved, int(port)) {
			continue
		}
		c.taken[f] = name.NamespacedName
		kept = append(kept, a)
	}
	return kept
}

// settle replaces the ports that lose addresses. What is as it was before
// stays the same pointer.
func settle(services, losers, before map[PortName]*ServicePort) {
	for name, p := range losers {
		if old := before[name]; old != nil && reflect.DeepEqual(old, p) {
			losers[name] = old
		}
		services[name] = losers[name]
	}
}
