package podnet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/coracle-io/coracle/internal/clusternames"
	"github.com/coracle-io/coracle/internal/netdump"
)

// routeProtocol marks the routes of this package (rtnetlink(7), rtm_protocol), so
// that no others are removed.
const routeProtocol netlink.RouteProtocol = 142

// installed is a route of this package in the kernel.
type installed struct {
	Route
	kernel netlink.Route
}

// Apply makes the routes and the tunnel of the kernel those of a plan. The zero
// value removes all. Apply reports whether any had to be changed. It returns an
// error for a wanted route whose place another program's route has, which stays.
func (r Routes) Apply(p Plan) (changed bool, err error) {
	var errs []error
	if p.Tunnel.needed() {
		changed, err = p.Tunnel.apply(r.Encryption)
		errs = append(errs, err)
	}
	present, err := r.present()
	if err != nil {
		return changed, errors.Join(append(errs, err)...)
	}
	missing := slices.Clone(p.Routes)
	for _, is := range present {
		if slices.Contains(p.Routes, is.Route) {
			missing = slices.DeleteFunc(missing, func(w Route) bool { return w == is.Route })
			continue
		}
		changed = true
		if err := netlink.RouteDel(&is.kernel); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("removing the route to %s: %w", is.To, err))
		}
	}
	for _, w := range missing {
		err := r.add(w)
		switch {
		case err == nil:
			changed = true
		case errors.Is(err, unix.EEXIST):
			errs = append(errs, fmt.Errorf("routing %s by %s: another program has a route there: remove it with ip route del %s", w.To, w.Via, w.To))
		default:
			errs = append(errs, fmt.Errorf("routing %s by %s on %s: %w", w.To, w.Via, w.Link, err))
		}
	}
	if !p.Tunnel.needed() {
		removed, err := removeTunnel(clusternames.Tunnel(r.Name))
		changed, errs = changed || removed, append(errs, err)
		if r.Encryption != nil {
			r.Encryption.Stop()
		}
	}
	return changed, errors.Join(errs...)
}

// present returns the routes of this cluster that this package has added.
func (r Routes) present() ([]installed, error) {
	var all []installed
	names := map[int]string{}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		list, err := netdump.Complete(func() ([]netlink.Route, error) {
			filter := &netlink.Route{Protocol: routeProtocol, Table: unix.RT_TABLE_MAIN}
			return netlink.RouteListFiltered(family, filter, netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE)
		})
		if err != nil {
			return nil, fmt.Errorf("listing routes: %w", err)
		}
		for _, kernel := range list {
			is := routeOf(kernel)
			if names[kernel.LinkIndex] == "" {
				if link, err := netlink.LinkByIndex(kernel.LinkIndex); err == nil { // otherwise it was just removed
					names[kernel.LinkIndex] = link.Attrs().Name
				}
			}
			is.Link = names[kernel.LinkIndex]
			if r.owns(is) || kernel.Priority == r.behindMetric() {
				all = append(all, installed{is, kernel})
			}
		}
	}
	return all, nil
}

// owns reports whether a route of this package is one of this cluster: it has an
// interface of it, or leads to its pods. Other clusters of the machine have other
// ranges.
func (r Routes) owns(is Route) bool {
	return r.Link != "" && is.Link == r.Link || is.Link == clusternames.Tunnel(r.Name) || r.ofCluster(is.To)
}

// behindMetric returns the metric of the routes to further nodes of another machine,
// whose ranges may change. It marks those of this cluster: the ranges of its pods
// determine it.
func (r Routes) behindMetric() int { return r.identifier() }

// add adds a route to the kernel.
func (r Routes) add(w Route) error {
	link, err := netlink.LinkByName(w.Link)
	if err != nil {
		return err
	}
	route := &netlink.Route{
		LinkIndex: link.Attrs().Index, Protocol: routeProtocol, Table: unix.RT_TABLE_MAIN, Gw: w.Via.AsSlice(),
		Dst: &net.IPNet{IP: w.To.Addr().AsSlice(), Mask: net.CIDRMask(w.To.Bits(), w.To.Addr().BitLen())},
	}
	if w.Link == clusternames.Tunnel(r.Name) {
		route.Flags = int(netlink.FLAG_ONLINK) // no address of the tunnel has the next hop in its subnet
	}
	if !r.ofCluster(w.To) {
		route.Priority = r.behindMetric()
		switch taken, err := isTaken(route.Dst); {
		case err != nil:
			return err
		case taken:
			return unix.EEXIST
		}
	}
	return netlink.RouteAdd(route)
}

// isTaken reports whether another program has a route to a range, with any metric: the
// kernel would prefer it.
func isTaken(to *net.IPNet) (bool, error) {
	family := netlink.FAMILY_V4
	if to.IP.To4() == nil {
		family = netlink.FAMILY_V6
	}
	present, err := netdump.Complete(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(family, &netlink.Route{Dst: to, Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_DST|netlink.RT_FILTER_TABLE)
	})
	return slices.ContainsFunc(present, func(is netlink.Route) bool { return is.Protocol != routeProtocol }), err
}

// routeOf returns a route of the kernel without its interface.
func routeOf(route netlink.Route) Route {
	var r Route
	if via, ok := netip.AddrFromSlice(route.Gw); ok {
		r.Via = via.Unmap()
	}
	if route.Dst == nil {
		return r
	}
	if address, ok := netip.AddrFromSlice(route.Dst.IP); ok {
		ones, _ := route.Dst.Mask.Size()
		r.To = netip.PrefixFrom(address.Unmap(), ones)
	}
	return r
}
