package podnet

import (
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/coracle-io/coracle/internal/clusternames"
	"github.com/coracle-io/coracle/internal/nft"
)

const neighbourChain = "forward"

// neighbour is a kind of interface of clusters on this machine.
type neighbour struct {
	prefix string // of the names of all such interfaces
	own    string // the interface of this cluster
}

// neighbours returns the kinds of interfaces from which packets of other clusters
// arrive.
func neighbours(c Config) []neighbour {
	return []neighbour{
		{clusternames.BridgePrefix, clusternames.Bridge(c.Name)}, {clusternames.SegmentPrefix, c.NodesLink}, {clusternames.TunnelPrefix, clusternames.Tunnel(c.Name)},
	}
}

// isolateClusters adds the chain that drops packets from pods and further nodes of
// other clusters on this machine, and from their other machines, which the kernel
// would route here:
//
//	iifname cor-* iifname != BRIDGE ct original ip daddr POD-OR-SERVICE-CIDR drop
//	iifname cos-* iifname != NODES-LINK ct original ip daddr POD-OR-SERVICE-CIDR drop
//	iifname cov-* iifname != TUNNEL ct original ip daddr POD-OR-SERVICE-CIDR drop
//
// Ports on the node's addresses, such as node ports, stay reachable.
func (n *Network) isolateClusters(conn *nftables.Conn, t *nftables.Table, pods []netip.Prefix) {
	chain := conn.AddChain(&nftables.Chain{
		Name: neighbourChain, Table: t, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter,
	})
	for _, p := range append(append([]netip.Prefix(nil), pods...), n.config.ServiceCIDRs...) {
		for _, from := range neighbours(n.config) {
			rule := []expr.Any{
				&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1},
				&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte(from.prefix)}, // without the zeros: names that begin so
				&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1},
				&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: nft.InterfaceName(from.own)},
			}
			rule = append(rule, family(p.Addr())...)
			rule = append(rule, &expr.Ct{Register: 1, Key: expr.CtKeyDST})
			rule = append(rule, nft.InPrefix(p, expr.CmpOpEq)...)
			conn.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: append(rule, &expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop})})
		}
	}
}
