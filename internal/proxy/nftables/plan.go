package nftables

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/google/nftables/expr"
	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/proxy"
)

// ruleset is a whole table of one family.
type ruleset struct {
	chains   map[string][]rule
	affinity map[string]time.Duration  // sets of client addresses
	elements map[string]map[key]target // by the name of a fixed map or set
}

// key is an element of a fixed map or set. Sources is only used by hairpin,
// and a node port has no address.
type key struct {
	source   netip.Addr
	address  netip.Addr
	protocol v1.Protocol
	port     uint16
}

// target is the chain that an element goes to; sets have an empty one.
type target string

// The fixed maps and sets.
const (
	serviceIPs       = "service-ips"         // address . protocol . port : goto chain
	serviceNodePorts = "service-nodeports"   // protocol . port : goto chain
	clusterIPs       = "cluster-ips"         // address . protocol . port
	noEndpointIPs    = "no-endpoint-ips"     // address . protocol . port : goto chain
	noEndpointPorts  = "no-endpoint-ports"   // protocol . port : goto chain
	hairpin          = "hairpin-connections" // address . address . protocol . port
	hostPortIPs      = "hostport-ips"        // address . protocol . port : goto chain
	hostPorts        = "hostport-ports"      // protocol . port : goto chain
)

// plan is the table for the rules of one family. With no cluster CIDR, every
// connection to a cluster IP that is not local keeps its source address.
func plan(rules proxy.Rules, f family, clusterCIDR netip.Prefix) ruleset {
	r := ruleset{chains: map[string][]rule{}, affinity: map[string]time.Duration{}, elements: map[string]map[key]target{}}
	for _, name := range []string{serviceIPs, serviceNodePorts, clusterIPs, noEndpointIPs, noEndpointPorts, hairpin, hostPortIPs, hostPorts} {
		r.elements[name] = map[key]target{}
	}
	r.fixed(f, clusterCIDR)
	wanted := v1.IPv4Protocol
	if f.size == 16 {
		wanted = v1.IPv6Protocol
	}
	for name, port := range rules.Services {
		if name.Family == wanted {
			r.service(f, clusterCIDR, name, port)
		}
	}
	for k, pod := range rules.HostPorts {
		if k.Family == wanted {
			r.hostPort(f, k, pod)
		}
	}
	return r
}

// fixed adds the chains that do not depend on the Services:
//
//	prerouting, output ─► services ─► service's chain ─► dnat
//	postrouting ─► masquerade what is marked or returns to its sender
//	input, forward, output ─► reject or drop what has no endpoint
func (r ruleset) fixed(f family, clusterCIDR netip.Prefix) {
	r.chains["nat-prerouting"] = []rule{{jump("services")}}
	r.chains["nat-output"] = []rule{{jump("services")}}
	r.chains["nat-postrouting"] = []rule{
		{isMarked(), clearMark(), masquerade()},
		{f.hairpinIn(hairpin), masquerade()},
	}
	services := []rule{}
	if clusterCIDR.IsValid() {
		services = append(services, rule{f.sourcePrefix(clusterCIDR, expr.CmpOpNeq), f.destinationIn(clusterIPs), setMark()})
	}
	r.chains["services"] = append(services,
		rule{f.destinationVmap(serviceIPs)},
		rule{f.destinationVmap(hostPortIPs)},
		rule{f.notLoopback(), fibLocal(false), f.portVmap(serviceNodePorts)},
		f.hostPortJump(),
	)
	for _, hook := range []string{"filter-input", "filter-forward", "filter-output"} {
		r.chains[hook] = []rule{
			{newConnection(), f.destinationVmap(noEndpointIPs)},
			{newConnection(), fibLocal(false), f.portVmap(noEndpointPorts)},
		}
	}
	r.chains["reject"] = []rule{{isTCP(), reset()}, {reject()}}
	r.chains["drop"] = []rule{{drop()}}
}

// service adds the chains and elements of one port of a Service.
func (r ruleset) service(f family, clusterCIDR netip.Prefix, name proxy.PortName, p *proxy.ServicePort) {
	id := identity(name)
	r.endpoints(f, "svc-"+id, id, name.Protocol, p.Affinity, p.Cluster)
	if p.InternalLocal || p.ExternalLocal {
		r.endpoints(f, "local-"+id, id, name.Protocol, p.Affinity, p.Local)
	}

	internal, internalEndpoints := "svc-"+id, p.Cluster
	if p.InternalLocal {
		internal, internalEndpoints = "local-"+id, p.Local
	}
	at := func(a netip.Addr) key { return key{address: a, protocol: name.Protocol, port: p.Port} }
	r.elements[clusterIPs][at(p.ClusterIP)] = ""
	r.front(serviceIPs, noEndpointIPs, at(p.ClusterIP), internal, internalEndpoints, p.Cluster)

	if len(p.External)+len(p.LoadBalancer) == 0 && p.NodePort == 0 {
		return
	}
	// Endpoints elsewhere make this a chain that drops, not one that rejects.
	external, externalEndpoints := r.external(f, clusterCIDR, id, p), p.Cluster
	for _, a := range p.External {
		r.front(serviceIPs, noEndpointIPs, at(a), external, externalEndpoints, p.Cluster)
	}
	balancer := external
	if len(externalEndpoints) > 0 && len(p.LoadBalancer) > 0 && len(p.SourceRanges) > 0 {
		balancer = "fw-" + id
		for _, allowed := range p.SourceRanges {
			r.chains[balancer] = append(r.chains[balancer], rule{f.sourcePrefix(allowed, expr.CmpOpEq), goTo(external)})
		}
		r.chains[balancer] = append(r.chains[balancer], rule{drop()})
	}
	for _, a := range p.LoadBalancer {
		r.front(serviceIPs, noEndpointIPs, at(a), balancer, externalEndpoints, p.Cluster)
	}
	if p.NodePort != 0 {
		r.front(serviceNodePorts, noEndpointPorts, key{protocol: name.Protocol, port: p.NodePort}, external, externalEndpoints, p.Cluster)
	}
}

// external adds the chain for connections from outside, if anybody can answer
// them. With policy Local the client's address is kept, except that pods and
// the node itself may use every endpoint as inside.
func (r ruleset) external(f family, clusterCIDR netip.Prefix, id string, p *proxy.ServicePort) string {
	chain := "ext-" + id
	if len(p.Cluster) == 0 {
		return chain
	}
	if !p.ExternalLocal {
		r.chains[chain] = []rule{{setMark()}, {goTo("svc-" + id)}}
		return chain
	}
	if clusterCIDR.IsValid() {
		r.chains[chain] = append(r.chains[chain], rule{f.sourcePrefix(clusterCIDR, expr.CmpOpEq), goTo("svc-" + id)})
	}
	r.chains[chain] = append(r.chains[chain],
		rule{fibLocal(true), setMark()}, rule{fibLocal(true), goTo("svc-" + id)})
	if len(p.Local) == 0 {
		r.chains[chain] = append(r.chains[chain], rule{drop()})
	} else {
		r.chains[chain] = append(r.chains[chain], rule{goTo("local-" + id)})
	}
	return chain
}

// front points one address at a chain, or, when nobody can answer, at a
// rejection; at a drop when endpoints exist that the policy forbids.
//
// Two Services may claim one external address and port; the same one wins
// every time, so that the rules do not flap.
func (r ruleset) front(fronts, none string, k key, chain string, endpoints, all []netip.AddrPort) {
	switch {
	case len(endpoints) > 0:
		if other, taken := r.elements[fronts][k]; !taken || target(chain) < other {
			r.elements[fronts][k] = target(chain)
		}
	case len(all) > 0:
		r.elements[none][k] = "drop"
	default:
		r.elements[none][k] = "reject"
	}
}

// endpoints adds the chain that chooses among endpoints, if there are any.
func (r ruleset) endpoints(f family, chain, id string, protocol v1.Protocol, affinity time.Duration, list []netip.AddrPort) {
	if len(list) == 0 {
		return
	}
	for _, e := range list {
		r.elements[hairpin][key{source: e.Addr(), address: e.Addr(), protocol: protocol, port: e.Port()}] = ""
	}
	if affinity == 0 {
		r.chains[chain] = f.balance(list)
		return
	}
	var chains []string
	for _, e := range list {
		name := strings.NewReplacer(":", "-", ".", "-", "[", "", "]", "").Replace("ep-" + id + "-" + e.String())
		set := "aff-" + strings.TrimPrefix(name, "ep-")
		r.affinity[set] = affinity
		r.chains[name] = []rule{{f.remember(set, affinity)}, {f.dnatTo(e)}}
		r.chains[chain] = append(r.chains[chain], rule{f.sourceIn(set), goTo(name)})
		chains = append(chains, name)
	}
	r.chains[chain] = append(r.chains[chain], balanceChains(chains)...)
}

// hostPortJump leads what is for any address of the node to its host ports.
// The loopback address is one of them in IPv4 only: no kernel routes ::1 to
// another interface.
func (f family) hostPortJump() rule {
	if f.size == 4 {
		return rule{fibLocal(false), f.portVmap(hostPorts)}
	}
	return rule{f.notLoopback(), fibLocal(false), f.portVmap(hostPorts)}
}

func (r ruleset) hostPort(f family, k proxy.HostPortKey, pod netip.AddrPort) {
	chain := fmt.Sprintf("hp-%s-%d", strings.ToLower(string(k.Protocol)), k.Port)
	if k.Address.IsValid() {
		chain += "-" + strings.NewReplacer(":", "-", ".", "-").Replace(k.Address.String())
		r.elements[hostPortIPs][key{address: k.Address, protocol: k.Protocol, port: k.Port}] = target(chain)
	} else {
		r.elements[hostPorts][key{protocol: k.Protocol, port: k.Port}] = target(chain)
	}
	if f.size == 4 {
		// The pod could not answer a loopback address.
		r.chains[chain] = []rule{{f.sourcePrefix(loopback4, expr.CmpOpEq), setMark()}}
	}
	r.chains[chain] = append(r.chains[chain], rule{f.dnatTo(pod)})
	r.elements[hairpin][key{source: pod.Addr(), address: pod.Addr(), protocol: k.Protocol, port: pod.Port()}] = ""
}

// identity is a short name for a Service port that differs from every other.
func identity(name proxy.PortName) string {
	sum := sha256.Sum256([]byte(name.String() + "/" + name.Port + "/" + string(name.Protocol)))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:10]))
}

// String is the table as text, in a fixed order.
func (r ruleset) String() string {
	var b strings.Builder
	for _, set := range slices.Sorted(maps.Keys(r.affinity)) {
		fmt.Fprintf(&b, "set %s timeout %s\n", set, r.affinity[set])
	}
	for _, name := range slices.Sorted(maps.Keys(r.elements)) {
		var lines []string
		for k, t := range r.elements[name] {
			line := "element " + name
			for _, a := range []netip.Addr{k.source, k.address} {
				if a.IsValid() {
					line += " " + a.String()
				}
			}
			line += fmt.Sprintf(" %s %d", strings.ToLower(string(k.protocol)), k.port)
			if t != "" {
				line += " : goto " + string(t)
			}
			lines = append(lines, line)
		}
		slices.Sort(lines)
		for _, line := range lines {
			fmt.Fprintln(&b, line)
		}
	}
	for _, chain := range slices.Sorted(maps.Keys(r.chains)) {
		fmt.Fprintf(&b, "chain %s\n", chain)
		for _, rule := range r.chains[chain] {
			fmt.Fprintf(&b, "\t%s\n", rule)
		}
	}
	return b.String()
}
