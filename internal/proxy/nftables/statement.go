package nftables

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/coracle-io/coracle/internal/nft"
	"github.com/coracle-io/coracle/internal/proxy"
)

func isTCP() nft.Statement {
	return nft.Plain("meta l4proto tcp", nft.LoadProtocol(1), &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}})
}

// reset refuses a TCP connection at once. The kernel limits the ICMP errors of
// reject to one a second for a client.
func reset() nft.Statement {
	return nft.Plain("reject with tcp reset", &expr.Reject{Type: unix.NFT_REJECT_TCP_RST})
}

func reject() nft.Statement {
	// ICMP and ICMPv6 have different codes for an unreachable port.
	return nft.Statement{Text: "reject", Build: func(b *nft.Batch) []expr.Any {
		code := uint8(3)
		if b.Family.Size == 16 {
			code = 4
		}
		return []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: code}}
	}}
}

func destinationVmap(f nft.Family, name string) nft.Statement {
	return nft.Plain(fmt.Sprintf("%s daddr . meta l4proto . th dport vmap @%s", f.Name, name),
		append(f.Destination(), &expr.Lookup{SourceRegister: 1, DestRegister: 0, IsDestRegSet: true, SetName: name})...)
}

func portVmap(f nft.Family, name string) nft.Statement {
	return nft.Plain("meta l4proto . th dport vmap @"+name,
		nft.LoadProtocol(1), nft.LoadPort(nft.FirstWord+1), &expr.Lookup{SourceRegister: 1, DestRegister: 0, IsDestRegSet: true, SetName: name})
}

// hairpinIn matches a packet that returns to the endpoint that sent it.
func hairpinIn(f nft.Family, name string) nft.Statement {
	return nft.Plain(fmt.Sprintf("%s saddr . %s daddr . meta l4proto . th dport @%s", f.Name, f.Name, name),
		f.Load(f.Source, 1), f.Load(f.Dest, f.After()),
		nft.LoadProtocol(f.After()+f.Size/4), nft.LoadPort(f.After()+f.Size/4+1),
		&expr.Lookup{SourceRegister: 1, SetName: name})
}

// sourcePrefix compares the source address with a prefix.
func sourcePrefix(f nft.Family, p netip.Prefix, op expr.CmpOp) nft.Statement {
	return inPrefix(f, "saddr", f.Source, p, op)
}

// destinationPrefix matches destinations in a prefix.
func destinationPrefix(f nft.Family, p netip.Prefix) nft.Statement {
	return inPrefix(f, "daddr", f.Dest, p, expr.CmpOpEq)
}

// inPrefix compares the address at an offset of the network header with a prefix.
func inPrefix(f nft.Family, field string, offset uint32, p netip.Prefix, op expr.CmpOp) nft.Statement {
	sign := ""
	if op == expr.CmpOpNeq {
		sign = "!= "
	}
	return nft.Plain(fmt.Sprintf("%s %s %s%s", f.Name, field, sign, p), append([]expr.Any{f.Load(offset, 1)}, nft.InPrefix(p, op)...)...)
}

func fibLocal(source bool) nft.Statement {
	field := "daddr"
	if source {
		field = "saddr"
	}
	return nft.Plain("fib "+field+" type local",
		&expr.Fib{Register: 1, FlagSADDR: source, FlagDADDR: !source, ResultADDRTYPE: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)})
}

var loopback4 = netip.MustParsePrefix("127.0.0.0/8")

// notLoopback matches destinations outside of 127.0.0.0/8 and ::1.
func notLoopback(f nft.Family) nft.Statement {
	p := loopback4
	if f.Size == 16 {
		p = netip.MustParsePrefix("::1/128")
	}
	return inPrefix(f, "daddr", f.Dest, p, expr.CmpOpNeq)
}

// fromPods matches connections of pods, or with expr.CmpOpNeq all others.
func fromPods(f nft.Family, pods proxy.PodTraffic, op expr.CmpOp) nft.Statement {
	if pods.Range.IsValid() {
		return sourcePrefix(f, pods.Range, op)
	}
	data, text := []byte(pods.Interface), pods.Interface+"*"
	if !pods.IsPrefix {
		data, text = nft.InterfaceName(pods.Interface), pods.Interface
	}
	sign := ""
	if op == expr.CmpOpNeq {
		sign = "!= "
	}
	return nft.Plain(fmt.Sprintf("iifname %s%q", sign, text),
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1}, &expr.Cmp{Op: op, Register: 1, Data: data})
}

// masqueradeMark is the default bit of the packet mark for packets to masquerade, as
// in upstream's proxies.
const masqueradeMark = 0x4000

func setMark(mark uint32) nft.Statement {
	return nft.Plain(fmt.Sprintf("meta mark set meta mark | %#x", mark),
		&expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
		markBits(^mark, mark),
		&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: 1})
}

func clearMark(mark uint32) nft.Statement {
	return nft.Plain(fmt.Sprintf("meta mark set meta mark & %#x", ^mark),
		&expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
		markBits(^mark, 0),
		&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: 1})
}

func isMarked(mark uint32) nft.Statement {
	return nft.Plain(fmt.Sprintf("meta mark & %#x != 0", mark),
		&expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
		markBits(mark, 0),
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(0)})
}

func markBits(mask, xor uint32) expr.Any {
	return &expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4,
		Mask: binaryutil.NativeEndian.PutUint32(mask), Xor: binaryutil.NativeEndian.PutUint32(xor)}
}

func masquerade() nft.Statement {
	return nft.Plain("masquerade fully-random", &expr.Masq{FullyRandom: true})
}

func newConnection() nft.Statement {
	return nft.Plain("ct state new",
		&expr.Ct{Key: expr.CtKeySTATE, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4,
			Mask: binaryutil.NativeEndian.PutUint32(expr.CtStateBitNEW), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)})
}

// dnat sends the connection to the address in register 1 and the port behind
// it.
func dnat(f nft.Family) expr.Any {
	return &expr.NAT{Type: expr.NATTypeDestNAT, Family: f.Proto, RegAddrMin: 1, RegProtoMin: f.After(), Specified: true}
}

func dnatTo(f nft.Family, endpoint netip.AddrPort) nft.Statement {
	return nft.Plain("dnat to "+endpoint.String(),
		&expr.Immediate{Register: 1, Data: endpoint.Addr().AsSlice()},
		&expr.Immediate{Register: f.After(), Data: binary.BigEndian.AppendUint16(nil, endpoint.Port())},
		dnat(f))
}

// choose selects one of n at random. numgen returns 0 to n-1. The map has
// elements for the first of them; a number without an element passes the rule.
func choose(n int, text string, dataType nftables.SetDatatype, elements []nftables.SetElement, then ...expr.Any) nft.Statement {
	return nft.Statement{Text: text, Build: func(b *nft.Batch) []expr.Any {
		set := &nftables.Set{Table: b.Table, Anonymous: true, Constant: true, IsMap: true, KeyType: nftables.TypeInteger, DataType: dataType}
		b.AddSet(set, elements)
		lookup := &expr.Lookup{SourceRegister: 1, DestRegister: 1, IsDestRegSet: true, SetID: set.ID, SetName: set.Name}
		if dataType == nftables.TypeVerdict {
			lookup.DestRegister = 0
		}
		return append([]expr.Any{&expr.Numgen{Register: 1, Modulus: uint32(n), Type: unix.NFT_NG_RANDOM}, lookup}, then...)
	}}
}

// balance distributes connections evenly over endpoints. Many endpoints take
// several rules, each of which takes its share and passes the rest on.
func balance(f nft.Family, endpoints []netip.AddrPort) []nft.Rule {
	if len(endpoints) == 1 {
		return []nft.Rule{{dnatTo(f, endpoints[0])}}
	}
	return shares(endpoints, func(left int, part []netip.AddrPort) nft.Statement {
		var elements []nftables.SetElement
		var names []string
		for i, e := range part {
			elements = append(elements, nftables.SetElement{Key: binaryutil.NativeEndian.PutUint32(uint32(i)), Val: padded(e)})
			names = append(names, fmt.Sprintf("%d : %s . %d", i, e.Addr(), e.Port()))
		}
		text := fmt.Sprintf("dnat %s to numgen random mod %d map { %s }", f.Name, left, strings.Join(names, ", "))
		return choose(left, text, nftables.MustConcatSetType(f.Addr, nftables.TypeInetService), elements, dnat(f))
	})
}

// balanceChains is balance over chains.
func balanceChains(chains []string) []nft.Rule {
	return shares(chains, func(left int, part []string) nft.Statement {
		var elements []nftables.SetElement
		var names []string
		for i, chain := range part {
			elements = append(elements, nftables.SetElement{Key: binaryutil.NativeEndian.PutUint32(uint32(i)), VerdictData: nft.Verdict(expr.VerdictGoto, chain)})
			names = append(names, fmt.Sprintf("%d : goto %s", i, chain))
		}
		text := fmt.Sprintf("numgen random mod %d vmap { %s }", left, strings.Join(names, ", "))
		return choose(left, text, nftables.TypeVerdict, elements)
	})
}

// shares divides targets among as few rules as their maps allow. choose returns
// the statement of a rule for part of the targets; left is how many remain.
func shares[T any](targets []T, choose func(left int, part []T) nft.Statement) []nft.Rule {
	var rules []nft.Rule
	left := len(targets)
	for part := range slices.Chunk(targets, nft.MaxElements) {
		rules = append(rules, nft.Rule{choose(left, part)})
		left -= len(part)
	}
	return rules
}

// remember adds the client's address to a set with a timeout.
func remember(f nft.Family, set string, timeout time.Duration) nft.Statement {
	return nft.Plain(fmt.Sprintf("update @%s { %s saddr timeout %ds }", set, f.Name, int(timeout.Seconds())),
		f.Load(f.Source, 1),
		&expr.Dynset{SrcRegKey: 1, SetName: set, Operation: uint32(unix.NFT_DYNSET_OP_UPDATE), Timeout: timeout})
}

// padded returns address and port as concatenated data of a map.
func padded(e netip.AddrPort) []byte {
	return append(binary.BigEndian.AppendUint16(e.Addr().AsSlice(), e.Port()), 0, 0)
}
