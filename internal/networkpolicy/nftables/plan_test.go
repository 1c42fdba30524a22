package nftables

import (
	"encoding/binary"
	"flag"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/nftables"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/goldentest"
	"github.com/coracle-io/coracle/internal/networkpolicy"
	"github.com/coracle-io/coracle/internal/nft"
	"github.com/coracle-io/coracle/internal/persistent"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

func TestPlan(t *testing.T) {
	nothing := []networkpolicy.Rule{}
	peers := []networkpolicy.Rule{{Groups: []networkpolicy.Group{group}, Blocks: blocksOf("192.0.2.0", "192.0.2.255", "2001:db8::", "2001:db8::ff"), AnyPort: true}}
	atPorts := []networkpolicy.Rule{{AnyPeer: true, Ports: []networkpolicy.Ports{{Protocol: v1.ProtocolTCP, From: 80, To: 80}, {Protocol: v1.ProtocolUDP, From: 5000, To: 5100}}, Named: []networkpolicy.NamedPort{http}}}
	peersAtPorts := []networkpolicy.Rule{{Groups: []networkpolicy.Group{group}, Ports: atPorts[0].Ports, Named: atPorts[0].Named}}
	manyPorts := []networkpolicy.Rule{{
		AnyPeer: true, Named: []networkpolicy.NamedPort{{Protocol: v1.ProtocolTCP, Name: "admin"}, http, {Protocol: v1.ProtocolUDP, Name: "http"}},
		Ports: []networkpolicy.Ports{
			{Protocol: v1.ProtocolTCP, From: 80, To: 80}, {Protocol: v1.ProtocolTCP, From: 8000, To: 8010}, {Protocol: v1.ProtocolTCP, From: 60000, To: 65535}, {Protocol: v1.ProtocolUDP, From: 53, To: 53},
		},
	}}
	otherFamily := []networkpolicy.Rule{{Blocks: blocksOf("2001:db8::", "2001:db8::ff"), AnyPort: true}}
	shared := isolating(nothing, nil, "10.9.1.2", "10.9.1.3")
	second := types.NamespacedName{Namespace: "x", Name: "second"}
	shared.Policies[second] = &networkpolicy.Policy{Ingress: []networkpolicy.Rule{anyone}}
	shared.Pods[netip.MustParseAddr("10.9.1.4")] = networkpolicy.Isolation{Ingress: []types.NamespacedName{policy, second}}
	for name, c := range map[string]struct {
		rules  networkpolicy.Rules
		family nft.Family
		config Config
	}{
		"empty":                 {networkpolicy.Rules{}, nft.IPv4, Config{Bridge: "cor0"}},
		"empty-ipv6":            {networkpolicy.Rules{}, nft.IPv6, Config{Bridge: "cor0"}},
		"deny":                  {isolating(nothing, nothing, "10.9.1.2"), nft.IPv4, Config{}},
		"deny-on-bridge":        {isolating(nothing, nothing, "10.9.1.2"), nft.IPv4, Config{Bridge: "cor0"}},
		"deny-on-bridge-ipv6":   {isolating(nothing, nothing, "fd09::2"), nft.IPv6, Config{Bridge: "cor0"}},
		"allow-all":             {isolating([]networkpolicy.Rule{anyone}, nil, "10.9.1.2"), nft.IPv4, Config{}},
		"ingress-peers":         {isolating(peers, nil, "10.9.1.2"), nft.IPv4, Config{}},
		"ingress-peers-ipv6":    {isolating(peers, nil, "fd09::2"), nft.IPv6, Config{}},
		"egress-peers":          {isolating(nil, peers, "10.9.1.2"), nft.IPv4, Config{}},
		"ports":                 {isolating(atPorts, nil, "10.9.1.2"), nft.IPv4, Config{}},
		"many-ports":            {isolating(manyPorts, nil, "10.9.1.2"), nft.IPv4, Config{}},
		"peers-at-ports":        {isolating(nil, peersAtPorts, "10.9.1.2"), nft.IPv4, Config{}},
		"peers-of-other-family": {isolating(otherFamily, nil, "10.9.1.2"), nft.IPv4, Config{}},
		"shared-policies":       {shared, nft.IPv4, Config{}},
		"ingress-ports":         {isolating(nothing, nothing, "10.9.1.2"), nft.IPv4, Config{Bridge: "cor0", IngressPorts: []uint16{80, 443}}},
		"ingress-ports-ipv6":    {isolating(nothing, nothing, "fd09::2"), nft.IPv6, Config{Bridge: "cor0", IngressPorts: []uint16{80}}},
		"ipvs":                  {isolating(nothing, nothing, "10.9.1.2"), nft.IPv4, Config{IPVS: true}},
		"ingress-ports-unused":  {networkpolicy.Rules{}, nft.IPv4, Config{Bridge: "cor0", IngressPorts: []uint16{80, 443}}},
	} {
		t.Run(name, func(t *testing.T) {
			got := text(plan(c.rules, c.family, c.config), c.family)
			goldentest.Compare(t, filepath.Join("testdata", name+".txt"), got, *rewrite, "go test -rewrite")
		})
	}
}

// TestNodeChainComesAfterIPVS checks that the chain about the ports of Ingresses does not
// see what is for a port 80 of a Service: IPVS takes that at the input hook with the
// priority 99 (ip_vs_core.c).
func TestNodeChainComesAfterIPVS(t *testing.T) {
	if c := chain(&nftables.Table{}, nodeChain); *c.Hooknum != *nftables.ChainHookInput || *c.Priority <= 99 {
		t.Errorf("the chain is at the hook %d with the priority %d", *c.Hooknum, *c.Priority)
	}
}

// text returns a table with the elements that the kernel gets, in a fixed order.
func text(r ruleset, f nft.Family) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(r.sets)) {
		fmt.Fprintf(&b, "set %s\n", name)
		var lines []string
		for _, e := range r.sets[name].elements(f, set{}) {
			lines = append(lines, r.sets[name].kind.text(f, e))
		}
		for _, line := range slices.Sorted(slices.Values(lines)) {
			fmt.Fprintf(&b, "\t%s\n", line)
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

// text returns an element of a set of this kind.
func (k kind) text(f nft.Family, e nftables.SetElement) string {
	if k == ranges {
		text := fmt.Sprintf("%05d", binary.BigEndian.Uint16(e.Key))
		if e.IntervalEnd {
			text += " is behind the end"
		}
		return text
	}
	first, rest := addressOf(e.Key[:f.Size]), e.Key[f.Size:]
	switch k {
	case isolated:
		return first + " : goto " + e.VerdictData.Chain
	case pairs:
		return first + " . " + addressOf(rest)
	case ports:
		return fmt.Sprintf("%s . protocol %d . %d", first, rest[0], binary.BigEndian.Uint16(rest[4:]))
	case blocks:
		if e.IntervalEnd {
			return first + " is behind the end"
		}
	}
	return first
}

func addressOf(data []byte) string {
	a, _ := netip.AddrFromSlice(data)
	return a.String()
}

// TestDifferenceOfSets checks that what differs between two versions of a set is found
// without a look at the rest.
func TestDifferenceOfSets(t *testing.T) {
	all, at := map[netip.Addr]struct{}{}, map[netip.AddrPort]struct{}{}
	for i := range 10_000 {
		a := netip.AddrFrom4([4]byte{10, 2, byte(i >> 8), byte(i)})
		all[a], at[netip.AddrPortFrom(a, 80)] = struct{}{}, struct{}{}
	}
	members, ofPorts := persistent.Of(all), persistent.Of(at)
	gone, added, visited := netip.MustParseAddr("10.2.0.7"), netip.MustParseAddr("10.3.0.1"), 0
	for what, pair := range map[string][2]set{
		"addresses": {{kind: addresses, members: members}, {kind: addresses, members: members.Counted(&visited).Without(gone).With(added, struct{}{})}},
		"ports": {{kind: ports, protocol: v1.ProtocolTCP, ports: ofPorts}, {
			kind: ports, protocol: v1.ProtocolTCP,
			ports: ofPorts.Counted(&visited).Without(netip.AddrPortFrom(gone, 80)).With(netip.AddrPortFrom(added, 80), struct{}{}),
		}},
	} {
		removed, fresh := pair[0].elements(nft.IPv4, pair[1]), pair[1].elements(nft.IPv4, pair[0])
		if len(removed) != 1 || len(fresh) != 1 || addressOf(removed[0].Key[:4]) != gone.String() || addressOf(fresh[0].Key[:4]) != added.String() {
			t.Errorf("of the %s, %v go and %v come", what, removed, fresh)
		}
	}
	if visited > 100 {
		t.Errorf("%d elements are looked at", visited)
	}
}
