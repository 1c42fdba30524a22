package podnet

import (
	"errors"
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
	return Routes{
		Name: "t.2", NodeName: "m-2", Gateways: addresses("10.9.0.1"), Link: "eth0",
		Addresses:    map[string][]netip.Addr{"m": addresses("10.9.0.1"), "m-2": addresses("10.9.0.2"), "m-3": addresses("10.9.0.3"), "m-4": addresses("10.9.0.4")},
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
		"on another machine":            {[]Peer{elsewhere}, []Route{{netip.MustParsePrefix("10.244.4.0/24"), netip.MustParseAddr("10.9.0.1"), "eth0"}}, 0},
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

// TestPlanFamilies checks that nodes of a machine that have addresses of both
// families reach ranges of both.
func TestPlanFamilies(t *testing.T) {
	r := testRoutes()
	r.Gateways = addresses("10.9.0.1", "fd00:9::1")
	r.Addresses["m-3"] = addresses("10.9.0.3", "fd00:9::3")
	elsewhere := peer("x", 1, "10.244.4.0/24", "fd00:0:0:4::/64")
	elsewhere.Addresses = addresses("192.0.2.1")
	by := func(to, via string) Route { return Route{netip.MustParsePrefix(to), netip.MustParseAddr(via), "eth0"} }
	want := []Route{by("10.244.3.0/24", "10.9.0.3"), by("10.244.4.0/24", "10.9.0.1"), by("fd00:0:0:3::/64", "fd00:9::3"), by("fd00:0:0:4::/64", "fd00:9::1")}
	plan := r.Plan(prefixes("10.244.2.0/24", "fd00:0:0:2::/64"), []Peer{peer("m-3", 3, "10.244.3.0/24", "fd00:0:0:3::/64"), elsewhere}, nil)
	if !slices.Equal(plan.Routes, want) || len(plan.Refused) > 0 || len(plan.Tunnel.Endpoints) > 0 {
		t.Errorf("%v, want %v; refused %q, endpoints %v", plan.Routes, want, plan.Refused, plan.Tunnel.Endpoints)
	}
}

// TestPlanBehind checks that the further nodes of another machine are reached by the
// first node there, by a route or by the tunnel, and not without it.
func TestPlanBehind(t *testing.T) {
	r := Routes{
		Name: "t", NodeName: "b", Own: addresses("192.0.2.7"), Behind: prefixes("10.9.0.0/24", "fd00:9::/64"), Front: "m",
		ClusterCIDRs: prefixes("10.244.0.0/16", "fd00::/48"), NodeMaskSizeIPv4: 24, NodeMaskSizeIPv6: 64,
	}
	interfaces := []Interface{{Name: "eth0", MTU: 1500, Shared: true, Prefixes: prefixes("192.0.2.7/24")}}
	by := func(to, via, link string) Route {
		return Route{netip.MustParsePrefix(to), netip.MustParseAddr(via), link}
	}
	peers := func(address, second string) []Peer {
		m, further := peer("m", 2, "10.244.0.0/24", "fd00::/64"), peer("m-2", 1, "10.244.2.0/24", "fd00:0:0:2::/64")
		m.Addresses, further.Addresses = addresses(address), addresses(second)
		return []Peer{m, further}
	}
	ipv6 := []Route{by("fd00::/64", "fd00::1", "cov-t"), by("fd00:0:0:2::/64", "fd00:0:0:2::1", "cov-t"), by("fd00:9::/64", "fd00::1", "cov-t")}
	for name, c := range map[string]struct {
		peers   []Peer
		want    []Route
		refused int
	}{
		"same subnet": {peers("192.0.2.1", "10.9.0.2"), append([]Route{
			by("10.9.0.0/24", "192.0.2.1", "eth0"), by("10.244.0.0/24", "192.0.2.1", "eth0"), by("10.244.2.0/24", "192.0.2.1", "eth0"),
		}, ipv6...), 0},
		"another subnet": {peers("198.51.100.1", "fd00:9::2"), append([]Route{
			by("10.9.0.0/24", "10.244.0.1", "cov-t"), by("10.244.0.0/24", "10.244.0.1", "cov-t"), by("10.244.2.0/24", "10.244.2.1", "cov-t"),
		}, ipv6...), 0},
		"without the first node":             {peers("192.0.2.1", "10.9.0.2")[1:], nil, 0},
		"the first node says it is a second": {peers("10.9.0.9", "10.9.0.2"), nil, 4},
	} {
		plan := r.Plan(prefixes("10.244.1.0/24", "fd00:0:0:1::/64"), c.peers, interfaces)
		if !slices.Equal(plan.Routes, c.want) || len(plan.Refused) != c.refused {
			t.Errorf("%s: %v, want %v; refused %q, want %d", name, plan.Routes, c.want, plan.Refused, c.refused)
		}
		for _, e := range plan.Tunnel.Endpoints {
			if e.Hardware != hardwareOf("m") || e.Node != c.peers[0].Addresses[0] {
				t.Errorf("%s: %v ends at %v and %s", name, e.Hop, e.Hardware, e.Node)
			}
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

// TestApplyBehind checks that a route to the further nodes of another machine makes way
// for one to other addresses, stays if it is another cluster's, is an error while another
// program has one, and goes with the network, which does not know where it led.
func TestApplyBehind(t *testing.T) {
	inNamespace(t, func() {
		link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "peer"}
		address, err := netlink.ParseAddr("192.0.2.7/24")
		if err != nil {
			t.Error(err)
			return
		}
		by := func(to, via string) Route {
			return Route{netip.MustParsePrefix(to), netip.MustParseAddr(via), "eth0"}
		}
		r, other := Routes{Name: "t", ClusterCIDRs: prefixes("10.244.0.0/16")}, Routes{Name: "u", ClusterCIDRs: prefixes("10.243.0.0/16")}
		foreign := &netlink.Route{Gw: net.IPv4(192, 0, 2, 9), Dst: &net.IPNet{IP: net.IPv4(10, 9, 2, 0), Mask: net.CIDRMask(24, 32)}, Priority: 7}
		for i, step := range []struct {
			do func() (bool, error)
			// of both clusters, in the order of their ranges
			left    []Route
			changed bool
			refused bool
		}{
			{func() (bool, error) {
				return false, errors.Join(netlink.LinkAdd(link), netlink.AddrAdd(link, address), netlink.LinkSetUp(link), netlink.RouteAdd(foreign))
			}, nil, false, false},
			{func() (bool, error) { return r.Apply(Plan{Routes: []Route{by("10.9.0.0/24", "192.0.2.1")}}) }, []Route{by("10.9.0.0/24", "192.0.2.1")}, true, false},
			{func() (bool, error) { return r.Apply(Plan{Routes: []Route{by("10.9.0.0/24", "192.0.2.1")}}) }, []Route{by("10.9.0.0/24", "192.0.2.1")}, false, false},
			{func() (bool, error) { return r.Apply(Plan{Routes: []Route{by("10.9.1.0/24", "192.0.2.1")}}) }, []Route{by("10.9.1.0/24", "192.0.2.1")}, true, false},
			{func() (bool, error) { return other.Apply(Plan{Routes: []Route{by("10.9.3.0/24", "192.0.2.3")}}) }, []Route{by("10.9.1.0/24", "192.0.2.1"), by("10.9.3.0/24", "192.0.2.3")}, true, false},
			{func() (bool, error) { return r.Apply(Plan{Routes: []Route{by("10.9.2.0/24", "192.0.2.1")}}) }, []Route{by("10.9.3.0/24", "192.0.2.3")}, true, true},
			{func() (bool, error) { return r.Apply(Plan{Routes: []Route{by("10.9.0.0/24", "192.0.2.2")}}) }, []Route{by("10.9.0.0/24", "192.0.2.2"), by("10.9.3.0/24", "192.0.2.3")}, true, false},
			{func() (bool, error) { return r.Apply(Plan{}) }, []Route{by("10.9.3.0/24", "192.0.2.3")}, true, false},
		} {
			if changed, err := step.do(); changed != step.changed || (err != nil) != step.refused {
				t.Errorf("step %d: changed %v, %v", i, changed, err)
			}
			var left []Route
			for _, cluster := range []Routes{r, other} {
				present, err := cluster.present()
				if err != nil {
					t.Error(err)
				}
				for _, is := range present {
					left = append(left, is.Route)
				}
			}
			slices.SortFunc(left, func(a, b Route) int { return a.To.Addr().Compare(b.To.Addr()) })
			if !slices.Equal(left, step.left) {
				t.Errorf("step %d: the routes are %v, want %v", i, left, step.left)
			}
		}
	})
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
