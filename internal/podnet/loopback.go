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

	"github.com/coracle-io/coracle/internal/clusternames"
	"github.com/coracle-io/coracle/internal/nft"
)

var loopback = netip.MustParsePrefix("127.0.0.0/8")

// routeLoopback lets the node reach host ports of its pods at 127.0.0.1: the
// kernel then routes loopback addresses over the pods' bridge. It creates the
// bridge if the CNI plugin has not done so yet. dropLoopback drops what pods
// themselves send to these addresses.
func (n *Network) routeLoopback() error {
	name := clusternames.Bridge(n.config.Name)
	mtu, err := n.mtu()
	if err != nil {
		return fmt.Errorf("finding the MTU of bridge %s: %w", name, err)
	}
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name, MTU: mtu}}
	switch err := netlink.LinkAdd(bridge); {
	case errors.Is(err, fs.ErrExist):
		there, err := netlink.LinkByName(name)
		if err == nil { // the CNI plugin may have made it, for one pod
			err = errors.Join(n.attach(there), netlink.LinkSetUp(there))
		}
		if err != nil {
			return fmt.Errorf("setting bridge %s up: %w", name, err)
		}
	case err != nil:
		return fmt.Errorf("making bridge %s: %w", name, err)
	default:
		if err := errors.Join(n.attach(bridge), netlink.LinkSetUp(bridge)); err != nil {
			// The next attempt starts over.
			return fmt.Errorf("putting the interfaces of running pods onto bridge %s: %w", name, errors.Join(err, netlink.LinkDel(bridge)))
		}
	}
	path := n.loopbackSetting()
	if err := os.WriteFile(path, []byte("1"), 0o644); err != nil {
		return fmt.Errorf("setting %s to 1: %w", path, err)
	}
	return nil
}

// loopbackSetting returns the file of the kernel setting that routeLoopback sets.
func (n *Network) loopbackSetting() string {
	return filepath.Join("/proc/sys/net/ipv4/conf", clusternames.Bridge(n.config.Name), "route_localnet")
}

const loopbackChain = "prerouting"

// dropLoopback adds the chain that keeps pods away from what listens on the
// node's loopback interface (CVE-2020-8558):
//
//	iifname BRIDGE ip daddr 127.0.0.0/8 drop
func (n *Network) dropLoopback(conn *nftables.Conn, t *nftables.Table) {
	chain := conn.AddChain(&nftables.Chain{
		Name: loopbackChain, Table: t, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityRaw,
	})
	rule := []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: nft.InterfaceName(clusternames.Bridge(n.config.Name))},
	}
	rule = append(rule, family(loopback.Addr())...)
	rule = append(rule, address(loopback, destination, expr.CmpOpEq)...)
	conn.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: append(rule, &expr.Verdict{Kind: expr.VerdictDrop})})
}
