package podnet

import (
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"

	"github.com/coracle-io/coracle/internal/clusternames"
	"github.com/coracle-io/coracle/internal/host/tree"
	"github.com/coracle-io/coracle/internal/netdump"
	"github.com/coracle-io/coracle/internal/sharedfile"
)

// Remove removes the configuration, the leases, the CNI library's records of
// its pods, the bridge with the pods' interfaces, the routes and the tunnel to the
// pods of other nodes, and the nftables tables. It ends forwarding of IPv6 if that began
// with a cluster, and nobody else is seen to need it.
// Calling it again is no error. Other kernel settings, such as forwarding of IPv4, stay,
// because programs may rely on them.
func (n *Network) Remove() error {
	if err := sharedfile.RemoveUnfinished(n.confFile()); err != nil {
		return err
	}
	if err := os.Remove(n.confFile()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := removeBridge(clusternames.Bridge(n.config.Name)); err != nil {
		return err
	}
	if _, err := (Routes{Name: n.config.Name, ClusterCIDRs: n.config.ClusterCIDRs}).Apply(Plan{}); err != nil {
		return err
	}
	if err := n.removeTable(); err != nil {
		return fmt.Errorf("removing nftables table %s: %w", table(n.config.Name).Name, err)
	}
	if err := n.removePins(); err != nil {
		return fmt.Errorf("removing nftables table bridge %s: %w", table(n.config.Name).Name, err)
	}
	note, err := n.note()
	if err == nil && note != "" {
		err = restoreIPv6(note, n.othersForward)
	}
	if err != nil {
		return fmt.Errorf("ending the forwarding of IPv6: %w", err)
	}
	if err := n.removeResults(); err != nil {
		return err
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
	links, err := netdump.Complete(netlink.LinkList)
	if err != nil {
		return fmt.Errorf("listing interfaces: %w", err)
	}
	for _, link := range links {
		if link.Attrs().MasterIndex != bridge.Attrs().Index {
			continue
		}
		// Removing the other end may have removed this one.
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
