package iptables

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/coracle-io/coracle/internal/proxy"
)

// The chains that several Services share, under kube-proxy's names. hostPorts has the
// name of the kubelet's when it made host ports.
const (
	services         = "KUBE-SERVICES"
	externalServices = "KUBE-EXTERNAL-SERVICES"
	nodePorts        = "KUBE-NODEPORTS"
	hostPorts        = "KUBE-HOSTPORTS"
	postrouting      = "KUBE-POSTROUTING"
	markMasquerade   = "KUBE-MARK-MASQ"
	forward          = "KUBE-FORWARD"
	proxyFirewall    = "KUBE-PROXY-FIREWALL"
	firewall         = "KUBE-FIREWALL"
	canary           = "KUBE-PROXY-CANARY"
)

// The tables, in the order in which they are written.
const (
	mangle = "mangle"
	filter = "filter"
	nat    = "nat"
)

// jump is a rule of a built-in chain that leads to one of ours.
type jump struct {
	table, from, to string
	match           string // what the rule begins with
	comment         string
}

// jumps are those of kube-proxy. The last one of a chain comes first there.
func (s settings) jumps() []jump {
	const isNew = "-m conntrack --ctstate NEW "
	list := []jump{
		{filter, "INPUT", nodePorts, "", "kubernetes health check service ports"},
		{filter, "FORWARD", forward, "", "kubernetes forwarding rules"},
		{filter, "FORWARD", services, isNew, "kubernetes service portals"},
		{filter, "OUTPUT", services, isNew, "kubernetes service portals"},
		{filter, "INPUT", externalServices, isNew, "kubernetes externally-visible service portals"},
		{filter, "FORWARD", externalServices, isNew, "kubernetes externally-visible service portals"},
		{filter, "INPUT", proxyFirewall, isNew, "kubernetes load balancer firewall"},
		{filter, "FORWARD", proxyFirewall, isNew, "kubernetes load balancer firewall"},
		{filter, "OUTPUT", proxyFirewall, isNew, "kubernetes load balancer firewall"},
		{nat, "PREROUTING", services, "", "kubernetes service portals"},
		{nat, "OUTPUT", services, "", "kubernetes service portals"},
		{nat, "POSTROUTING", postrouting, "", "kubernetes postrouting rules"},
	}
	if s.loopback {
		list = append(list, guardAt("INPUT"), guardAt("OUTPUT"))
	}
	return list
}

// guardAt returns the jump to the chain that guards loopback addresses. Its comment tells
// it from the one of a kubelet, which has a chain with this name, too.
func guardAt(from string) jump { return jump{filter, from, firewall, "", "kubernetes loopback guard"} }

// rule returns the rule of the jump.
func (j jump) rule() string { return j.match + comment(j.comment) + "-j " + j.to }

// settings are what all rules of a family depend on.
type settings struct {
	is4  bool
	pods proxy.PodTraffic
	// mark is the bit of the packet mark for packets to masquerade.
	mark uint32
	// masqueradeAll masquerades all connections to cluster IPs.
	masqueradeAll bool
	// dropInvalid drops forwarded packets that belong to no connection.
	dropInvalid bool
	// loopback says that node ports answer at loopback addresses, too.
	loopback bool
	// owner marks the rules as ours.
	owner string
	// lacks is what the kernel does not have.
	lacks lacks
}

// settings returns the settings of a family for rules.
func (c Config) settings(is4 bool, rules proxy.Rules) settings {
	return settings{
		is4: is4, pods: c.Local.Of(is4, c.ClusterCIDRs, rules), mark: c.Mark, masqueradeAll: c.MasqueradeAll,
		dropInvalid: !c.Conntrack.TCPBeLiberal, loopback: is4 && answersLoopback(rules), owner: ownerPrefix + c.Owner,
	}
}

// answersLoopback reports whether node ports answer at loopback addresses of IPv4.
func answersLoopback(rules proxy.Rules) bool {
	return rules.LoopbackNodePorts && rules.NodePortRanges.Contains(netip.AddrFrom4([4]byte{127, 0, 0, 1}))
}

// ownerPrefix is in the comment of the rule by which a proxy finds its own rules again,
// before the name of its owner.
const ownerPrefix = "coracle:"

// chains maps the names of chains to rules, without the "-A CHAIN " before each.
type chains map[string][]string

// add adds a rule.
func (c chains) add(chain, rule string) { c[chain] = append(c[chain], rule) }

// shared returns the chains to which several parts add rules, by table, with the rules
// of the given parts in their order.
//
//	PREROUTING, OUTPUT ─► KUBE-SERVICES ─► KUBE-SVC-*, KUBE-SVL-* ─► KUBE-SEP-* ─► DNAT
//	                           │  └─► KUBE-FW-*, KUBE-EXT-* ─► KUBE-SVC-*, KUBE-SVL-*
//	                           ├─► KUBE-HOSTPORTS ─► KUBE-HP-* ─► DNAT
//	                           └─► KUBE-NODEPORTS ─► KUBE-EXT-*
//	POSTROUTING ─► KUBE-POSTROUTING masquerades what KUBE-MARK-MASQ has marked
//	INPUT, FORWARD, OUTPUT ─► reject or drop what has no endpoint
func (s settings) shared(parts []*part, ranges proxy.NodePortRanges) map[string]chains {
	n := chains{services: nil, nodePorts: nil, hostPorts: nil}
	f := chains{services: nil, externalServices: nil, nodePorts: nil, proxyFirewall: nil}
	var closed []string
	for _, p := range parts {
		for chain, rules := range p.nat {
			n[chain] = append(n[chain], rules...)
		}
		for chain, rules := range p.filter {
			f[chain] = append(f[chain], rules...)
		}
		closed = append(closed, p.closed...)
	}
	n[services] = append(n[services], s.toHostPorts())
	if closed != nil {
		f[externalServices] = append(f[externalServices], s.notLoopback(ranges)...)
	}
	for _, at := range s.atNodePorts(ranges) {
		for _, rule := range closed {
			f.add(externalServices, at+rule)
		}
	}
	n[services] = append(n[services], s.notLoopback(ranges)...)
	for _, at := range s.atNodePorts(ranges) {
		n.add(services, comment("kubernetes service nodeports; NOTE: this must be the last rule in this chain")+at+"-j "+nodePorts)
	}
	s.masquerade(n)
	s.guard(f)
	own := []string{strings.TrimSpace(comment(s.owner))}
	n[canary], f[canary] = own, own
	return map[string]chains{mangle: {canary: own}, filter: f, nat: n}
}

// masquerade adds the chains that mark and masquerade packets.
func (s settings) masquerade(n chains) {
	mark := fmt.Sprintf("%#x", s.mark)
	n[markMasquerade] = []string{"-j MARK --or-mark " + mark}
	n[postrouting] = []string{
		"-m mark ! --mark " + mark + "/" + mark + " -j RETURN",
		"-j MARK --xor-mark " + mark,
		comment("kubernetes service traffic requiring SNAT") + "-j MASQUERADE --random-fully",
	}
}

// guard adds the chains about packets of all connections.
func (s settings) guard(f chains) {
	f[forward] = nil
	if s.dropInvalid {
		f.add(forward, "-m conntrack --ctstate INVALID -j DROP")
	}
	mark := fmt.Sprintf("%#x", s.mark)
	f.add(forward, comment("kubernetes forwarding rules")+"-m mark --mark "+mark+"/"+mark+" -j ACCEPT")
	f.add(forward, comment("kubernetes forwarding conntrack rule")+"-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT")
	if s.loopback { // the kernel routes loopback addresses then, and others could reach what serves there
		f[firewall] = []string{"! -s 127.0.0.0/8 -d 127.0.0.0/8 " + comment("block incoming localnet connections") + "-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP"}
	}
}

// toHostPorts returns the rule that leads connections to host ports. Only connections to
// the node's own addresses get there, whatever hostIP a pod declares: any other address
// is somebody else's. The loopback address is one of them in IPv4 only: no kernel routes
// ::1 to another interface.
func (s settings) toHostPorts() string {
	except := ""
	if !s.is4 {
		except = "! -d ::1/128 "
	}
	return except + comment("kubernetes host ports") + "-m addrtype --dst-type LOCAL -j " + hostPorts
}

// notLoopback returns the rule that keeps connections to loopback addresses from node
// ports, if they do not answer there and the ranges have such addresses.
func (s settings) notLoopback(ranges proxy.NodePortRanges) []string {
	loopback := netip.MustParsePrefix("127.0.0.0/8")
	if !s.is4 {
		loopback = netip.MustParsePrefix("::1/128")
	}
	own := ranges.Of(s.is4)
	if s.loopback || own != nil && !slices.ContainsFunc(own, loopback.Overlaps) {
		return nil
	}
	return []string{"-d " + loopback.String() + " -j RETURN"}
}

// atNodePorts returns what matches the addresses at which node ports answer.
func (s settings) atNodePorts(ranges proxy.NodePortRanges) (list []string) {
	const local = "-m addrtype --dst-type LOCAL "
	own := ranges.Of(s.is4)
	if own == nil {
		return []string{local}
	}
	for _, p := range own {
		list = append(list, "-d "+p.String()+" "+local)
	}
	return list
}

// fromPods matches connections of pods, or all others. It is "" if they cannot be told.
func (s settings) fromPods(others bool) string {
	not := ""
	if others {
		not = "! "
	}
	switch {
	case s.pods.Range.IsValid():
		return not + "-s " + s.pods.Range.String() + " "
	case s.pods.IsPrefix:
		return not + "-i " + quote(s.pods.Interface+"+") + " "
	case s.pods.Interface != "":
		return not + "-i " + quote(s.pods.Interface) + " "
	}
	return ""
}
