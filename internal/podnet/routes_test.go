package podnet

import (
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
)

func prefixes(list ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// peer returns a node that was created at a time.
func peer(name string, created int64, podCIDRs ...string) Peer {
	return Peer{Name: name, Created: created, PodCIDRs: prefixes(podCIDRs...)}
}

func testRoutes() Routes {
	at := netip.MustParseAddr
	return Routes{
		Link: "eth0", Addresses: map[string]netip.Addr{"m": at("10.9.0.1"), "m-2": at("10.9.0.2"), "m-3": at("10.9.0.3"), "m-4": at("10.9.0.4")},
		ClusterCIDRs: prefixes("10.244.0.0/16", "fd00::/48"), NodeMaskSize: 24,
	}
}

func TestPlanRoutes(t *testing.T) {
	m, three := peer("m", 1, "10.244.0.0/24"), peer("m-3", 3, "10.244.3.0/24")
	toThree := Route{netip.MustParsePrefix("10.244.3.0/24"), netip.MustParseAddr("10.9.0.3")}
	for name, c := range map[string]struct {
		peers   []Peer
		want    []Route
		refused int
	}{
		"none":                          {},
		"the machine and a neighbour":   {[]Peer{three, m}, []Route{{netip.MustParsePrefix("10.244.0.0/24"), netip.MustParseAddr("10.9.0.1")}, toThree}, 0},
		"without a range yet":           {[]Peer{peer("m-4", 1)}, nil, 0},
		"elsewhere":                     {[]Peer{peer("x", 1, "10.244.4.0/24")}, nil, 0},
		"IPv6":                          {[]Peer{peer("m-4", 1, "fd00:0:0:4::/64")}, nil, 0},
		"outside of the cluster":        {[]Peer{peer("m-4", 1, "0.0.0.0/0", "10.0.0.0/8", "192.0.2.0/24")}, nil, 3},
		"wider than a node's":           {[]Peer{peer("m-4", 1, "10.244.128.0/17"), three}, []Route{toThree}, 1},
		"narrower than a node's":        {[]Peer{peer("m-4", 4, "10.244.4.0/25"), three}, []Route{toThree, {netip.MustParsePrefix("10.244.4.0/25"), netip.MustParseAddr("10.9.0.4")}}, 0},
		"this node's own":               {[]Peer{peer("m-4", 1, "10.244.2.0/24", "10.244.0.0/16")}, nil, 2},
		"an older node's":               {[]Peer{peer("m-4", 4, "10.244.3.0/24"), three}, []Route{toThree}, 1},
		"one of an older node far away": {[]Peer{peer("x", 2, "10.244.3.0/24"), three}, nil, 1},
		"one of a node of the same age": {[]Peer{peer("m-4", 3, "10.244.3.0/24"), three}, []Route{toThree}, 1},
	} {
		if got, refused := testRoutes().Plan(prefixes("10.244.2.0/24"), c.peers); !slices.Equal(got, c.want) || len(refused) != c.refused {
			t.Errorf("%s: %v, want %v; refused %q, want %d", name, got, c.want, refused, c.refused)
		}
	}
}

// TestApplyRoutes checks that the kernel has the wanted routes after each change,
// and keeps routes that others made.
func TestApplyRoutes(t *testing.T) {
	inNamespace(t, func() {
		r := testRoutes()
		link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: r.Link}, PeerName: "peer"}
		if err := netlink.LinkAdd(link); err != nil {
			t.Error(err)
			return
		}
		address, err := netlink.ParseAddr("10.9.0.2/24")
		if err != nil {
			t.Error(err)
			return
		}
		foreign := &netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.IPv4(10, 9, 0, 9), Dst: &net.IPNet{IP: net.IPv4(10, 244, 9, 0), Mask: net.CIDRMask(24, 32)}}
		for _, do := range []func() error{
			func() error { return netlink.AddrAdd(link, address) }, func() error { return netlink.LinkSetUp(link) }, func() error { return netlink.RouteAdd(foreign) },
		} {
			if err := do(); err != nil {
				t.Error(err)
				return
			}
		}
		three := Route{netip.MustParsePrefix("10.244.3.0/24"), netip.MustParseAddr("10.9.0.3")}
		moved := Route{three.To, netip.MustParseAddr("10.9.0.33")}
		four := Route{netip.MustParsePrefix("10.244.4.0/24"), netip.MustParseAddr("10.9.0.4")}
		for i, step := range []struct {
			wanted  []Route
			changed bool
		}{
			{[]Route{three}, true}, {[]Route{three}, false}, {[]Route{three, four}, true}, {[]Route{moved, four}, true}, {[]Route{four}, true}, {nil, true}, {nil, false},
		} {
			if changed, err := r.Apply(step.wanted); err != nil || changed != step.changed {
				t.Errorf("step %d: changed %v, %v", i, changed, err)
			}
			routes, err := netlink.RouteList(link, netlink.FAMILY_V4)
			if err != nil {
				t.Error(err)
			}
			var got []Route
			others := 0
			for _, route := range routes {
				if route.Protocol == routeProtocol {
					got = append(got, routeOf(route))
				} else {
					others++
				}
			}
			slices.SortFunc(got, func(a, b Route) int { return a.To.Addr().Compare(b.To.Addr()) })
			if !slices.Equal(got, step.wanted) || others != 2 {
				t.Errorf("step %d: routes %v and %d of others, want %v and 2", i, got, others, step.wanted)
			}
		}
		taken := Route{netip.MustParsePrefix("10.244.9.0/24"), netip.MustParseAddr("10.9.0.3")}
		if changed, err := r.Apply([]Route{taken, four}); err == nil || !changed {
			t.Errorf("with a route of others in the place of one: changed %v, %v", changed, err)
		}
		if changed, err := r.Apply([]Route{taken, four}); err == nil || changed {
			t.Errorf("and again: changed %v, %v", changed, err)
		}
		routes, err := netlink.RouteGet(net.IPv4(10, 244, 9, 1))
		if err != nil || len(routes) != 1 || !routes[0].Gw.Equal(foreign.Gw) {
			t.Errorf("the route of others is now %v, %v", routes, err)
		}
	})
}
