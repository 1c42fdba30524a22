package podnet

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/coracle-io/coracle/internal/clusternames"
	"github.com/coracle-io/coracle/internal/nft"
)

// table returns the nftables table of a cluster's pod network.
func table(name string) *nftables.Table {
	return &nftables.Table{Family: nftables.TableFamilyINet, Name: clusternames.PodNetworkTable(name)}
}

const masqueradeChain = "postrouting"

// masquerade replaces the table in one transaction. Packets that the node's pods
// send out of the cluster get the node's address. Packets that further nodes
// send out of the machine get the machine's address:
//
//	ip saddr POD-CIDR ip daddr != CLUSTER-CIDR oifname != BRIDGE masquerade
//	ip saddr NODES ip daddr != CLUSTER-CIDR ip daddr != NODES oifname != NODES-LINK masquerade
//
// The table also has the chains of dropLoopback, isolateClusters and guardTunnel, and in an
// encrypted network those of sealPods. Such a network has no tunnel to guard itself, but
// its machine may be one of another cluster that has.
func (n *Network) masquerade(podCIDRs []netip.Prefix) error {
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	t := conn.AddTable(table(n.config.Name))
	conn.DelTable(t)
	t = conn.AddTable(table(n.config.Name))
	n.dropLoopback(conn, t)
	cluster := n.cluster(podCIDRs)
	n.isolateClusters(conn, t, cluster)
	n.guardTunnel(conn, t, podCIDRs)
	if n.config.Encrypt {
		n.sealPods(conn, t, cluster)
	}
	chain := conn.AddChain(&nftables.Chain{
		Name: masqueradeChain, Table: t, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource,
	})
	for _, p := range podCIDRs {
		conn.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: masqueraded(p, cluster, clusternames.Bridge(n.config.Name))})
	}
	for _, nodes := range n.config.Nodes {
		inner := append([]netip.Prefix{nodes}, cluster...)
		conn.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: masqueraded(nodes, inner, n.config.NodesLink)})
	}
	return conn.Flush()
}

// ShareNodes does what cannot wait for this node's pod CIDRs, with which Configure does
// it: it lets further nodes reach the world by this one, and seals an encrypted network,
// because the node itself sends to pods before. It does nothing if there is neither, or
// the table is there.
func (n *Network) ShareNodes() error {
	if len(n.config.Nodes) == 0 && !n.config.Encrypt {
		return nil
	}
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	t := table(n.config.Name)
	chains, err := conn.ListChainsOfTableFamily(t.Family)
	if err != nil {
		return fmt.Errorf("listing chains: %w", err)
	}
	if slices.ContainsFunc(chains, func(c *nftables.Chain) bool { return c.Table.Name == t.Name }) {
		return nil
	}
	if len(n.config.Nodes) > 0 {
		if err := n.Forward(n.config.Nodes); err != nil {
			return err
		}
	}
	return n.masquerade(nil)
}

// masqueraded returns the rule that masquerades what a range sends to addresses
// outside of inner, by another interface than link.
func masqueraded(from netip.Prefix, inner []netip.Prefix, link string) []expr.Any {
	rule := append(family(from.Addr()), address(from, source, expr.CmpOpEq)...)
	for _, c := range inner {
		if c.Addr().Is4() == from.Addr().Is4() {
			rule = append(rule, address(c, destination, expr.CmpOpNeq)...)
		}
	}
	return append(rule,
		&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: nft.InterfaceName(link)},
		&expr.Counter{},
		&expr.Masq{Random: true, FullyRandom: true},
	)
}

// removeTable removes the table if it is there.
func (n *Network) removeTable() error {
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	// Adding the table first lets the removal succeed if there is none.
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
	}, nft.InPrefix(p, op)...)
}
