package podnet

import (
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/coracle-io/coracle/internal/clusternames"
	"github.com/coracle-io/coracle/internal/nft"
)

const (
	sealIn  = "sealed-in"
	sealOut = "sealed-out"
)

// sealPods adds the chains of an encrypted network that drop what would pass the
// tunnel by: packets that another machine sends with the address of a pod, and those
// for pods to which there is no way through the tunnel, or not yet:
//
//	sealed-in:  ip saddr CLUSTER-CIDR iifname != BRIDGE iifname != TUNNEL iifname != NODES-LINK iifname != lo drop
//	sealed-out: ip daddr CLUSTER-CIDR oifname != BRIDGE oifname != TUNNEL oifname != NODES-LINK oifname != lo drop
func (n *Network) sealPods(conn *nftables.Conn, t *nftables.Table, cluster []netip.Prefix) {
	for _, c := range []struct {
		name string
		hook *nftables.ChainHook
		side side
		key  expr.MetaKey
	}{
		{sealIn, nftables.ChainHookPrerouting, source, expr.MetaKeyIIFNAME},
		{sealOut, nftables.ChainHookPostrouting, destination, expr.MetaKeyOIFNAME},
	} {
		chain := conn.AddChain(&nftables.Chain{Name: c.name, Table: t, Type: nftables.ChainTypeFilter, Hooknum: c.hook, Priority: nftables.ChainPriorityFilter})
		for _, p := range cluster {
			rule := append(family(p.Addr()), address(p, c.side, expr.CmpOpEq)...)
			for _, inside := range []string{clusternames.Bridge(n.config.Name), clusternames.Tunnel(n.config.Name), n.config.NodesLink, "lo"} {
				if inside != "" {
					rule = append(rule, &expr.Meta{Key: c.key, Register: 1}, &expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: nft.InterfaceName(inside)})
				}
			}
			conn.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: append(rule, &expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop})})
		}
	}
}
