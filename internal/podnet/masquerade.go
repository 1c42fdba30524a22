package podnet

import (
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// table is the nftables table of a cluster's pod network.
func table(name string) *nftables.Table {
	return &nftables.Table{Family: nftables.TableFamilyINet, Name: "coracle-podnet-" + name}
}

const masqueradeChain = "postrouting"

// masquerade replaces the table, in one transaction, by one that gives what
// the node's pods send out of the cluster the node's address:
//
//	ip saddr POD-CIDR ip daddr != CLUSTER-CIDR oifname != BRIDGE masquerade
//
// The table has the guards of the loopback addresses and against the pods of
// other clusters, too.
func (n *Network) masquerade(podCIDRs []netip.Prefix) error {
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	t := conn.AddTable(table(n.config.Name))
	conn.DelTable(t)
	t = conn.AddTable(table(n.config.Name))
	n.guardLoopback(conn, t)
	cluster := n.cluster(podCIDRs)
	n.guardNeighbours(conn, t, cluster)
	chain := conn.AddChain(&nftables.Chain{
		Name: masqueradeChain, Table: t, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource,
	})
	for _, p := range podCIDRs {
		var rule []expr.Any
		rule = append(rule, family(p.Addr())...)
		rule = append(rule, address(p, source, expr.CmpOpEq)...)
		for _, c := range cluster {
			if c.Addr().Is4() == p.Addr().Is4() {
				rule = append(rule, address(c, destination, expr.CmpOpNeq)...)
			}
		}
		rule = append(rule,
			&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: interfaceName(Bridge(n.config.Name))},
			&expr.Counter{},
			&expr.Masq{Random: true, FullyRandom: true},
		)
		conn.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: rule})
	}
	return conn.Flush()
}

// removeTable removes the table if it is there.
func (n *Network) removeTable() error {
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	// Adding first makes the removal succeed when there is none.
	conn.DelTable(conn.AddTable(table(n.config.Name)))
	return conn.Flush()
}

func family(a netip.Addr) []expr.Any {
	protocol := byte(2) // NFPROTO_IPV4
	if a.Is6() {
		protocol = 10 // NFPROTO_IPV6
	}
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{protocol}},
	}
}

type side int

const (
	source side = iota
	destination
)

// address compares a packet's address with a prefix.
func address(p netip.Prefix, which side, op expr.CmpOp) []expr.Any {
	offset, size := uint32(12), uint32(4)
	if p.Addr().Is6() {
		offset, size = 8, 16
	}
	if which == destination {
		offset += size
	}
	return append([]expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: size},
	}, within(p, op)...)
}

// within compares the address in register 1 with a prefix.
func within(p netip.Prefix, op expr.CmpOp) []expr.Any {
	network := p.Masked().Addr().AsSlice()
	mask := make([]byte, len(network))
	for bit := range p.Bits() {
		mask[bit/8] |= 0x80 >> (bit % 8)
	}
	return []expr.Any{
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: uint32(len(mask)), Mask: mask, Xor: make([]byte, len(mask))},
		&expr.Cmp{Op: op, Register: 1, Data: network},
	}
}

// interfaceName is a name as the kernel compares it, filled with zeros.
func interfaceName(name string) []byte {
	padded := make([]byte, 16)
	copy(padded, name)
	return padded
}
