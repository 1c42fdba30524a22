package podnet

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/coracle-io/coracle/internal/netdump"
)

// Peer is another node of the cluster, as its object describes it.
type Peer struct {
	Name     string
	PodCIDRs []netip.Prefix
	Created  int64 // in nanoseconds since 1970; the older of two nodes keeps a range
}

// Routes configures the routes of a node to the pods of other ones.
type Routes struct {
	// Link is the node's interface on the segment, a link that several nodes
	// share, and Addresses those of the nodes there, by name.
	Link      string
	Addresses map[string]netip.Addr
	// ClusterCIDRs are the ranges of all pods, and NodeMaskSize the prefix length
	// of each node's part of the IPv4 one.
	ClusterCIDRs []netip.Prefix
	NodeMaskSize int
}

// Route is the way to a pod CIDR.
type Route struct {
	To  netip.Prefix
	Via netip.Addr
}

// Plan returns the routes to the pods of peers, sorted, for the node with its own
// pod CIDRs. Objects of nodes are mistrusted: a range that is not a node's part of
// the cluster's, or overlaps with the node's own or that of an older peer, gets no
// route. Plan returns why, for each of them. Nor does a peer get one that is not on
// the segment.
func (r Routes) Plan(own []netip.Prefix, peers []Peer) (routes []Route, refused []string) {
	peers = slices.Clone(peers)
	slices.SortFunc(peers, func(a, b Peer) int { return cmp.Or(cmp.Compare(a.Created, b.Created), cmp.Compare(a.Name, b.Name)) })
	taken := slices.Clone(own)
	for _, p := range peers {
		via, ok := r.Addresses[p.Name]
		for _, to := range p.PodCIDRs {
			if to = to.Masked(); !to.Addr().Is4() {
				continue
			}
			if reason := r.refuse(to, taken); reason != "" {
				refused = append(refused, fmt.Sprintf("%s of node %s %s", to, p.Name, reason))
				continue
			}
			taken = append(taken, to) // also without a route: it is that node's
			if ok {
				routes = append(routes, Route{to, via})
			}
		}
	}
	slices.SortFunc(routes, func(a, b Route) int { return a.To.Addr().Compare(b.To.Addr()) })
	return routes, refused
}

// refuse returns why a range cannot be a node's, or "".
func (r Routes) refuse(to netip.Prefix, taken []netip.Prefix) string {
	switch {
	case !r.ofCluster(to):
		return "is not in the cluster CIDR"
	case to.Bits() < r.NodeMaskSize: // a longer one may be of before the mask size was changed
		return fmt.Sprintf("is larger than a node's range, /%d", r.NodeMaskSize)
	case slices.ContainsFunc(taken, to.Overlaps):
		return "is the range of this node or of an older one"
	}
	return ""
}

func (r Routes) ofCluster(to netip.Prefix) bool {
	return slices.ContainsFunc(r.ClusterCIDRs, func(c netip.Prefix) bool { return c.Bits() <= to.Bits() && c.Contains(to.Addr()) })
}

// routeProtocol marks the routes of this package (rtnetlink(7), rtm_protocol), so
// that no others are removed.
const routeProtocol netlink.RouteProtocol = 142

// Apply makes the kernel's routes on the link those that are wanted. It reports
// whether any had to be changed. It returns an error for a wanted route whose place
// another program's route has, which stays.
func (r Routes) Apply(wanted []Route) (changed bool, err error) {
	link, err := netlink.LinkByName(r.Link)
	if err != nil {
		return false, fmt.Errorf("looking for interface %s: %w", r.Link, err)
	}
	present, err := netdump.Complete(func() ([]netlink.Route, error) {
		filter := &netlink.Route{Protocol: routeProtocol, Table: unix.RT_TABLE_MAIN}
		return netlink.RouteListFiltered(netlink.FAMILY_V4, filter, netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return false, fmt.Errorf("listing routes: %w", err)
	}
	var errs []error
	missing := slices.Clone(wanted)
	for _, route := range present {
		if route.LinkIndex != link.Attrs().Index {
			continue // of another cluster
		}
		is := routeOf(route)
		if slices.Contains(wanted, is) {
			missing = slices.DeleteFunc(missing, func(w Route) bool { return w == is })
			continue
		}
		changed = true
		if err := netlink.RouteDel(&route); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("removing the route to %s: %w", is.To, err))
		}
	}
	for _, w := range missing {
		err := netlink.RouteAdd(&netlink.Route{
			LinkIndex: link.Attrs().Index, Protocol: routeProtocol, Table: unix.RT_TABLE_MAIN, Gw: w.Via.AsSlice(),
			Dst: &net.IPNet{IP: w.To.Addr().AsSlice(), Mask: net.CIDRMask(w.To.Bits(), 32)},
		})
		switch {
		case err == nil:
			changed = true
		case errors.Is(err, unix.EEXIST):
			errs = append(errs, fmt.Errorf("routing %s by %s: another program has a route there: remove it with ip route del %s", w.To, w.Via, w.To))
		default:
			errs = append(errs, fmt.Errorf("routing %s by %s: %w", w.To, w.Via, err))
		}
	}
	return changed, errors.Join(errs...)
}

// routeOf returns a route of the kernel.
func routeOf(route netlink.Route) Route {
	var r Route
	r.Via, _ = netip.AddrFromSlice(route.Gw.To4())
	if route.Dst != nil {
		address, _ := netip.AddrFromSlice(route.Dst.IP.To4())
		ones, _ := route.Dst.Mask.Size()
		r.To = netip.PrefixFrom(address, ones)
	}
	return r
}
