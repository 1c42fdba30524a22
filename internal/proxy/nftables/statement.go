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
)

// statement is one part of a rule: its text in nft's language, which is what
// rules are compared and tested by, and the expressions that the kernel
// takes for it.
type statement struct {
	text  string
	build func(b *batch) []expr.Any
}

// rule is statements in their order.
type rule []statement

func (r rule) String() string {
	var parts []string
	for _, s := range r {
		parts = append(parts, s.text)
	}
	return strings.Join(parts, " ")
}

// family is what differs between IPv4 and IPv6.
type family struct {
	table   nftables.TableFamily
	nft     string
	addr    nftables.SetDatatype
	size    uint32
	source  uint32 // offsets in the network header
	dest    uint32
	nfproto uint32
}

var ipv4 = family{nftables.TableFamilyIPv4, "ip", nftables.TypeIPAddr, 4, 12, 16, unix.NFPROTO_IPV4}
var ipv6 = family{nftables.TableFamilyIPv6, "ip6", nftables.TypeIP6Addr, 16, 8, 24, unix.NFPROTO_IPV6}

// Registers are 16 bytes from number 1 on, or 4 bytes from number 8 on, over
// the same memory. firstWord is where number 1 begins.
const firstWord = 8

// after is the register behind an address that was loaded to register 1.
func (f family) after() uint32 { return firstWord + f.size/4 }

func plain(text string, exprs ...expr.Any) statement {
	return statement{text, func(*batch) []expr.Any { return exprs }}
}

func verdict(kind expr.VerdictKind, chain string) *expr.Verdict {
	return &expr.Verdict{Kind: kind, Chain: chain}
}

func jump(chain string) statement {
	return plain("jump "+chain, verdict(expr.VerdictJump, chain))
}

func goTo(chain string) statement {
	return plain("goto "+chain, verdict(expr.VerdictGoto, chain))
}

func drop() statement { return plain("drop", verdict(expr.VerdictDrop, "")) }

func isTCP() statement {
	return plain("meta l4proto tcp", loadProtocol(1), &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}})
}

// reset refuses a TCP connection; unlike the ICMP errors of reject, of which
// the kernel sends a client one a second, it refuses each at once.
func reset() statement {
	return plain("reject with tcp reset", &expr.Reject{Type: unix.NFT_REJECT_TCP_RST})
}

func reject() statement {
	// ICMP and ICMPv6 have other codes for an unreachable port.
	return statement{"reject", func(b *batch) []expr.Any {
		code := uint8(3)
		if b.family.size == 16 {
			code = 4
		}
		return []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: code}}
	}}
}

// load puts a field of the network header into a register.
func (f family) load(offset, register uint32) expr.Any {
	return &expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: f.size}
}

func loadProtocol(register uint32) expr.Any {
	return &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: register}
}

func loadPort(register uint32) expr.Any {
	return &expr.Payload{DestRegister: register, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2}
}

// destination loads address, protocol and port, the key of most maps.
func (f family) destination() []expr.Any {
	return []expr.Any{f.load(f.dest, 1), loadProtocol(f.after()), loadPort(f.after() + 1)}
}

func (f family) destinationVmap(name string) statement {
	return plain(fmt.Sprintf("%s daddr . meta l4proto . th dport vmap @%s", f.nft, name),
		append(f.destination(), &expr.Lookup{SourceRegister: 1, DestRegister: 0, IsDestRegSet: true, SetName: name})...)
}

func (f family) destinationIn(name string) statement {
	return plain(fmt.Sprintf("%s daddr . meta l4proto . th dport @%s", f.nft, name),
		append(f.destination(), &expr.Lookup{SourceRegister: 1, SetName: name})...)
}

func (f family) portVmap(name string) statement {
	return plain("meta l4proto . th dport vmap @"+name,
		loadProtocol(1), loadPort(firstWord+1), &expr.Lookup{SourceRegister: 1, DestRegister: 0, IsDestRegSet: true, SetName: name})
}

// hairpinIn matches a packet that goes back to the endpoint that sent it.
func (f family) hairpinIn(name string) statement {
	return plain(fmt.Sprintf("%s saddr . %s daddr . meta l4proto . th dport @%s", f.nft, f.nft, name),
		f.load(f.source, 1), f.load(f.dest, f.after()),
		loadProtocol(f.after()+f.size/4), loadPort(f.after()+f.size/4+1),
		&expr.Lookup{SourceRegister: 1, SetName: name})
}

func (f family) sourceIn(name string) statement {
	return plain(fmt.Sprintf("%s saddr @%s", f.nft, name), f.load(f.source, 1), &expr.Lookup{SourceRegister: 1, SetName: name})
}

// sourcePrefix compares the source address with a prefix.
func (f family) sourcePrefix(p netip.Prefix, op expr.CmpOp) statement {
	sign := ""
	if op == expr.CmpOpNeq {
		sign = "!= "
	}
	mask := make([]byte, f.size)
	for bit := range p.Bits() {
		mask[bit/8] |= 0x80 >> (bit % 8)
	}
	return plain(fmt.Sprintf("%s saddr %s%s", f.nft, sign, p),
		f.load(f.source, 1),
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: f.size, Mask: mask, Xor: make([]byte, f.size)},
		&expr.Cmp{Op: op, Register: 1, Data: p.Masked().Addr().AsSlice()})
}

func fibLocal(source bool) statement {
	field := "daddr"
	if source {
		field = "saddr"
	}
	return plain("fib "+field+" type local",
		&expr.Fib{Register: 1, FlagSADDR: source, FlagDADDR: !source, ResultADDRTYPE: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)})
}

var loopback4 = netip.MustParsePrefix("127.0.0.0/8")

// notLoopback matches destinations out of 127.0.0.0/8 and ::1.
func (f family) notLoopback() statement {
	p := loopback4
	if f.size == 16 {
		p = netip.MustParsePrefix("::1/128")
	}
	mask := make([]byte, f.size)
	for bit := range p.Bits() {
		mask[bit/8] |= 0x80 >> (bit % 8)
	}
	return plain(fmt.Sprintf("%s daddr != %s", f.nft, p), f.load(f.dest, 1),
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: f.size, Mask: mask, Xor: make([]byte, f.size)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: p.Addr().AsSlice()})
}

// masqueradeMark is the bit of the packet mark for what leaves with the
// node's address; upstream's proxies use the same.
const masqueradeMark = 0x4000

func setMark() statement {
	return plain("meta mark set meta mark | 0x4000",
		&expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
		markBits(^uint32(masqueradeMark), masqueradeMark),
		&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: 1})
}

func clearMark() statement {
	return plain("meta mark set meta mark & 0xffffbfff",
		&expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
		markBits(^uint32(masqueradeMark), 0),
		&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: 1})
}

func isMarked() statement {
	return plain("meta mark & 0x4000 != 0",
		&expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
		markBits(masqueradeMark, 0),
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(0)})
}

func markBits(mask, xor uint32) expr.Any {
	return &expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4,
		Mask: binaryutil.NativeEndian.PutUint32(mask), Xor: binaryutil.NativeEndian.PutUint32(xor)}
}

func masquerade() statement {
	return plain("masquerade fully-random", &expr.Masq{FullyRandom: true})
}

func newConnection() statement {
	return plain("ct state new",
		&expr.Ct{Key: expr.CtKeySTATE, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4,
			Mask: binaryutil.NativeEndian.PutUint32(expr.CtStateBitNEW), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)})
}

// dnat sends the connection to the address in register 1 and the port behind.
func (f family) dnat() expr.Any {
	return &expr.NAT{Type: expr.NATTypeDestNAT, Family: f.nfproto, RegAddrMin: 1, RegProtoMin: f.after(), Specified: true}
}

func (f family) dnatTo(endpoint netip.AddrPort) statement {
	return plain("dnat to "+endpoint.String(),
		&expr.Immediate{Register: 1, Data: endpoint.Addr().AsSlice()},
		&expr.Immediate{Register: f.after(), Data: binary.BigEndian.AppendUint16(nil, endpoint.Port())},
		f.dnat())
}

// choose takes one of n at random: numgen gives 0 to n-1, the map has an
// element for the first of them, and a number without one passes the rule.
func choose(n int, text string, dataType nftables.SetDatatype, elements []nftables.SetElement, then ...expr.Any) statement {
	return statement{text, func(b *batch) []expr.Any {
		set := &nftables.Set{Table: b.table, Anonymous: true, Constant: true, IsMap: true, KeyType: nftables.TypeInteger, DataType: dataType}
		b.anonymous(set, elements)
		lookup := &expr.Lookup{SourceRegister: 1, DestRegister: 1, IsDestRegSet: true, SetID: set.ID, SetName: set.Name}
		if dataType == nftables.TypeVerdict {
			lookup.DestRegister = 0
		}
		return append([]expr.Any{&expr.Numgen{Register: 1, Modulus: uint32(n), Type: unix.NFT_NG_RANDOM}, lookup}, then...)
	}}
}

// largestMap keeps an anonymous map within one netlink attribute (64 KiB).
const largestMap = 500

// balance sends each connection to one of the endpoints, all as likely. Many
// endpoints take several rules: each takes its share and passes the rest on.
func (f family) balance(endpoints []netip.AddrPort) []rule {
	if len(endpoints) == 1 {
		return []rule{{f.dnatTo(endpoints[0])}}
	}
	var rules []rule
	left := len(endpoints)
	for part := range slices.Chunk(endpoints, largestMap) {
		var elements []nftables.SetElement
		var names []string
		for i, e := range part {
			elements = append(elements, nftables.SetElement{Key: binaryutil.NativeEndian.PutUint32(uint32(i)), Val: padded(e)})
			names = append(names, fmt.Sprintf("%d : %s . %d", i, e.Addr(), e.Port()))
		}
		text := fmt.Sprintf("dnat %s to numgen random mod %d map { %s }", f.nft, left, strings.Join(names, ", "))
		rules = append(rules, rule{choose(left, text, nftables.MustConcatSetType(f.addr, nftables.TypeInetService), elements, f.dnat())})
		left -= len(part)
	}
	return rules
}

// balanceChains is balance over chains.
func balanceChains(chains []string) []rule {
	var rules []rule
	left := len(chains)
	for part := range slices.Chunk(chains, largestMap) {
		var elements []nftables.SetElement
		var names []string
		for i, chain := range part {
			elements = append(elements, nftables.SetElement{Key: binaryutil.NativeEndian.PutUint32(uint32(i)), VerdictData: verdict(expr.VerdictGoto, chain)})
			names = append(names, fmt.Sprintf("%d : goto %s", i, chain))
		}
		text := fmt.Sprintf("numgen random mod %d vmap { %s }", left, strings.Join(names, ", "))
		rules = append(rules, rule{choose(left, text, nftables.TypeVerdict, elements)})
		left -= len(part)
	}
	return rules
}

// remember notes the client's address in a set for a time.
func (f family) remember(set string, timeout time.Duration) statement {
	return plain(fmt.Sprintf("update @%s { %s saddr timeout %ds }", set, f.nft, int(timeout.Seconds())),
		f.load(f.source, 1),
		&expr.Dynset{SrcRegKey: 1, SetName: set, Operation: uint32(unix.NFT_DYNSET_OP_UPDATE), Timeout: timeout})
}

// padded is address and port as a map's concatenated data.
func padded(e netip.AddrPort) []byte {
	return append(binary.BigEndian.AppendUint16(e.Addr().AsSlice(), e.Port()), 0, 0)
}
