package podnet

import (
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"

	"github.com/coracle-io/coracle/internal/host/tree"
	"github.com/coracle-io/coracle/internal/sharedfile"
)

// Remove takes away the configuration, the leases, the CNI library's notes on
// its pods, the bridge with the pods'
// interfaces on it, and the nftables table. It may be repeated. The kernel
// settings stay: others on the machine may rely on them by now.
func (n *Network) Remove() error {
	if err := sharedfile.RemoveUnfinished(n.confFile()); err != nil {
		return err
	}
	if err := os.Remove(n.confFile()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := removeBridge(Bridge(n.config.Name)); err != nil {
		return err
	}
	if err := n.removeTable(); err != nil {
		return fmt.Errorf("removing nftables table %s: %w", table(n.config.Name).Name, err)
	}
	results, err := n.results()
	if err != nil {
		return err
	}
	for _, path := range results {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return tree.Remove(n.config.LeaseDir)
}

func removeBridge(name string) error {
	bridge, err := netlink.LinkByName(name)
	if isMissing(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking for bridge %s: %w", name, err)
	}
	links, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("listing interfaces: %w", err)
	}
	for _, link := range links {
		if link.Attrs().MasterIndex != bridge.Attrs().Index {
			continue
		}
		// The other end may have taken it along meanwhile.
		if err := netlink.LinkDel(link); err != nil && linkExists(link) {
			return fmt.Errorf("removing interface %s: %w", link.Attrs().Name, err)
		}
	}
	if err := netlink.LinkDel(bridge); err != nil && linkExists(bridge) {
		return fmt.Errorf("removing bridge %s: %w", name, err)
	}
	return nil
}

func linkExists(link netlink.Link) bool {
	_, err := netlink.LinkByIndex(link.Attrs().Index)
	return err == nil
}
