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
		Name: "t.2", NodeName: "m-2", Inside: true,
		Link: "eth0", Addresses: map[string]netip.Addr{"m": at("10.9.0.1"), "m-2": at("10.9.0.2"), "m-3": at("10.9.0.3"), "m-4": at("10.9.0.4")},
		ClusterCIDRs: prefixes("10.244.0.0/16", "fd00::/48"), NodeMaskSizeIPv4: 24, NodeMaskSizeIPv6: 64,
	}
}

func TestPlanRoutes(t *testing.T) {
	m, three := peer("m", 1, "10.244.0.0/24"), peer("m-3", 3, "10.244.3.0/24")
	toThree := Route{netip.MustParsePrefix("10.244.3.0/24"), netip.MustParseAddr("10.9.0.3"), "eth0"}
	elsewhere := peer("x", 1, "10.244.4.0/24")
	elsewhere.Addresses = []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	for name, c := range map[string]struct {
		peers   []Peer
		want    []Route
		refused int
	}{
		"none":                          {},
		"the machine and a neighbour":   {[]Peer{three, m}, []Route{{netip.MustParsePrefix("10.244.0.0/24"), netip.MustParseAddr("10.9.0.1"), "eth0"}, toThree}, 0},
		"without a range yet":           {[]Peer{peer("m-4", 1)}, nil, 0},
		"elsewhere":                     {[]Peer{peer("x", 1, "10.244.4.0/24")}, nil, 0},
		"on another machine":            {[]Peer{elsewhere}, nil, 1},
		"IPv6":                          {[]Peer{peer("m-4", 1, "fd00:0:0:4::/64")}, nil, 1},
		"outside of the cluster":        {[]Peer{peer("m-4", 1, "0.0.0.0/0", "10.0.0.0/8", "192.0.2.0/24")}, nil, 3},
		"wider than a node's":           {[]Peer{peer("m-4", 1, "10.244.128.0/17"), three}, []Route{toThree}, 1},
		"narrower than a node's":        {[]Peer{peer("m-4", 4, "10.244.4.0/25"), three}, []Route{toThree, {netip.MustParsePrefix("10.244.4.0/25"), netip.MustParseAddr("10.9.0.4"), "eth0"}}, 0},
		"this node's own":               {[]Peer{peer("m-4", 1, "10.244.2.0/24", "10.244.0.0/16")}, nil, 2},
		"an older node's":               {[]Peer{peer("m-4", 4, "10.244.3.0/24"), three}, []Route{toThree}, 1},
		"one of an older node far away": {[]Peer{peer("x", 2, "10.244.3.0/24"), three}, nil, 1},
		"one of a node of the same age": {[]Peer{peer("m-4", 3, "10.244.3.0/24"), three}, []Route{toThree}, 1},
	} {
		if got := testRoutes().Plan(prefixes("10.244.2.0/24"), c.peers, nil); !slices.Equal(got.Routes, c.want) || len(got.Refused) != c.refused || len(got.Tunnel.Endpoints) > 0 {
			t.Errorf("%s: %v, want %v; refused %q, want %d; endpoints %v", name, got.Routes, c.want, got.Refused, c.refused, got.Tunnel.Endpoints)
		}
	}
}

func TestClaims(t *testing.T) {
	var c claims
	for _, step := range []struct {
		take string
		want bool
	}{
		{"10.0.2.0/24", true}, {"10.0.0.0/24", true}, {"fd00::/64", true}, {"10.0.1.0/24", true}, {"10.0.1.0/24", false}, {"10.0.1.128/25", false}, {"10.0.0.0/23", false},
		{"10.0.0.0/8", false}, {"10.0.3.0/25", true}, {"10.0.3.0/24", false}, {"10.0.3.128/25", true}, {"fd00::/48", false}, {"0.0.0.0/0", false}, {"fd00:0:0:1::/64", true},
	} {
		if got := c.take(netip.MustParsePrefix(step.take)); got != step.want {
			t.Errorf("%s: %v of %v", step.take, got, c)
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
		three := Route{netip.MustParsePrefix("10.244.3.0/24"), netip.MustParseAddr("10.9.0.3"), r.Link}
		moved := Route{three.To, netip.MustParseAddr("10.9.0.33"), r.Link}
		four := Route{netip.MustParsePrefix("10.244.4.0/24"), netip.MustParseAddr("10.9.0.4"), r.Link}
		for i, step := range []struct {
			wanted  []Route
			changed bool
		}{
			{[]Route{three}, true}, {[]Route{three}, false}, {[]Route{three, four}, true}, {[]Route{moved, four}, true}, {[]Route{four}, true}, {nil, true}, {nil, false},
		} {
			if changed, err := r.Apply(Plan{Routes: step.wanted}); err != nil || changed != step.changed {
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
					is := routeOf(route)
					is.Link = r.Link
					got = append(got, is)
				} else {
					others++
				}
			}
			slices.SortFunc(got, func(a, b Route) int { return a.To.Addr().Compare(b.To.Addr()) })
			if !slices.Equal(got, step.wanted) || others != 2 {
				t.Errorf("step %d: routes %v and %d of others, want %v and 2", i, got, others, step.wanted)
			}
		}
		taken := Route{netip.MustParsePrefix("10.244.9.0/24"), netip.MustParseAddr("10.9.0.3"), r.Link}
		if changed, err := r.Apply(Plan{Routes: []Route{taken, four}}); err == nil || !changed {
			t.Errorf("with a route of others in the place of one: changed %v, %v", changed, err)
		}
		if changed, err := r.Apply(Plan{Routes: []Route{taken, four}}); err == nil || changed {
			t.Errorf("and again: changed %v, %v", changed, err)
		}
		routes, err := netlink.RouteGet(net.IPv4(10, 244, 9, 1))
		if err != nil || len(routes) != 1 || !routes[0].Gw.Equal(foreign.Gw) {
			t.Errorf("the route of others is now %v, %v", routes, err)
		}
	})
}
