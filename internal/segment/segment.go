// Package segment connects the nodes of a machine. The machine is the first
// node. Each further node is a network namespace with an interface on a bridge
// of the machine:
//
//	machine (node 1)                  RUN/2/netns (node 2)
//	  cos-NAME, 10.212.0.1 ── cos-NAME.2 ═ eth0, 10.212.0.2; cor-NAME.2 ── pods
//	   └───────────────────── cos-NAME.3 ═ eth0, 10.212.0.3 …
//
// With two ranges, all of these interfaces have an address of each.
//
// A namespace is held by a bind mount, so that it outlives the processes of its
// node. Every function that makes something makes what is missing of it, and may
// be called again.
package segment

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/coracle-io/coracle/internal/clusternames"
	"github.com/coracle-io/coracle/internal/netdump"
)

// Segment is the link that the nodes of a machine share.
type Segment struct {
	cluster string
	cidrs   []netip.Prefix
}

// New returns the segment of a cluster whose nodes have their addresses from a
// range, or from one of each family. It changes nothing.
func New(cluster string, cidrs ...netip.Prefix) Segment { return Segment{cluster, cidrs} }

// Link returns the name of the machine's interface on the segment.
func (s Segment) Link() string { return clusternames.Segment(s.cluster) }

// Gateway returns the machine's address on the segment, from the first range.
func (s Segment) Gateway() netip.Addr { return s.Address(1) }

// Address returns the address of a node, numbered from 1, from the first range. It
// is invalid if Addresses returns none.
func (s Segment) Address(node int) netip.Addr {
	if addresses := s.Addresses(node); len(addresses) > 0 {
		return addresses[0]
	}
	return netip.Addr{}
}

// Addresses returns the addresses of a node, numbered from 1, in the order of the
// ranges. It returns none if a range has no such address, or only as its broadcast
// address.
func (s Segment) Addresses(node int) []netip.Addr {
	var addresses []netip.Addr
	for _, cidr := range s.cidrs {
		a := cidr.Masked().Addr()
		for range node {
			a = a.Next()
		}
		if next := a.Next(); !cidr.Contains(a) || !cidr.Contains(next) {
			return nil
		}
		addresses = append(addresses, a)
	}
	return addresses
}

// network returns an address with the length of the prefix of its range.
func (s Segment) network(a netip.Addr) *netlink.Addr {
	for _, cidr := range s.cidrs {
		if !cidr.Contains(a) {
			continue
		}
		address := &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(cidr.Bits(), a.BitLen())}}
		if a.Is6() {
			address.Flags = unix.IFA_F_NODAD // its number determines it, and it works at once
		}
		return address
	}
	return nil
}

// Keep makes the bridge with the machine's address, and attaches the interfaces
// of nodes 2 to nodes. What fails for one of them does not keep it from the others.
// Call it in the machine's network namespace.
func (s Segment) Keep(nodes int) error {
	bridge, err := s.bridge()
	if err != nil {
		return err
	}
	var errs []error
	for node := 2; node <= nodes; node++ {
		if err := s.attach(node, bridge); err != nil {
			errs = append(errs, fmt.Errorf("attaching interface %s to bridge %s: %w", s.port(node), s.Link(), err))
		}
	}
	return errors.Join(errs...)
}

// attach attaches the interface of a node to the bridge. A node that has not
// joined yet is no error. A node may be sent back what it sent to a port of this
// machine's Services: where bridges ask the packet filter, the bridge does that
// itself, and only at a port in hairpin mode.
func (s Segment) attach(node int, bridge netlink.Link) error {
	port, err := netlink.LinkByName(s.port(node))
	if isMissing(err) {
		return nil
	}
	if err == nil && port.Attrs().MasterIndex != bridge.Attrs().Index {
		err = errors.Join(netlink.LinkSetMaster(port, bridge), netlink.LinkSetHairpin(port, true))
	}
	if err == nil && port.Attrs().Flags&net.FlagUp == 0 {
		err = netlink.LinkSetUp(port)
	}
	return err
}

// bridge returns the bridge, which it makes if it is missing. Its hardware address
// is fixed: otherwise the kernel takes that of a port, and a node whose neighbour
// table has the former one is cut off when the port leaves.
func (s Segment) bridge() (netlink.Link, error) {
	bridge, err := netlink.LinkByName(s.Link())
	if isMissing(err) {
		err = netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: s.Link(), HardwareAddr: s.hardwareAddr()}})
		if err != nil && !errors.Is(err, fs.ErrExist) { // another process has made it meanwhile
			return nil, fmt.Errorf("making bridge %s: %w", s.Link(), err)
		}
		bridge, err = netlink.LinkByName(s.Link())
	}
	if err == nil && !bytes.Equal(bridge.Attrs().HardwareAddr, s.hardwareAddr()) {
		err = netlink.LinkSetHardwareAddr(bridge, s.hardwareAddr())
	}
	if err == nil {
		err = s.setUp(bridge, s.Addresses(1))
	}
	if err != nil {
		return nil, fmt.Errorf("setting up bridge %s with %v: %w", s.Link(), s.Addresses(1), err)
	}
	return bridge, nil
}

// hardwareAddr returns the hardware address of the bridge: a locally administered
// one that the cluster's name determines.
func (s Segment) hardwareAddr() net.HardwareAddr {
	digest := sha256.Sum256([]byte(s.Link()))
	return append(net.HardwareAddr{0x02}, digest[:5]...)
}

// setUp sets an interface of the segment up and gives it addresses. Its other
// addresses stay.
func (s Segment) setUp(link netlink.Link, addresses []netip.Addr) error {
	if link.Attrs().Flags&net.FlagUp == 0 {
		if err := netlink.LinkSetUp(link); err != nil {
			return err
		}
	}
	present, err := netdump.Complete(func() ([]netlink.Addr, error) { return netlink.AddrList(link, netlink.FAMILY_ALL) })
	if err != nil {
		return err
	}
	var errs []error
	for _, address := range addresses {
		want := s.network(address)
		if !slices.ContainsFunc(present, func(a netlink.Addr) bool { return a.IP.Equal(want.IP) && bytes.Equal(a.Mask, want.Mask) }) {
			errs = append(errs, netlink.AddrReplace(link, want))
		}
	}
	return errors.Join(errs...)
}

// port returns the name of the machine's end of a node's interface.
func (s Segment) port(node int) string { return clusternames.SegmentPort(s.cluster, node) }

// Remove removes the bridge. A missing one is no error.
func (s Segment) Remove() error { return removeLink(s.Link()) }

// removeLink removes an interface of the machine, if it is there.
func removeLink(name string) error {
	link, err := netlink.LinkByName(name)
	if isMissing(err) {
		return nil
	}
	if err == nil {
		if err = netlink.LinkDel(link); err != nil {
			if _, gone := netlink.LinkByIndex(link.Attrs().Index); isMissing(gone) {
				return nil // its other end was removed, and the link with it
			}
		}
	}
	if err != nil {
		return fmt.Errorf("removing interface %s: %w", name, err)
	}
	return nil
}

func isMissing(err error) bool {
	_, missing := errors.AsType[netlink.LinkNotFoundError](err)
	return missing
}
