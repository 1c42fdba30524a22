package nodeaddress

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/coracle-io/coracle/internal/clusternames"
	"github.com/coracle-io/coracle/internal/netdump"
)

// Kernel is the machine that this process runs on, or its network namespace.
type Kernel struct{}

// Addresses implements Machine.
func (Kernel) Addresses() ([]Address, error) {
	list, err := netdump.Complete(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list the addresses of this machine: %w", err)
	}
	names := map[int]string{}
	var all []Address
	for _, a := range list {
		address, ok := netip.AddrFromSlice(a.IP)
		if !ok {
			continue
		}
		address = address.Unmap()
		bits, _ := a.Mask.Size()
		is := Address{Prefix: netip.PrefixFrom(address, bits)}
		if address.IsGlobalUnicast() {
			is.Interface = nameOf(a.LinkIndex, names)
			is.Lasting = is.Interface != "" && lasting(address, a.Flags) && !clusternames.IsClusters(is.Interface)
		}
		all = append(all, is)
	}
	return all, nil
}

// nameOf returns the name of an interface, "" if that was just removed. It keeps names.
func nameOf(index int, names map[int]string) string {
	name, known := names[index]
	if !known {
		if link, err := netlink.LinkByIndex(index); err == nil { // unlike net.InterfaceByIndex, it does not list all
			name = link.Attrs().Name
		}
		names[index] = name
	}
	return name
}

// lasting reports whether an address with these flags of the kernel (IFA_F_*) stays,
// and is in use. The flag of temporary addresses has another meaning in IPv4.
func lasting(a netip.Addr, flags int) bool {
	const never = unix.IFA_F_TENTATIVE | unix.IFA_F_DADFAILED | unix.IFA_F_DEPRECATED
	return flags&never == 0 && (a.Is4() || flags&unix.IFA_F_TEMPORARY == 0)
}

// DefaultRoutes implements Machine. It leaves out routes on links that are down.
func (Kernel) DefaultRoutes(ipv4 bool) ([]Route, error) {
	family := netlink.FAMILY_V6
	if ipv4 {
		family = netlink.FAMILY_V4
	}
	list, err := netdump.Complete(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_MAIN, Type: unix.RTN_UNICAST}, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_TYPE)
	})
	if err != nil {
		return nil, fmt.Errorf("list the default routes of this machine: %w", err)
	}
	slices.SortStableFunc(list, func(a, b netlink.Route) int { return cmp.Compare(a.Priority, b.Priority) })
	names := map[int]string{}
	var all []Route
	for _, r := range list {
		if r.Dst != nil {
			if bits, _ := r.Dst.Mask.Size(); bits > 0 {
				continue
			}
		}
		source, _ := netip.AddrFromSlice(r.Src)
		hops := []netlink.NexthopInfo{{LinkIndex: r.LinkIndex, Gw: r.Gw, Flags: r.Flags}}
		if len(r.MultiPath) > 0 {
			hops = nil
			for _, hop := range r.MultiPath {
				hops = append(hops, *hop)
			}
		}
		for _, hop := range hops {
			name := nameOf(hop.LinkIndex, names)
			if name == "" || hop.Flags&(unix.RTNH_F_DEAD|unix.RTNH_F_LINKDOWN) != 0 {
				continue
			}
			gateway, _ := netip.AddrFromSlice(hop.Gw)
			all = append(all, Route{Interface: name, Gateway: gateway.Unmap(), Source: source.Unmap()})
		}
	}
	return all, nil
}

// Watch implements Machine.
func (Kernel) Watch(ctx context.Context) (<-chan struct{}, error) {
	return netdump.Watch(ctx, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE)
}
