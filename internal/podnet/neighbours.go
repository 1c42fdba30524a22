package podnet

import (
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// bridgePrefix begins the names of the bridges of all clusters on a machine.
const bridgePrefix = "cor-"

const neighbourChain = "forward"

// guardNeighbours adds the chain that keeps the pods of this machine's other
// clusters out, which the kernel would route here:
//
//	iifname cor-* iifname != BRIDGE ct original ip daddr POD-OR-SERVICE-CIDR drop
//
// What is published on the node's addresses, as node ports are, stays open.
func (n *Network) guardNeighbours(conn *nftables.Conn, t *nftables.Table, pods []netip.Prefix) {
	chain := conn.AddChain(&nftables.Chain{
		Name: neighbourChain, Table: t, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter,
	})
	for _, p := range append(append([]netip.Prefix(nil), pods...), n.config.ServiceCIDRs...) {
		rule := []expr.Any{
			&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte(bridgePrefix)}, // without the zeros: names that begin so
			&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: interfaceName(Bridge(n.config.Name))},
		}
		rule = append(rule, family(p.Addr())...)
		rule = append(rule, &expr.Ct{Register: 1, Key: expr.CtKeyDST})
		rule = append(rule, within(p, expr.CmpOpEq)...)
		conn.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: append(rule, &expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop})})
	}
}
