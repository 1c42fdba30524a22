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

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/nft"
	"github.com/coracle-io/coracle/internal/proxy"
)

// ruleset is a table of one family.
type ruleset struct {
	chains   map[string][]nft.Rule
	affinity map[string]time.Duration  // sets of client addresses
	elements map[string]map[key]target // by the name of a fixed map or set
}

// Chains implements nft.Ruleset.
func (r ruleset) Chains() map[string][]nft.Rule { return r.chains }

// Sets implements nft.Ruleset.
func (r ruleset) Sets(nft.Family) map[string][]nftables.SetElement {
	all := map[string][]nftables.SetElement{}
	for name, elements := range r.elements {
		all[name] = nil
		for k, t := range elements {
			all[name] = append(all[name], element(name, k, t))
		}
	}
	return all
}

// key is an element of a fixed map or set. source is set only in the set hairpin.
// address is not set for node ports, protocol and port are not in the set
// cluster-addresses.
type key struct {
	source   netip.Addr
	address  netip.Addr
	protocol v1.Protocol
	port     uint16
}

// target is the chain that an element leads to; it is empty in sets.
type target string

// The fixed maps and sets.
const (
	serviceIPs       = "service-ips"         // address . protocol . port : goto chain
	serviceNodePorts = "service-nodeports"   // protocol . port : goto chain
	clusterIPs       = "cluster-ips"         // address . protocol . port
	clusterAddresses = "cluster-addresses"   // address
	noEndpointIPs    = "no-endpoint-ips"     // address . protocol . port : goto chain
	noEndpointPorts  = "no-endpoint-ports"   // protocol . port : goto chain
	hairpin          = "hairpin-connections" // address . address . protocol . port
	hostPortIPs      = "hostport-ips"        // address . protocol . port : goto chain
	hostPorts        = "hostport-ports"      // protocol . port : goto chain
)

// newRuleset returns a table without chains and with empty sets, those that a delivery
// needs included.
func newRuleset(d Delivery) ruleset {
	r := emptyRuleset()
	fixed := []string{serviceIPs, serviceNodePorts, clusterIPs, clusterAddresses, noEndpointIPs, noEndpointPorts, hairpin, hostPortIPs, hostPorts}
	for _, name := range slices.Concat(fixed, d.sets()) {
		r.elements[name] = map[key]target{}
	}
	return r
}

// emptyRuleset returns a part of a table with nothing in it.
func emptyRuleset() ruleset {
	return ruleset{chains: map[string][]nft.Rule{}, affinity: map[string]time.Duration{}, elements: map[string]map[key]target{}}
}

// put adds an element. If a part of the table puts an element twice, or two Services
// have one address and port, the same target wins each time, so that the rules do not
// flap.
func (r ruleset) put(set string, k key, t target) {
	if r.elements[set] == nil {
		r.elements[set] = map[key]target{}
	}
	if other, taken := r.elements[set][k]; !taken || t < other {
		r.elements[set][k] = t
	}
}

// settings are what all rules of a family depend on.
type settings struct {
	family nft.Family
	// pods recognizes the connections of this cluster's pods.
	pods proxy.PodTraffic
	// mark is the bit of the packet mark for packets to masquerade.
	mark uint32
	// masqueradeAll masquerades all connections to cluster IPs.
	masqueradeAll bool
	// delivery says who chooses endpoints.
	delivery Delivery
}

// part is a part of a table that is being made.
type part struct {
	settings
	ruleset
}

func (s settings) newPart() part { return part{s, emptyRuleset()} }

// frame returns the part that does not depend on Services.
func (s settings) frame(rules proxy.Rules) ruleset {
	r := s.newPart()
	r.fixed(s.family, rules.NodePortRanges)
	r.unserved(s.family, rules.ServiceCIDRs)
	return r.ruleset
}

// service returns the part for a port of a Service.
func (s settings) service(name proxy.PortName, p *proxy.ServicePort) ruleset {
	r := s.newPart()
	r.servicePort(s.family, name, p)
	return r.ruleset
}

// hostPort returns the part for a host port.
func (s settings) hostPort(k proxy.LocalPort, pod netip.AddrPort) ruleset {
	r := s.newPart()
	r.toPod(s.family, k, pod)
	return r.ruleset
}

// fixed adds the chains that do not depend on Services:
//
//	prerouting, output ─► services ─► service's chain ─► dnat
//	postrouting ─► masquerade what is marked or returns to its sender
//	input, forward, output ─► reject or drop what has no endpoint
func (r part) fixed(f nft.Family, nodePorts proxy.NodePortRanges) {
	r.chains["nat-prerouting"] = []nft.Rule{{nft.Jump("services")}}
	r.chains["nat-output"] = []nft.Rule{{nft.Jump("services")}}
	r.chains["nat-postrouting"] = []nft.Rule{
		{isMarked(r.mark), clearMark(r.mark), masquerade()},
		{hairpinIn(f, hairpin), masquerade()},
	}
	services := []nft.Rule{}
	switch {
	case r.masqueradeAll:
		services = append(services, nft.Rule{f.DestAddrPortIn(clusterIPs), setMark(r.mark)})
	case r.pods != proxy.PodTraffic{}:
		services = append(services, nft.Rule{fromPods(f, r.pods, expr.CmpOpNeq), f.DestAddrPortIn(clusterIPs), setMark(r.mark)})
	case r.delivery.IPVS: // the node itself takes the address of a Service to connect to it
		services = append(services, nft.Rule{f.SourceAddrIn(clusterAddresses), f.DestAddrPortIn(clusterIPs), setMark(r.mark)})
	}
	services = append(services, nft.Rule{destinationVmap(f, serviceIPs)})
	services = append(services, r.delivery.unbalanced(f)...)
	services = append(services, toNodePort(f, notLoopback(f), nodePorts, serviceNodePorts)...)
	r.chains["services"] = append(services,
		toHostPort(f, destinationVmap(f, hostPortIPs)),
		toHostPort(f, portVmap(f, hostPorts)),
	)
	for _, hook := range []string{"filter-input", "filter-forward", "filter-output"} {
		r.chains[hook] = append([]nft.Rule{{newConnection(), destinationVmap(f, noEndpointIPs)}},
			toNodePort(f, newConnection(), nodePorts, noEndpointPorts)...)
	}
	r.guard(f)
	r.chains["reject"] = []nft.Rule{{isTCP(), reset()}, {reject()}}
	r.chains["drop"] = []nft.Rule{{nft.Drop()}}
}

// toNodePort returns the rules that lead connections to node ports by a map, at the
// node's addresses in the given ranges. They begin with the statement only.
func toNodePort(f nft.Family, only nft.Statement, at proxy.NodePortRanges, vmap string) []nft.Rule {
	own := at.Of(f.Size == 4)
	if own == nil {
		return []nft.Rule{{only, fibLocal(false), portVmap(f, vmap)}}
	}
	var rules []nft.Rule
	for _, p := range own {
		rules = append(rules, nft.Rule{only, destinationPrefix(f, p), fibLocal(false), portVmap(f, vmap)})
	}
	return rules
}

// unserved adds the rules about cluster IPs that no Service port has translated:
// connections to other ports of a Service are rejected, those to addresses that no
// Service has are dropped. They would leave the node by its default route.
func (r part) unserved(f nft.Family, serviceCIDRs []netip.Prefix) {
	for _, hook := range []string{"filter-forward", "filter-output"} {
		r.chains[hook] = append(r.chains[hook], nft.Rule{newConnection(), f.DestAddrIn(clusterAddresses), nft.GoTo("reject")})
		for _, p := range serviceCIDRs {
			if p.Addr().BitLen() == int(f.Size)*8 {
				r.chains[hook] = append(r.chains[hook], nft.Rule{newConnection(), destinationPrefix(f, p), nft.Drop()})
			}
		}
	}
}

// servicePort adds the chains and elements of a port of a Service.
func (r part) servicePort(f nft.Family, name proxy.PortName, p *proxy.ServicePort) {
	id := identity(name)
	r.endpoints(f, "svc-"+id, name, false, p.Affinity, p.Cluster)
	if p.InternalLocal || p.ExternalLocal {
		r.endpoints(f, "local-"+id, name, true, p.Affinity, p.Local)
	}

	internal, internalEndpoints := "svc-"+id, p.Cluster
	if p.InternalLocal {
		internal, internalEndpoints = "local-"+id, p.Local
	}
	at := func(a netip.Addr) key { return key{address: a, protocol: name.Protocol, port: p.Port} }
	r.put(clusterIPs, at(p.ClusterIP), "")
	r.put(clusterAddresses, key{address: p.ClusterIP}, "")
	r.frontend(serviceIPs, noEndpointIPs, at(p.ClusterIP), internal, internalEndpoints, p.Cluster)

	if len(p.External)+len(p.LoadBalancer) == 0 && p.NodePort == 0 {
		return
	}
	r.outside(slices.Concat(p.External, p.LoadBalancer)...)
	// With endpoints on other nodes this is a chain that drops, not one that
	// rejects.
	external, externalEndpoints := r.external(f, id, p), p.Cluster
	for _, a := range p.External {
		r.frontend(serviceIPs, noEndpointIPs, at(a), external, externalEndpoints, p.Cluster)
	}
	balancer := external
	if len(externalEndpoints) > 0 && len(p.LoadBalancer) > 0 && len(p.SourceRanges) > 0 {
		balancer = "fw-" + id
		for _, allowed := range p.SourceRanges {
			r.chains[balancer] = append(r.chains[balancer], nft.Rule{sourcePrefix(f, allowed, expr.CmpOpEq), nft.GoTo(external)})
		}
		r.chains[balancer] = append(r.chains[balancer], nft.Rule{nft.Drop()})
	}
	for _, a := range p.LoadBalancer {
		r.frontend(serviceIPs, noEndpointIPs, at(a), balancer, externalEndpoints, p.Cluster)
	}
	if p.NodePort != 0 {
		r.frontend(serviceNodePorts, noEndpointPorts, key{protocol: name.Protocol, port: p.NodePort}, external, externalEndpoints, p.Cluster)
	}
}

// external adds the chain for connections from outside, if there are endpoints.
// With policy Local the client's address is kept. Pods and the node itself may
// use all endpoints, as with a cluster IP.
func (r part) external(f nft.Family, id string, p *proxy.ServicePort) string {
	chain := "ext-" + id
	if len(p.Cluster) == 0 {
		return chain
	}
	if !p.ExternalLocal {
		r.chains[chain] = []nft.Rule{{setMark(r.mark)}, {nft.GoTo("svc-" + id)}}
		return chain
	}
	if (r.pods != proxy.PodTraffic{}) {
		r.chains[chain] = append(r.chains[chain], nft.Rule{fromPods(f, r.pods, expr.CmpOpEq), nft.GoTo("svc-" + id)})
	}
	r.chains[chain] = append(r.chains[chain],
		nft.Rule{fibLocal(true), setMark(r.mark)}, nft.Rule{fibLocal(true), nft.GoTo("svc-" + id)})
	if len(p.Local) == 0 {
		r.chains[chain] = append(r.chains[chain], nft.Rule{nft.Drop()})
	} else {
		r.chains[chain] = append(r.chains[chain], nft.Rule{nft.GoTo("local-" + id)})
	}
	return chain
}

// frontend maps an address to a chain. If there are no endpoints, it maps it to
// a rejection, or to a drop if the policy excludes the existing ones.
func (r part) frontend(frontends, none string, k key, chain string, endpoints, all []netip.AddrPort) {
	switch {
	case len(endpoints) > 0:
		r.put(frontends, k, target(chain))
		if r.delivery.IPVS && k.address.IsValid() {
			r.put(balancedIPs, k, "")
		}
	case len(all) > 0:
		r.put(none, k, "drop")
	default:
		r.put(none, k, "reject")
	}
}

// endpoints adds the chain that selects one of the endpoints, if there are any. local
// says that they are those of this node.
func (r part) endpoints(f nft.Family, chain string, name proxy.PortName, local bool, affinity time.Duration, list []netip.AddrPort) {
	if len(list) == 0 {
		return
	}
	for _, e := range list {
		r.put(hairpin, key{source: e.Addr(), address: e.Addr(), protocol: name.Protocol, port: e.Port()}, "")
	}
	if r.leave(chain, name, local) {
		return
	}
	if affinity == 0 {
		r.chains[chain] = balance(f, list)
		return
	}
	var chains []string
	id, inNames := identity(name), strings.NewReplacer(":", "-", ".", "-", "[", "", "]", "")
	for _, e := range list {
		endpoint := id + "-" + inNames.Replace(e.String())
		own, set := "ep-"+endpoint, "aff-"+endpoint
		r.affinity[set] = affinity
		r.chains[own] = []nft.Rule{{remember(f, set, affinity)}, {dnatTo(f, e)}}
		r.chains[chain] = append(r.chains[chain], nft.Rule{f.SourceAddrIn(set), nft.GoTo(own)})
		chains = append(chains, own)
	}
	r.chains[chain] = append(r.chains[chain], balanceChains(chains)...)
}

// toHostPort returns the rule that leads connections to host ports, by a map. Only
// connections to the node's own addresses get there, whatever hostIP a pod
// declares: any other address is somebody else's. The loopback address is one of
// them in IPv4 only: no kernel routes ::1 to another interface.
func toHostPort(f nft.Family, vmap nft.Statement) nft.Rule {
	if f.Size == 4 {
		return nft.Rule{fibLocal(false), vmap}
	}
	return nft.Rule{notLoopback(f), fibLocal(false), vmap}
}

// toPod adds the chain and elements of a host port.
func (r part) toPod(f nft.Family, k proxy.LocalPort, pod netip.AddrPort) {
	chain := fmt.Sprintf("hp-%s-%d", strings.ToLower(string(k.Protocol)), k.Port)
	if k.Address.IsValid() {
		chain += "-" + strings.NewReplacer(":", "-", ".", "-").Replace(k.Address.String())
		r.put(hostPortIPs, key{address: k.Address, protocol: k.Protocol, port: k.Port}, target(chain))
	} else {
		r.put(hostPorts, key{protocol: k.Protocol, port: k.Port}, target(chain))
	}
	if f.Size == 4 {
		// The pod cannot answer a loopback address.
		r.chains[chain] = []nft.Rule{{sourcePrefix(f, loopback4, expr.CmpOpEq), setMark(r.mark)}}
	}
	r.chains[chain] = append(r.chains[chain], nft.Rule{dnatTo(f, pod)})
	r.put(hairpin, key{source: pod.Addr(), address: pod.Addr(), protocol: k.Protocol, port: pod.Port()}, "")
}

// identity returns a short unique name for a Service port.
func identity(name proxy.PortName) string {
	sum := sha256.Sum256([]byte(name.String() + "/" + name.Port + "/" + string(name.Protocol)))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:10]))
}

// String returns the table as text, in a fixed order.
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
			if k.protocol != "" {
				line += fmt.Sprintf(" %s %d", strings.ToLower(string(k.protocol)), k.port)
			}
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
