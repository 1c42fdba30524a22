package ipvs

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/proxy"
)

// frontend is where a virtual server gets connections.
type frontend struct {
	at       netip.AddrPort
	protocol v1.Protocol
}

func (f frontend) compare(o frontend) int {
	return cmp.Or(cmp.Compare(f.protocol, o.protocol), f.at.Compare(o.at))
}

// server is what a virtual server does with connections. A value with the same fields is
// the same for the kernel, except for the endpoints.
type server struct {
	scheduler string
	// sourcePort makes a scheduler that hashes the address of a client hash its port,
	// too.
	sourcePort bool
	// persistence is how long a client stays with its endpoint, in seconds; 0 turns that
	// off.
	persistence uint32
}

// virtual is a virtual server with its endpoints, in order.
type virtual struct {
	server
	endpoints []netip.AddrPort
}

// settings are what all virtual servers depend on.
type settings struct {
	scheduler string
	// node are the addresses of the node, without those of Services, in order.
	node []netip.Addr
	// nodePorts are the ranges in which node ports answer.
	nodePorts proxy.NodePortRanges
}

func (s settings) equal(o settings) bool {
	return s.scheduler == o.scheduler && slices.Equal(s.node, o.node) && slices.Equal(s.nodePorts, o.nodePorts)
}

// servers returns the virtual servers of a port of a Service. A virtual server does not
// know its client, so that one for connections from outside has the endpoints of this
// node if there are any, and otherwise all, which only pods and the node itself get:
// rules of nftables drop the packets of others.
func (s settings) servers(name proxy.PortName, p *proxy.ServicePort) map[frontend]virtual {
	all := map[frontend]virtual{}
	is := server{scheduler: s.scheduler, sourcePort: s.scheduler == maglev, persistence: uint32(p.Affinity / time.Second)}
	add := func(a netip.Addr, port uint16, endpoints []netip.AddrPort) {
		all[frontend{netip.AddrPortFrom(a, port), name.Protocol}] = virtual{is, endpoints}
	}
	internal, external := p.Cluster, p.Cluster
	if p.InternalLocal {
		internal = p.Local
	}
	if p.ExternalLocal && len(p.Local) > 0 {
		external = p.Local
	}
	for _, a := range slices.Concat(p.External, p.LoadBalancer) {
		add(a, p.Port, external)
	}
	if p.NodePort != 0 {
		for _, a := range s.node {
			if a.Is4() == p.ClusterIP.Is4() && hasNodePorts(a) && s.nodePorts.Contains(a) {
				add(a, p.NodePort, external)
			}
		}
	}
	add(p.ClusterIP, p.Port, internal)
	return all
}

// hasNodePorts reports whether an address is of a kind at which node ports can answer.
func hasNodePorts(a netip.Addr) bool {
	return !a.IsLoopback() && !a.IsLinkLocalUnicast() && !a.IsMulticast() && !a.IsUnspecified()
}

// maglev is the scheduler whose hash is to have the client's port, as in kube-proxy.
const maglev = "mh"

// addressesOf returns the addresses at which a port of a Service is reached, without those
// of the node.
func addressesOf(p *proxy.ServicePort) []netip.Addr {
	return slices.Concat([]netip.Addr{p.ClusterIP}, p.External, p.LoadBalancer)
}

// addresses returns the addresses of Services that the node is to have, in order: those
// at which there are virtual servers, without its own ones.
func (s settings) addresses(rules proxy.Rules) []netip.Addr {
	all := map[netip.Addr]bool{}
	for _, p := range rules.Services.All() {
		for _, a := range addressesOf(p) {
			all[a] = true
		}
	}
	for _, a := range s.node {
		delete(all, a)
	}
	return slices.SortedFunc(maps.Keys(all), netip.Addr.Compare)
}
