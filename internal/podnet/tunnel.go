package podnet

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/coracle-io/coracle/internal/netdump"
	"github.com/coracle-io/coracle/internal/wireguard"
)

// TunnelPort is the UDP port of the tunnel of VXLAN, that of flannel and of Linux. Clusters
// of one machine share it, because their identifiers differ.
const TunnelPort = 8472

// apply makes the interface what it should be, and its tables. In an encrypted network,
// encryption keeps the interface, which then has peers in place of tables. apply reports
// whether anything had to be changed.
func (t Tunnel) apply(encryption *wireguard.Device) (changed bool, err error) {
	var link netlink.Link
	steps := []func(netlink.Link) (bool, error){t.keepAddresses}
	if encryption != nil {
		link, changed, err = encryption.Apply(t.Link, t.MTU, t.Peers)
	} else {
		link, changed, err = t.device()
		steps = append(steps, t.keepForwarding, t.keepNeighbours)
	}
	if err != nil {
		return changed, fmt.Errorf("setting up the tunnel %s to other machines: %w", t.Link, err)
	}
	var errs []error
	for _, step := range steps {
		did, err := step(link)
		changed, errs = changed || did, append(errs, err)
	}
	return changed, errors.Join(errs...)
}

// device returns the interface. It makes one in place of another one that was not
// made for this tunnel, or for another address of this node.
func (t Tunnel) device() (link netlink.Link, changed bool, err error) {
	present, err := netlink.LinkByName(t.Link)
	switch {
	case isMissing(err):
	case err != nil:
		return nil, false, err
	case t.fits(present):
		changed, err = t.setUp(present)
		return present, changed, err
	default:
		if err := netlink.LinkDel(present); err != nil && linkExists(present) {
			return nil, false, err
		}
	}
	device := &netlink.Vxlan{
		LinkAttrs: netlink.LinkAttrs{Name: t.Link, MTU: t.MTU, HardwareAddr: t.Hardware[:]},
		VxlanId:   t.Identifier, SrcAddr: t.Local.AsSlice(), Port: TunnelPort,
	}
	if err := netlink.LinkAdd(device); errors.Is(err, unix.EOPNOTSUPP) {
		return nil, false, fmt.Errorf("the kernel module vxlan is missing, which carries the traffic to nodes on other networks: modprobe vxlan: %w", err)
	} else if err != nil {
		return nil, false, err
	}
	_, err = t.setUp(device)
	return device, true, err
}

// fits reports whether an interface is that of the tunnel, apart from its MTU.
func (t Tunnel) fits(link netlink.Link) bool {
	is, ok := link.(*netlink.Vxlan)
	return ok && is.VxlanId == t.Identifier && is.Port == TunnelPort && !is.Learning && is.SrcAddr.Equal(t.Local.AsSlice()) && bytes.Equal(is.HardwareAddr, t.Hardware[:])
}

// setUp sets the MTU of the interface, and the interface up.
func (t Tunnel) setUp(link netlink.Link) (changed bool, err error) {
	if link.Attrs().MTU != t.MTU {
		changed, err = true, netlink.LinkSetMTU(link, t.MTU)
	}
	if err == nil && link.Attrs().Flags&net.FlagUp == 0 {
		changed, err = true, netlink.LinkSetUp(link)
	}
	return changed, err
}

// keepAddresses gives the interface the first addresses of this node's pod CIDRs,
// from which the node itself sends to pods of others. The bridge of the pods has
// them as well, once there is a pod.
func (t Tunnel) keepAddresses(link netlink.Link) (changed bool, err error) {
	present, err := netdump.Complete(func() ([]netlink.Addr, error) { return netlink.AddrList(link, netlink.FAMILY_ALL) })
	if err != nil {
		return false, fmt.Errorf("listing the addresses of %s: %w", t.Link, err)
	}
	var errs []error
	missing := slices.Clone(t.Hops)
	for _, a := range present {
		address, _ := netip.AddrFromSlice(a.IP)
		address = address.Unmap()
		bits, _ := a.Mask.Size()
		switch {
		case address.IsLinkLocalUnicast(): // the kernel's own
		case slices.Contains(t.Hops, address) && bits == address.BitLen():
			missing = slices.DeleteFunc(missing, func(hop netip.Addr) bool { return hop == address })
		default:
			changed, errs = true, append(errs, netlink.AddrDel(link, &a))
		}
	}
	for _, hop := range missing {
		address := &netlink.Addr{IPNet: &net.IPNet{IP: hop.AsSlice(), Mask: net.CIDRMask(hop.BitLen(), hop.BitLen())}}
		if hop.Is6() {
			address.Flags = unix.IFA_F_NODAD // it is this node's, and neighbours are not asked
		}
		changed, errs = true, append(errs, netlink.AddrReplace(link, address))
	}
	if err := errors.Join(errs...); err != nil {
		return changed, fmt.Errorf("giving %s the addresses %v: %w", t.Link, t.Hops, err)
	}
	return changed, nil
}

// entry is an entry of a table of the interface: an address with the hardware
// address that it has or, in the forwarding table, that leads to it.
type entry struct {
	address  netip.Addr
	hardware hardware
}

// keepForwarding makes the forwarding table of the interface that of the endpoints:
// which node has which hardware address.
func (t Tunnel) keepForwarding(link netlink.Link) (changed bool, err error) {
	var wanted []entry
	for _, e := range t.Endpoints { // a node with ranges of both families has two
		if is := (entry{e.Node, e.Hardware}); !slices.Contains(wanted, is) {
			wanted = append(wanted, is)
		}
	}
	return keepEntries(link, unix.AF_BRIDGE, wanted)
}

// keepNeighbours makes the neighbour tables of the interface those of the
// endpoints: which hardware address the next hops of routes have.
func (t Tunnel) keepNeighbours(link netlink.Link) (changed bool, err error) {
	var wanted4, wanted6 []entry
	for _, e := range t.Endpoints {
		if is := (entry{e.Hop, e.Hardware}); e.Hop.Is4() {
			wanted4 = append(wanted4, is)
		} else {
			wanted6 = append(wanted6, is)
		}
	}
	changed4, err4 := keepEntries(link, unix.AF_INET, wanted4)
	changed6, err6 := keepEntries(link, unix.AF_INET6, wanted6)
	return changed4 || changed6, errors.Join(err4, err6)
}

// keepEntries makes the permanent entries of one of the interface's tables those
// that are wanted. The family of the forwarding table is unix.AF_BRIDGE.
func keepEntries(link netlink.Link, family int, wanted []entry) (changed bool, err error) {
	index, name := link.Attrs().Index, link.Attrs().Name
	present, err := netdump.Complete(func() ([]netlink.Neigh, error) { return netlink.NeighList(index, family) })
	if err != nil {
		return false, fmt.Errorf("listing the neighbours at %s: %w", name, err)
	}
	var errs []error
	missing := slices.Clone(wanted)
	for _, n := range present {
		if n.State&netlink.NUD_PERMANENT == 0 {
			continue // the kernel's own
		}
		is := entryOf(n)
		if slices.Contains(wanted, is) {
			missing = slices.DeleteFunc(missing, func(w entry) bool { return w == is })
			continue
		}
		changed = true
		if err := netlink.NeighDel(&n); err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("removing %s from the neighbours at %s: %w", is.address, name, err))
		}
	}
	for _, w := range missing {
		n := &netlink.Neigh{LinkIndex: index, Family: family, State: netlink.NUD_PERMANENT, IP: w.address.AsSlice(), HardwareAddr: w.hardware[:]}
		if family == unix.AF_BRIDGE {
			n.Flags = netlink.NTF_SELF
		}
		changed = true
		if err := netlink.NeighSet(n); err != nil {
			errs = append(errs, fmt.Errorf("adding %s to the neighbours at %s: %w", w.address, name, err))
		}
	}
	return changed, errors.Join(errs...)
}

// entryOf returns an entry of the kernel.
func entryOf(n netlink.Neigh) entry {
	var is entry
	if address, ok := netip.AddrFromSlice(n.IP); ok {
		is.address = address.Unmap()
	}
	copy(is.hardware[:], n.HardwareAddr)
	return is
}

// removeTunnel removes the interface. It reports whether there was one.
func removeTunnel(name string) (removed bool, err error) {
	link, err := netlink.LinkByName(name)
	if isMissing(err) {
		return false, nil
	}
	if err == nil {
		if err = netlink.LinkDel(link); err != nil && !linkExists(link) {
			err = nil
		}
	}
	if err != nil {
		return false, fmt.Errorf("removing the tunnel %s: %w", name, err)
	}
	return true, nil
}
