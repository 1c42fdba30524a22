package podnet

import (
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/coracle-io/coracle/internal/clusternames"
	"github.com/coracle-io/coracle/internal/nft"
)

const (
	guardForward = "tunnel-forward"
	guardInput   = "tunnel-input"
)

// translatedDestination is the bit of a connection's status (IPS_DST_NAT) that says
// that its destination was translated.
const translatedDestination = 1 << 5

// guardTunnel adds the chains that keep pods, and who reaches Services, from
// sending packets with forged addresses into the tunnels of nodes:
//
//	tunnel-forward: ip daddr != CLUSTER-CIDR udp dport 8472 iifname BRIDGE drop
//	tunnel-forward: ip daddr != CLUSTER-CIDR udp dport 8472 ct status dnat drop
//	tunnel-input:   udp dport 8472 iifname BRIDGE drop
//	tunnel-input:   udp dport 8472 ct status dnat drop
//	tunnel-input:   udp dport 8472 ip daddr CLUSTER-CIDR drop
//
// The last one is for pods of other nodes, which may send to all addresses of the
// cluster CIDR. Among them are addresses of nodes, where no tunnel ends.
func (n *Network) guardTunnel(conn *nftables.Conn, t *nftables.Table, podCIDRs []netip.Prefix) {
	chain := func(name string, hook *nftables.ChainHook) *nftables.Chain {
		return conn.AddChain(&nftables.Chain{Name: name, Table: t, Type: nftables.ChainTypeFilter, Hooknum: hook, Priority: nftables.ChainPriorityFilter})
	}
	forward, input := chain(guardForward, nftables.ChainHookForward), chain(guardInput, nftables.ChainHookInput)
	fromPods := []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: nft.InterfaceName(clusternames.Bridge(n.config.Name))},
	}
	translated := []expr.Any{
		&expr.Ct{Register: 1, Key: expr.CtKeySTATUS},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(translatedDestination), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
	}
	drop := func(chain *nftables.Chain, rule []expr.Any, from []expr.Any) {
		rule = append(rule,
			nft.LoadProtocol(1),
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_UDP}},
			nft.LoadPort(1),
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(TunnelPort)},
		)
		rule = append(rule, from...)
		conn.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: append(rule, &expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop})})
	}
	for _, from := range [][]expr.Any{fromPods, translated} {
		for _, p := range podCIDRs {
			rule := family(p.Addr())
			for _, c := range n.cluster(podCIDRs) {
				if c.Addr().Is4() == p.Addr().Is4() {
					rule = append(rule, address(c, destination, expr.CmpOpNeq)...)
				}
			}
			drop(forward, rule, from)
		}
		drop(input, nil, from)
	}
	for _, c := range n.cluster(podCIDRs) {
		drop(input, family(c.Addr()), address(c, destination, expr.CmpOpEq))
	}
}
