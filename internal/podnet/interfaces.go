package podnet

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/coracle-io/coracle/internal/clusternames"
	"github.com/coracle-io/coracle/internal/netdump"
)

// Interface is an interface of this machine that has addresses.
type Interface struct {
	Name string
	MTU  int
	// Shared says that the interface asks for the hardware addresses of its
	// neighbours, so that each of them can be a next hop. Tunnels do not: their other
	// end may drop what is not addressed to it.
	Shared   bool
	Prefixes []netip.Prefix // its addresses, each with the length of its subnet
}

// Interfaces returns the interfaces with addresses that other machines may reach,
// without those of clusters and loopback.
func Interfaces() ([]Interface, error) {
	of, err := netdump.GlobalAddresses()
	if err != nil {
		return nil, err
	}
	var all []Interface
	for _, index := range slices.Sorted(maps.Keys(of)) {
		link, err := netlink.LinkByIndex(index)
		if isMissing(err) {
			continue // it was just removed
		}
		if err != nil {
			return nil, fmt.Errorf("looking for interface %d: %w", index, err)
		}
		is := link.Attrs()
		if is.RawFlags&unix.IFF_LOOPBACK != 0 || clusternames.IsClusters(is.Name) {
			continue
		}
		all = append(all, Interface{Name: is.Name, MTU: is.MTU, Shared: is.RawFlags&(unix.IFF_NOARP|unix.IFF_POINTOPOINT) == 0, Prefixes: of[index]})
	}
	return all, nil
}

// linkTo returns the name of the interface with one of this node's own addresses in
// whose subnet another address is, "" if there is none. Subnets of other addresses
// do not count: a node there would not find this one in its own subnet, and would
// send to it in another way.
func linkTo(address netip.Addr, own []netip.Addr, interfaces []Interface) string {
	for _, i := range interfaces {
		for _, p := range i.Prefixes {
			if i.Shared && slices.Contains(own, p.Addr()) && p.Masked().Contains(address) {
				return i.Name
			}
		}
	}
	return ""
}

// mtuAt returns the MTU of the interface with an address, 0 if there is none.
func mtuAt(address netip.Addr, interfaces []Interface) int {
	for _, i := range interfaces {
		if slices.ContainsFunc(i.Prefixes, func(p netip.Prefix) bool { return p.Addr() == address }) {
			return i.MTU
		}
	}
	return 0
}
