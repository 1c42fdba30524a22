package podnet

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/coracle-io/coracle/internal/nft"
)

// The sets and the chain of the table.
const (
	pinnedPorts    = "ports"    // name of the port
	pinnedHardware = "hardware" // name . hardware address
	pinnedIPv4     = "ipv4"     // name . address
	pinnedIPv6     = "ipv6"     // likewise

	pinChain = "pins"
)

// beforeNetfilter is the priority of filters on bridges. With br_netfilter, the rules for
// IP follow at 0.
const beforeNetfilter = -200

// writePins replaces the table in one transaction.
func writePins(t *nftables.Table, pins []pin) error {
	conn, err := nft.Connect(0)
	if err != nil {
		return err
	}
	b := &nft.Batch{Conn: conn, Table: t}
	b.Clear()
	elements := map[string][]nftables.SetElement{}
	for _, p := range pins {
		add := func(set string, value ...byte) {
			elements[set] = append(elements[set], nftables.SetElement{Key: append(nft.InterfaceName(p.port), value...)})
		}
		add(pinnedPorts)
		add(pinnedHardware, append(p.hardware[:], 0, 0)...) // to a multiple of four bytes
		if p.v4.IsValid() {
			add(pinnedIPv4, p.v4.AsSlice()...)
		}
		if p.v6.IsValid() {
			add(pinnedIPv6, p.v6.AsSlice()...)
		}
	}
	for name, key := range map[string]nftables.SetDatatype{
		pinnedPorts: nftables.TypeIFName, pinnedHardware: nftables.MustConcatSetType(nftables.TypeIFName, nftables.TypeEtherAddr),
		pinnedIPv4: nftables.MustConcatSetType(nftables.TypeIFName, nftables.TypeIPAddr), pinnedIPv6: nftables.MustConcatSetType(nftables.TypeIFName, nftables.TypeIP6Addr),
	} {
		set := &nftables.Set{Table: t, Name: name, KeyType: key}
		b.AddSet(set, nil)
		b.UpdateElements(set, nil, elements[name])
	}
	if b.Err != nil {
		return b.Err
	}
	chain := conn.AddChain(&nftables.Chain{
		Name: pinChain, Table: t, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityRef(beforeNetfilter),
	})
	for _, rule := range pinRules() {
		conn.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: rule})
	}
	return conn.Flush()
}

// pinRules returns the rules of the chain.
func pinRules() [][]expr.Any {
	accept := []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}}
	drop := []expr.Any{&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop}}
	linkLocal, unspecified := netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("::/128")
	arp, ipv4, ipv6 := frames(unix.ETH_P_ARP), frames(unix.ETH_P_IP), frames(unix.ETH_P_IPV6)
	in := func(set string, base expr.PayloadBase, offset, size uint32) []expr.Any {
		return pinned(set, false, base, offset, size)
	}
	target := append([]expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 8, Len: 16},
	}, nft.InPrefix(linkLocal, expr.CmpOpNeq)...)
	const network = expr.PayloadBaseNetworkHeader
	return [][]expr.Any{
		slices.Concat([]expr.Any{&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1}, &expr.Lookup{SourceRegister: 1, SetName: pinnedPorts, Invert: true}}, accept),
		slices.Concat(pinned(pinnedHardware, true, expr.PayloadBaseLLHeader, 6, 6), drop),
		slices.Concat(arp, in(pinnedHardware, network, 8, 6), in(pinnedIPv4, network, 14, 4), accept),
		slices.Concat(ipv4, in(pinnedIPv4, network, 12, 4), accept),
		slices.Concat(ipv6, icmpv6(134), drop), // router advertisement
		slices.Concat(ipv6, icmpv6(137), drop), // redirect
		slices.Concat(ipv6, icmpv6(136), target, pinned(pinnedIPv6, true, expr.PayloadBaseTransportHeader, 8, 16), drop),
		slices.Concat(ipv6, address(linkLocal, source, expr.CmpOpEq), accept),
		slices.Concat(ipv6, address(unspecified, source, expr.CmpOpEq), accept),
		slices.Concat(ipv6, in(pinnedIPv6, network, 8, 16), accept),
		drop,
	}
}

// frames matches frames of a protocol.
func frames(protocol uint16) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyPROTOCOL, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binary.BigEndian.AppendUint16(nil, protocol)},
	}
}

// icmpv6 matches packets of a type of ICMPv6.
func icmpv6(kind byte) []expr.Any {
	return []expr.Any{
		nft.LoadProtocol(1),
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_ICMPV6}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 0, Len: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{kind}},
	}
}

// pinned matches frames whose port with a field is in a set, or with invert is not.
func pinned(set string, invert bool, base expr.PayloadBase, offset, size uint32) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1},
		&expr.Payload{DestRegister: nft.FirstWord + unix.IFNAMSIZ/4, Base: base, Offset: offset, Len: size},
		&expr.Lookup{SourceRegister: 1, SetName: set, Invert: invert},
	}
}
