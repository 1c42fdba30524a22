package nftables

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/networkpolicy"
	"github.com/coracle-io/coracle/internal/nft"
	"github.com/coracle-io/coracle/internal/persistent"
)

// ruleset is a table of one family.
type ruleset struct {
	chains map[string][]nft.Rule
	sets   map[string]set
}

// Chains implements nft.Ruleset.
func (r ruleset) Chains() map[string][]nft.Rule { return r.chains }

// Sets implements nft.Ruleset.
func (r ruleset) Sets(f nft.Family) map[string][]nftables.SetElement {
	all := map[string][]nftables.SetElement{}
	for name, s := range r.sets {
		all[name] = s.elements(f, set{})
	}
	return all
}

// kind says what the elements of a set are.
type kind int

const (
	isolated  kind = iota // address : goto chain
	addresses             // address
	pairs                 // address . address
	ports                 // address . protocol . port
	blocks                // ranges of addresses; such a set does not change
	ranges                // ranges of ports of one protocol; such a set does not change
)

// set is a set or a map. Its elements are in one of the fields: isolated, ports,
// blocks or ranges for these kinds, members for addresses and pairs.
type set struct {
	kind     kind
	isolated map[netip.Addr]string
	members  networkpolicy.Addresses
	protocol v1.Protocol
	ports    networkpolicy.PodPorts
	blocks   []networkpolicy.Block
	ranges   []networkpolicy.Ports
}

// The fixed sets and the base chains.
const (
	egressPods  = "egress-pods"  // the pods that are isolated in that direction
	ingressPods = "ingress-pods" //
	ownAddress  = "own-address"  // pods that reach themselves

	egressChain  = "egress"
	ingressChain = "ingress"
	nodeChain    = "node"
	atOutput     = "-output" // ends the name of a base chain at the output hook
)

// plan returns the table for the rules of one family:
//
//	forward ─► egress  ─► chain of the source's policies      ─► policy ─► peers
//	        └► ingress ─► chain of the destination's policies ─► policy ─► peers
//	input   ─► node    ─► as egress, at the ports of Ingresses
//
// A packet passes if both base chains accept it. Pods with the same policies
// share a chain, and a pod's change is one element of a map.
func plan(rules networkpolicy.Rules, f nft.Family, c Config) ruleset {
	r := ruleset{chains: map[string][]nft.Rule{}, sets: map[string]set{}}
	r.base(f)
	if c.IPVS {
		r.baseAtOutput()
	}
	if len(rules.Pods) > 0 {
		if c.Bridge != "" {
			r.neighbours(f, c.Bridge)
		}
		if len(c.IngressPorts) > 0 {
			r.node(f, c.Bridge, c.IngressPorts)
		}
	}
	own := map[netip.Addr]struct{}{}
	egress, ingress := map[netip.Addr]string{}, map[netip.Addr]string{}
	for address, pod := range rules.Pods {
		if !of(f, address) {
			continue
		}
		own[address] = struct{}{}
		if pod.Egress != nil {
			egress[address] = r.isolate(egressChain, pod.Egress)
		}
		if pod.Ingress != nil {
			ingress[address] = r.isolate(ingressChain, pod.Ingress)
		}
	}
	r.sets[egressPods], r.sets[ingressPods] = set{kind: isolated, isolated: egress}, set{kind: isolated, isolated: ingress}
	r.sets[ownAddress] = set{kind: pairs, members: persistent.Of(own)}
	for _, pod := range rules.Pods {
		for _, name := range pod.Egress {
			r.policy(rules, f, policyChain(egressChain, name), rules.Policies[name].Egress, f.DestAddrIn)
		}
		for _, name := range pod.Ingress {
			r.policy(rules, f, policyChain(ingressChain, name), rules.Policies[name].Ingress, f.SourceAddrIn)
		}
	}
	return r
}

func of(f nft.Family, a netip.Addr) bool { return a.BitLen() == int(f.Size)*8 }

// base adds the base chains. Replies pass, because their connection was allowed;
// other packets are judged one by one, so that a change of policies ends
// connections that it forbids.
func (r ruleset) base(f nft.Family) {
	for _, c := range []struct {
		name string
		pods nft.Statement
	}{
		{egressChain, vmap(f, "saddr", f.Source, egressPods)},
		{ingressChain, vmap(f, "daddr", f.Dest, ingressPods)},
	} {
		rules := []nft.Rule{{isReply(), nft.Accept()}, {isRelated(), nft.Accept()}}
		if f.Size == 16 {
			// Pods of one bridge find each other's links by these.
			rules = append(rules, nft.Rule{isNeighbourDiscovery(), nft.Accept()})
		}
		r.chains[c.name] = append(rules, nft.Rule{ownAddressIn(f), nft.Accept()}, nft.Rule{c.pods})
	}
}

// baseAtOutput adds the base chains for what IPVS sends on, with the client's address and
// that of the endpoint. What the node itself sends passes.
func (r ruleset) baseAtOutput() {
	for _, name := range []string{egressChain, ingressChain} {
		r.chains[name+atOutput] = append([]nft.Rule{{isOfNode(), nft.Accept()}}, r.chains[name]...)
	}
}

// isOfNode matches packets from the node's own addresses.
func isOfNode() nft.Statement {
	return nft.Plain("fib saddr type local",
		&expr.Fib{Register: 1, FlagSADDR: true, ResultADDRTYPE: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binary.NativeEndian.AppendUint32(nil, unix.RTN_LOCAL)})
}

// neighbours drops what pods of one bridge exchange without the addresses that the
// sets have: broadcasts, multicasts, and by link-local addresses of IPv6, which
// pods of a cluster without IPv6 have, too.
func (r ruleset) neighbours(f nft.Family, bridge string) {
	rules := r.chains[egressChain]
	last := len(rules) - 1 // neighbour discovery comes before
	added := []nft.Rule{{between(bridge), toMany(), nft.Drop()}}
	if f.Size == 16 {
		added = append(added, nft.Rule{between(bridge), linkLocal(f, "saddr", f.Source), nft.Drop()}, nft.Rule{between(bridge), linkLocal(f, "daddr", f.Dest), nft.Drop()})
	}
	r.chains[egressChain] = slices.Insert(rules, last, added...)
}

// node judges what isolated pods send to the ports of their own node at which Ingresses
// are served: by these they would reach pods that their policies do not allow, and be
// taken for the node. The link-local addresses of pods are in no set.
func (r ruleset) node(f nft.Family, bridge string, ports []uint16) {
	rules := []nft.Rule{{isReply(), nft.Accept()}}
	for _, port := range ports {
		if f.Size == 16 && bridge != "" {
			rules = append(rules, nft.Rule{from(bridge), isProtocol(v1.ProtocolTCP), portWithin(port, port), linkLocal(f, "saddr", f.Source), nft.Drop()})
		}
		rules = append(rules, nft.Rule{isProtocol(v1.ProtocolTCP), portWithin(port, port), vmap(f, "saddr", f.Source, egressPods)})
	}
	r.chains[nodeChain] = rules
}

// isolate adds the chain of the pods that these policies isolate in a direction,
// and returns its name.
func (r ruleset) isolate(direction string, policies []types.NamespacedName) string {
	var names []string
	for _, p := range policies {
		names = append(names, p.String())
	}
	chain := direction + "-pods-" + digest(names...)
	if r.chains[chain] == nil {
		var rules []nft.Rule
		for _, p := range policies {
			rules = append(rules, nft.Rule{nft.Jump(policyChain(direction, p))})
		}
		r.chains[chain] = append(rules, nft.Rule{nft.Drop()})
	}
	return chain
}

func policyChain(direction string, name types.NamespacedName) string {
	return direction + "-policy-" + digest(name.String())
}

// policy adds the chain that accepts what a policy allows in one direction.
func (r ruleset) policy(rules networkpolicy.Rules, f nft.Family, chain string, list []networkpolicy.Rule, peerIn func(set string) nft.Statement) {
	if r.chains[chain] != nil {
		return // of another pod
	}
	r.chains[chain] = []nft.Rule{}
	for i, rule := range list {
		peers := r.peers(rules, f, rule, peerIn)
		if len(peers) == 0 {
			continue
		}
		at := r.ports(rules, f, rule)
		then := nft.Accept()
		switch {
		case rule.AnyPort:
			r.chains[chain] = append(r.chains[chain], peers...)
			continue
		case !rule.AnyPeer && len(at) > 0:
			inner := "peers-" + digest(chain, fmt.Sprint(i))
			r.chains[inner] = peers
			then = nft.Jump(inner)
		}
		for _, p := range at {
			r.chains[chain] = append(r.chains[chain], append(p, then))
		}
	}
}

// peers returns the rules that accept the peers of a rule. It adds their sets.
func (r ruleset) peers(rules networkpolicy.Rules, f nft.Family, rule networkpolicy.Rule, peerIn func(set string) nft.Statement) []nft.Rule {
	if rule.AnyPeer {
		return []nft.Rule{{nft.Accept()}}
	}
	var out []nft.Rule
	for _, g := range rule.Groups {
		name := "group-" + digest(g.Namespace, g.Namespaces, g.Pods)
		r.sets[name] = set{kind: addresses, members: rules.Groups[g]}
		out = append(out, nft.Rule{peerIn(name), nft.Accept()})
	}
	var own []networkpolicy.Block
	var texts []string
	for _, b := range rule.Blocks {
		if of(f, b.From) {
			own = append(own, b)
			texts = append(texts, b.From.String()+"-"+b.To.String())
		}
	}
	if len(own) > 0 {
		name := "blocks-" + digest(texts...)
		r.sets[name] = set{kind: blocks, blocks: own}
		out = append(out, nft.Rule{peerIn(name), nft.Accept()})
	}
	return out
}

// ports returns the beginnings of rules that match the ports of a rule: at most
// one for the numbers and one for the names of each protocol, so that long lists
// do not slow packets. It adds their sets.
func (r ruleset) ports(rules networkpolicy.Rules, f nft.Family, rule networkpolicy.Rule) []nft.Rule {
	numbers, named := map[v1.Protocol][]networkpolicy.Ports{}, map[v1.Protocol][]networkpolicy.NamedPort{}
	for _, p := range rule.Ports {
		numbers[p.Protocol] = append(numbers[p.Protocol], p)
	}
	for _, n := range rule.Named {
		named[n.Protocol] = append(named[n.Protocol], n)
	}
	var out []nft.Rule
	for _, protocol := range slices.Sorted(maps.Keys(numbers)) {
		out = append(out, nft.Rule{isProtocol(protocol), r.portIn(numbers[protocol])})
	}
	for _, protocol := range slices.Sorted(maps.Keys(named)) {
		out = append(out, nft.Rule{f.DestAddrPortIn(r.namedPorts(rules, protocol, named[protocol]))})
	}
	return out
}

// portIn matches ports of one protocol. It adds a set if there are several
// ranges.
func (r ruleset) portIn(list []networkpolicy.Ports) nft.Statement {
	if len(list) == 1 {
		return portWithin(list[0].From, list[0].To)
	}
	var texts []string
	for _, p := range list {
		texts = append(texts, fmt.Sprintf("%d-%d", p.From, p.To))
	}
	name := "ranges-" + digest(texts...)
	r.sets[name] = set{kind: ranges, ranges: list}
	return nft.Plain("th dport @"+name, nft.LoadPort(1), &expr.Lookup{SourceRegister: 1, SetName: name})
}

// namedPorts adds the set of the container ports that several names of one
// protocol stand for, and returns its name.
func (r ruleset) namedPorts(rules networkpolicy.Rules, protocol v1.Protocol, list []networkpolicy.NamedPort) string {
	found := rules.Ports[list[0]]
	texts := []string{string(protocol)}
	for i, n := range list {
		if texts = append(texts, n.Name); i == 0 {
			continue
		}
		for at := range rules.Ports[n].All() {
			found = found.With(at, struct{}{})
		}
	}
	name := "port-" + digest(texts...)
	r.sets[name] = set{kind: ports, protocol: protocol, ports: found}
	return name
}

// digest returns a short unique name of texts.
func digest(texts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(texts, "\x00")))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:15]))
}

func vmap(f nft.Family, field string, offset uint32, name string) nft.Statement {
	return nft.Plain(fmt.Sprintf("%s %s vmap @%s", f.Name, field, name),
		f.Load(offset, 1), &expr.Lookup{SourceRegister: 1, DestRegister: 0, IsDestRegSet: true, SetName: name})
}

// isReply matches packets in the direction of replies.
func isReply() nft.Statement {
	return nft.Plain("ct direction reply",
		&expr.Ct{Key: expr.CtKeyDIRECTION, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{1}})
}

// isRelated matches errors about connections that were allowed.
func isRelated() nft.Statement {
	return nft.Plain("ct state related",
		&expr.Ct{Key: expr.CtKeySTATE, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binary.NativeEndian.AppendUint32(nil, expr.CtStateBitRELATED), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)})
}

// isNeighbourDiscovery matches RFC 4861's messages, from router solicitation to
// redirect.
func isNeighbourDiscovery() nft.Statement {
	return nft.Plain("icmpv6 type 133-137",
		nft.LoadProtocol(1),
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_ICMPV6}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 0, Len: 1},
		&expr.Range{Op: expr.CmpOpEq, Register: 1, FromData: []byte{133}, ToData: []byte{137}})
}

// from matches packets that come by a bridge.
func from(bridge string) nft.Statement {
	return nft.Plain("iifname "+bridge, &expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: nft.InterfaceName(bridge)})
}

// between matches packets from one port of a bridge to another.
func between(bridge string) nft.Statement {
	name := nft.InterfaceName(bridge)
	return nft.Plain(fmt.Sprintf("iifname %s oifname %s", bridge, bridge),
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: name},
		&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: name})
}

// toMany matches packets that came to the bridge as broadcasts or multicasts.
func toMany() nft.Statement {
	return nft.Plain("meta pkttype broadcast-multicast",
		&expr.Meta{Key: expr.MetaKeyPKTTYPE, Register: 1},
		&expr.Range{Op: expr.CmpOpEq, Register: 1, FromData: []byte{unix.PACKET_BROADCAST}, ToData: []byte{unix.PACKET_MULTICAST}})
}

func linkLocal(f nft.Family, field string, offset uint32) nft.Statement {
	within := netip.MustParsePrefix("fe80::/10")
	return nft.Plain(fmt.Sprintf("ip6 %s %s", field, within), append([]expr.Any{f.Load(offset, 1)}, nft.InPrefix(within, expr.CmpOpEq)...)...)
}

func ownAddressIn(f nft.Family) nft.Statement {
	return nft.Plain(fmt.Sprintf("%s saddr . %s daddr @%s", f.Name, f.Name, ownAddress),
		f.Load(f.Source, 1), f.Load(f.Dest, f.After()), &expr.Lookup{SourceRegister: 1, SetName: ownAddress})
}

func isProtocol(p v1.Protocol) nft.Statement {
	return nft.Plain("meta l4proto "+strings.ToLower(string(p)),
		nft.LoadProtocol(1), &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{nft.ProtocolNumber(p)}})
}

func portWithin(from, to uint16) nft.Statement {
	if from == to {
		return nft.Plain(fmt.Sprintf("th dport %d", from), nft.LoadPort(1), &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binary.BigEndian.AppendUint16(nil, from)})
	}
	return nft.Plain(fmt.Sprintf("th dport %d-%d", from, to), nft.LoadPort(1),
		&expr.Range{Op: expr.CmpOpEq, Register: 1, FromData: binary.BigEndian.AppendUint16(nil, from), ToData: binary.BigEndian.AppendUint16(nil, to)})
}

// describe returns the kernel's set.
func (s set) describe(f nft.Family, table *nftables.Table, name string) *nftables.Set {
	out := &nftables.Set{Table: table, Name: name, KeyType: f.Addr}
	switch s.kind {
	case isolated:
		out.IsMap, out.DataType = true, nftables.TypeVerdict
	case pairs:
		out.KeyType = nftables.MustConcatSetType(f.Addr, f.Addr)
	case ports:
		out.KeyType = nftables.MustConcatSetType(f.Addr, nftables.TypeInetProto, nftables.TypeInetService)
	case blocks:
		out.Interval = true
	case ranges:
		out.Interval, out.KeyType = true, nftables.TypeInetService
	}
	return out
}

// elements returns what the set has but other has not.
func (s set) elements(f nft.Family, other set) []nftables.SetElement {
	var out []nftables.SetElement
	switch s.kind {
	case isolated:
		for a, chain := range s.isolated {
			if other.isolated[a] != chain {
				out = append(out, nftables.SetElement{Key: a.AsSlice(), VerdictData: nft.Verdict(expr.VerdictGoto, chain)})
			}
		}
	case addresses, pairs:
		persistent.Diff(other.members, s.members, func(a netip.Addr) {
			if !s.members.Has(a) || !of(f, a) {
				return
			}
			key := a.AsSlice()
			if s.kind == pairs {
				key = append(key, key...)
			}
			out = append(out, nftables.SetElement{Key: key})
		})
	case ports:
		persistent.Diff(other.ports, s.ports, func(a netip.AddrPort) {
			if !s.ports.Has(a) || !of(f, a.Addr()) {
				return
			}
			key := append(a.Addr().AsSlice(), nft.ProtocolNumber(s.protocol), 0, 0, 0)
			out = append(out, nftables.SetElement{Key: append(binary.BigEndian.AppendUint16(key, a.Port()), 0, 0)})
		})
	case blocks:
		if other.blocks != nil {
			return nil // the name says what it has
		}
		for _, b := range s.blocks {
			out = append(out, nftables.SetElement{Key: b.From.AsSlice()})
			if end := b.To.Next(); end.IsValid() { // otherwise the range has no end
				out = append(out, nftables.SetElement{Key: end.AsSlice(), IntervalEnd: true})
			}
		}
	case ranges:
		if other.ranges != nil {
			return nil
		}
		for _, p := range s.ranges {
			out = append(out, nftables.SetElement{Key: binary.BigEndian.AppendUint16(nil, p.From)})
			if p.To < math.MaxUint16 {
				out = append(out, nftables.SetElement{Key: binary.BigEndian.AppendUint16(nil, p.To+1), IntervalEnd: true})
			}
		}
	}
	return out
}
