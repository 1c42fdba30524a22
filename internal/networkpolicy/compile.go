package networkpolicy

import (
	"cmp"
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	netutils "k8s.io/utils/net"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/podquery"
)

// compiled is a policy in the form that the state works with.
type compiled struct {
	name            types.NamespacedName
	pods            labels.Selector
	ingress, egress bool // the directions that it isolates
	policy          *Policy
	groups          map[Group]groupSelector
	version         string
	created         int64
	// size is how much of the kernel and of the node's memory the policy takes, in
	// units of mostOfNamespace, without the pods that it isolates.
	size int
}

// mostOfNamespace bounds the policies of a namespace that a node enforces: their
// sizes together. A range of addresses or ports counts as 1, and so does each
// different isolation of pods by a policy. Each policy, rule and set of pods counts as
// 10: a set may hold the addresses of all pods. The kernel takes all policies of a node
// in one transaction, so that those of one namespace must not make it too large.
const mostOfNamespace = 40_000

// sizeOf returns the size of a policy.
func sizeOf(p *Policy) int {
	size := 10
	for _, r := range slices.Concat(p.Ingress, p.Egress) {
		size += 10*(1+len(r.Groups)+len(r.Named)) + len(r.Blocks) + len(r.Ports)
	}
	return size
}

// groupSelector is a Group with its selectors.
type groupSelector struct {
	namespaces labels.Selector // nil: the namespace is Group.Namespace
	pods       labels.Selector
}

// compile returns the form of a policy. A part of it that cannot be read, which
// validation of the API excludes, allows nothing.
func compile(p *networkingv1.NetworkPolicy) *compiled {
	c := &compiled{name: types.NamespacedName{Namespace: p.Namespace, Name: p.Name}, pods: podquery.Selector(&p.Spec.PodSelector), policy: &Policy{}, groups: map[Group]groupSelector{}, version: p.ResourceVersion, created: p.CreationTimestamp.UnixNano()}
	c.ingress = len(p.Spec.PolicyTypes) == 0 || slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeIngress)
	c.egress = len(p.Spec.PolicyTypes) == 0 && len(p.Spec.Egress) > 0 || slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
	if c.ingress {
		for _, r := range p.Spec.Ingress {
			c.policy.Ingress = append(c.policy.Ingress, c.rule(r.From, r.Ports))
		}
	}
	if c.egress {
		for _, r := range p.Spec.Egress {
			c.policy.Egress = append(c.policy.Egress, c.rule(r.To, r.Ports))
		}
	}
	c.size = sizeOf(c.policy)
	return c
}

func (c *compiled) rule(peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort) Rule {
	r := Rule{AnyPeer: len(peers) == 0, AnyPort: len(ports) == 0}
	known, named := map[Group]bool{}, map[NamedPort]bool{} // a policy may have tens of thousands
	for i := range peers {
		peer := &peers[i]
		if peer.IPBlock != nil {
			r.Blocks = append(r.Blocks, blocks(peer.IPBlock)...)
			continue
		}
		if peer.PodSelector == nil && peer.NamespaceSelector == nil {
			continue
		}
		g, s := Group{Namespace: c.name.Namespace}, groupSelector{pods: labels.Everything()}
		if peer.NamespaceSelector != nil {
			s.namespaces = podquery.Selector(peer.NamespaceSelector)
			g = Group{Namespaces: text(s.namespaces)}
		}
		if peer.PodSelector != nil {
			s.pods = podquery.Selector(peer.PodSelector)
		}
		g.Pods = text(s.pods)
		c.groups[g] = s
		if !known[g] {
			known[g], r.Groups = true, append(r.Groups, g)
		}
	}
	r.Blocks = union(r.Blocks)
	for i := range ports {
		r.port(&ports[i], named)
	}
	r.Ports = unionPorts(r.Ports)
	return r
}

// text returns the text of a selector, which is different for selectors that
// select nothing and everything.
func text(s labels.Selector) string {
	if _, selectable := s.Requirements(); !selectable {
		return "none"
	}
	return "(" + s.String() + ")"
}

// port adds a port. named has the names that the rule has.
func (r *Rule) port(p *networkingv1.NetworkPolicyPort, named map[NamedPort]bool) {
	protocol := ptr.Deref(p.Protocol, v1.ProtocolTCP)
	switch {
	case p.Port == nil:
		r.Ports = append(r.Ports, Ports{protocol, 0, 65535})
	case p.Port.Type == intstr.String:
		if n := (NamedPort{protocol, p.Port.StrVal}); !named[n] {
			named[n], r.Named = true, append(r.Named, n)
		}
	default:
		from, to := p.Port.IntVal, ptr.Deref(p.EndPort, p.Port.IntVal)
		if from >= 0 && from <= to && to <= 65535 {
			r.Ports = append(r.Ports, Ports{protocol, uint16(from), uint16(to)})
		}
	}
}

// blocks returns the addresses of a block without its exceptions.
func blocks(b *networkingv1.IPBlock) []Block {
	whole, ok := parseBlock(b.CIDR)
	if !ok {
		return nil
	}
	var except []Block
	for _, s := range b.Except {
		e, ok := parseBlock(s)
		if !ok {
			return nil
		}
		except = append(except, e)
	}
	var left []Block
	from := whole.From
	for _, e := range union(except) {
		if e.From.BitLen() != from.BitLen() || e.To.Less(from) || whole.To.Less(e.From) {
			continue
		}
		if from.Less(e.From) {
			left = append(left, Block{from, e.From.Prev()})
		}
		if from = e.To.Next(); !from.IsValid() || whole.To.Less(from) {
			return left
		}
	}
	return append(left, Block{from, whole.To})
}

// parseBlock reads a CIDR. The API has accepted ones with leading zeros, which
// are read as decimal numbers, and ones with host bits, which are ignored.
func parseBlock(s string) (Block, bool) {
	_, n, err := netutils.ParseCIDRSloppy(s)
	if err != nil {
		return Block{}, false
	}
	from, _ := netip.AddrFromSlice(n.IP)
	last := slices.Clone(n.IP)
	for i := range last {
		last[i] |= ^n.Mask[i]
	}
	to, _ := netip.AddrFromSlice(last)
	return Block{from, to}, true
}

// union orders blocks and joins those that overlap or touch.
func union(list []Block) []Block {
	slices.SortFunc(list, func(a, b Block) int { return a.From.Compare(b.From) })
	var out []Block
	for _, b := range list {
		if n := len(out); n > 0 && out[n-1].From.BitLen() == b.From.BitLen() {
			last := &out[n-1]
			if next := last.To.Next(); !next.IsValid() || !next.Less(b.From) {
				if last.To.Less(b.To) {
					last.To = b.To
				}
				continue
			}
		}
		out = append(out, b)
	}
	return out
}

// unionPorts orders ranges of ports and joins those that overlap or touch.
func unionPorts(list []Ports) []Ports {
	slices.SortFunc(list, func(a, b Ports) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.From, b.From))
	})
	var out []Ports
	for _, p := range list {
		if n := len(out); n > 0 && out[n-1].Protocol == p.Protocol && int(p.From) <= int(out[n-1].To)+1 {
			out[n-1].To = max(out[n-1].To, p.To)
			continue
		}
		out = append(out, p)
	}
	return out
}
