package podnet

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
)

var loopback = netip.MustParsePrefix("127.0.0.0/8")

// routeLoopback lets the node reach host ports of its pods at 127.0.0.1: the
// kernel then routes loopback addresses over the pods' bridge, which is made
// here for that if the CNI plugin has not made it yet. What pods send there
// themselves is dropped by guardLoopback.
func (n *Network) routeLoopback() error {
	name := Bridge(n.config.Name)
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name, MTU: n.config.MTU}}
	switch err := netlink.LinkAdd(bridge); {
	case errors.Is(err, fs.ErrExist):
		there, err := netlink.LinkByName(name)
		if err == nil {
			err = netlink.LinkSetUp(there)
		}
		if err != nil {
			return fmt.Errorf("setting bridge %s up: %w", name, err)
		}
	case err != nil:
		return fmt.Errorf("making bridge %s: %w", name, err)
	default:
		if err := errors.Join(n.attach(bridge), netlink.LinkSetUp(bridge)); err != nil {
			// The next attempt begins anew.
			return fmt.Errorf("putting the interfaces of running pods onto bridge %s: %w", name, errors.Join(err, netlink.LinkDel(bridge)))
		}
	}
	path := filepath.Join("/proc/sys/net/ipv4/conf", name, "route_localnet")
	if err := os.WriteFile(path, []byte("1"), 0o644); err != nil {
		return fmt.Errorf("setting %s to 1: %w", path, err)
	}
	return nil
}

const loopbackChain = "prerouting"

// guardLoopback adds the chain that keeps pods away from what listens on the
// node's loopback interface (CVE-2020-8558):
//
//	iifname BRIDGE ip daddr 127.0.0.0/8 drop
func (n *Network) guardLoopback(conn *nftables.Conn, t *nftables.Table) {
	chain := conn.AddChain(&nftables.Chain{
		Name: loopbackChain, Table: t, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityRaw,
	})
	rule := []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: interfaceName(Bridge(n.config.Name))},
	}
	rule = append(rule, family(loopback.Addr())...)
	rule = append(rule, address(loopback, destination, expr.CmpOpEq)...)
	conn.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: append(rule, &expr.Verdict{Kind: expr.VerdictDrop})})
}
