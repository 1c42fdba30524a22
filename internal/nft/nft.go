// Package nft describes rules of nftables as values, and writes the difference
// between two of them into a transaction of the kernel.
package nft

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// Statement is a part of a rule: its text in nft's language, by which rules are
// compared and tested, and the kernel's expressions for it.
type Statement struct {
	Text  string
	Build func(b *Batch) []expr.Any
}

// Rule is a sequence of statements.
type Rule []Statement

func (r Rule) String() string {
	var parts []string
	for _, s := range r {
		parts = append(parts, s.Text)
	}
	return strings.Join(parts, " ")
}

// Family holds what differs between IPv4 and IPv6.
type Family struct {
	Table nftables.TableFamily
	Name  string // in nft's language
	Addr  nftables.SetDatatype
	Size  uint32
	// Source and Dest are offsets in the network header.
	Source, Dest uint32
	Proto        uint32 // NFPROTO
	Inet         int    // the family of addresses, AF_INET or AF_INET6
}

// The families.
var (
	IPv4 = Family{nftables.TableFamilyIPv4, "ip", nftables.TypeIPAddr, 4, 12, 16, unix.NFPROTO_IPV4, unix.AF_INET}
	IPv6 = Family{nftables.TableFamilyIPv6, "ip6", nftables.TypeIP6Addr, 16, 8, 24, unix.NFPROTO_IPV6, unix.AF_INET6}
)

// IPFamily returns the family under its name in the API.
func (f Family) IPFamily() v1.IPFamily {
	if f.Size == 16 {
		return v1.IPv6Protocol
	}
	return v1.IPv4Protocol
}

// FirstWord is the 4-byte register at which register 1 begins. Registers are 16
// bytes from number 1 on, or 4 bytes from number 8 on, over the same memory.
const FirstWord = 8

// After returns the register behind an address in register 1.
func (f Family) After() uint32 { return FirstWord + f.Size/4 }

// Load loads a field of the network header, such as f.Source, into a register.
func (f Family) Load(offset, register uint32) expr.Any {
	return &expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: f.Size}
}

// LoadProtocol loads the number of the protocol into a register.
func LoadProtocol(register uint32) expr.Any {
	return &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: register}
}

// InPrefix compares the address in register 1 with a prefix.
func InPrefix(p netip.Prefix, op expr.CmpOp) []expr.Any {
	network := p.Masked().Addr().AsSlice()
	return []expr.Any{
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: uint32(len(network)), Mask: net.CIDRMask(p.Bits(), 8*len(network)), Xor: make([]byte, len(network))},
		&expr.Cmp{Op: op, Register: 1, Data: network},
	}
}

// InterfaceName returns the name of an interface as rules compare it, padded with
// zeros.
func InterfaceName(name string) []byte {
	padded := make([]byte, unix.IFNAMSIZ)
	copy(padded, name)
	return padded
}

// LoadPort loads the destination's port into a register.
func LoadPort(register uint32) expr.Any {
	return &expr.Payload{DestRegister: register, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2}
}

// Destination loads address, protocol and port, the key of most maps, into
// register 1 and those behind it.
func (f Family) Destination() []expr.Any {
	return []expr.Any{f.Load(f.Dest, 1), LoadProtocol(f.After()), LoadPort(f.After() + 1)}
}

// DestAddrPortIn matches packets to an address, protocol and port of a set.
func (f Family) DestAddrPortIn(set string) Statement {
	return Plain(fmt.Sprintf("%s daddr . meta l4proto . th dport @%s", f.Name, set),
		append(f.Destination(), &expr.Lookup{SourceRegister: 1, SetName: set})...)
}

// SourceAddrIn matches packets from an address of a set.
func (f Family) SourceAddrIn(set string) Statement { return f.in("saddr", f.Source, set) }

// DestAddrIn matches packets to an address of a set.
func (f Family) DestAddrIn(set string) Statement { return f.in("daddr", f.Dest, set) }

func (f Family) in(field string, offset uint32, set string) Statement {
	return Plain(fmt.Sprintf("%s %s @%s", f.Name, field, set), f.Load(offset, 1), &expr.Lookup{SourceRegister: 1, SetName: set})
}

// Plain returns a statement whose expressions need no set of their own.
func Plain(text string, exprs ...expr.Any) Statement {
	return Statement{text, func(*Batch) []expr.Any { return exprs }}
}

// Verdict returns a verdict; chain is the target of a jump.
func Verdict(kind expr.VerdictKind, chain string) *expr.Verdict {
	return &expr.Verdict{Kind: kind, Chain: chain}
}

// Jump evaluates a chain, and what follows unless that chain has a verdict.
func Jump(chain string) Statement {
	return Plain("jump "+chain, Verdict(expr.VerdictJump, chain))
}

// GoTo evaluates a chain instead of what follows.
func GoTo(chain string) Statement {
	return Plain("goto "+chain, Verdict(expr.VerdictGoto, chain))
}

// Drop drops the packet.
func Drop() Statement { return Plain("drop", Verdict(expr.VerdictDrop, "")) }

// Accept ends the evaluation of the base chain.
func Accept() Statement { return Plain("accept", Verdict(expr.VerdictAccept, "")) }

// Connect opens a connection to the kernel, in the network namespace of a file
// descriptor; 0 is the namespace of this process.
func Connect(netNS int) (*nftables.Conn, error) {
	options := []nftables.ConnOption{nftables.WithSockOptions(func(c *netlink.Conn) error {
		return errors.Join(c.SetReadBuffer(socketBuffer), c.SetWriteBuffer(socketBuffer))
	})}
	if netNS != 0 {
		options = append(options, nftables.WithNetNSFd(netNS))
	}
	return nftables.New(options...)
}

// socketBuffer bounds the size of a transaction, in bytes: all messages are in
// one send, and the kernel queues an answer to each before the first is read.
// The memory is not allocated in advance.
const socketBuffer = 256 << 20

// Batch collects the messages of a transaction for one family's table.
type Batch struct {
	Conn   *nftables.Conn
	Family Family
	Table  *nftables.Table
	Err    error
}

// Fail records an error.
func (b *Batch) Fail(err error) { b.Err = errors.Join(b.Err, err) }

// AddSet adds a set with elements.
func (b *Batch) AddSet(set *nftables.Set, elements []nftables.SetElement) {
	if err := b.Conn.AddSet(set, elements); err != nil {
		b.Fail(err)
	}
}

// Clear replaces the table with an empty one, whatever was there.
func (b *Batch) Clear() {
	b.Conn.AddTable(b.Table)
	b.Conn.DelTable(b.Table)
	b.Conn.AddTable(b.Table)
}

// MaxElements keeps the elements of a set within a netlink attribute (64 KiB).
const MaxElements = 500

// UpdateElements removes elements from a set and adds others.
func (b *Batch) UpdateElements(set *nftables.Set, removed, added []nftables.SetElement) {
	for part := range slices.Chunk(removed, MaxElements) {
		if err := b.Conn.SetDeleteElements(set, part); err != nil {
			b.Fail(err)
		}
	}
	for part := range slices.Chunk(added, MaxElements) {
		if err := b.Conn.SetAddElements(set, part); err != nil {
			b.Fail(err)
		}
	}
}

// UpdateChains adds the chains that are new, and replaces the rules of those that
// differ. describe returns a chain of the table by its name.
func (b *Batch) UpdateChains(before, next map[string][]Rule, describe func(name string) *nftables.Chain) {
	for name := range next {
		if _, ok := before[name]; !ok {
			b.Conn.AddChain(describe(name))
		}
	}
	for name, rules := range next {
		old, existed := before[name]
		if existed && slices.EqualFunc(old, rules, func(a, b Rule) bool { return a.String() == b.String() }) {
			continue
		}
		chain := &nftables.Chain{Name: name, Table: b.Table}
		if existed {
			b.Conn.FlushChain(chain)
		}
		for _, r := range rules {
			var exprs []expr.Any
			for _, s := range r {
				exprs = append(exprs, s.Build(b)...)
			}
			b.Conn.AddRule(&nftables.Rule{Table: b.Table, Chain: chain, Exprs: exprs})
		}
	}
}

// RemoveChains removes the chains that are not in next. Nothing else may refer to
// them.
func (b *Batch) RemoveChains(before, next map[string][]Rule) {
	// They may refer to each other: empty all of them first.
	var gone []*nftables.Chain
	for name := range before {
		if _, ok := next[name]; !ok {
			gone = append(gone, &nftables.Chain{Name: name, Table: b.Table})
		}
	}
	for _, chain := range gone {
		b.Conn.FlushChain(chain)
	}
	for _, chain := range gone {
		b.Conn.DelChain(chain)
	}
}

// ProtocolNumber returns the number of a protocol.
func ProtocolNumber(p v1.Protocol) byte {
	switch p {
	case v1.ProtocolUDP:
		return unix.IPPROTO_UDP
	case v1.ProtocolSCTP:
		return unix.IPPROTO_SCTP
	}
	return unix.IPPROTO_TCP
}
