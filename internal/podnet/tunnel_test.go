package podnet

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/coracle-io/coracle/internal/netnstest"
)

// addresses parses addresses.
func addresses(list ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// A refusal, which is logged, is short whatever a node says of itself.
func TestRefusalsAreShort(t *testing.T) {
	r := Routes{Name: "t", NodeName: "a", Own: addresses("192.0.2.1"), ClusterCIDRs: prefixes("10.244.0.0/16"), NodeMaskSizeIPv4: 24}
	peer := Peer{Name: "b", PodCIDRs: prefixes("10.244.1.0/24")}
	for i := range 10_000 {
		peer.Addresses = append(peer.Addresses, netip.AddrFrom4([4]byte{127, 0, byte(i >> 8), byte(i)}))
	}
	plan := r.Plan(prefixes("10.244.0.0/24"), []Peer{peer}, nil)
	if len(plan.Refused) != 1 || !strings.Contains(plan.Refused[0], "127.0.0.9") || len(plan.Refused[0]) > 500 {
		t.Errorf("%.1000q", plan.Refused)
	}
}

func TestPlanTunnel(t *testing.T) {
	r := Routes{
		Name: "t", NodeName: "a", Own: addresses("2001:db8::1", "192.0.2.1"), ClusterCIDRs: prefixes("10.244.0.0/16", "fd00::/48"), NodeMaskSizeIPv4: 24, NodeMaskSizeIPv6: 64,
	}
	interfaces := []Interface{
		{Name: "eth0", MTU: 1400, Shared: true, Prefixes: prefixes("192.0.2.1/24", "2001:db8::1/64")},
		{Name: "eth1", MTU: 9000, Shared: true, Prefixes: prefixes("198.18.0.1/24", "203.0.113.1/32")},
		{Name: "wg0", MTU: 1420, Prefixes: prefixes("10.1.0.1/24")},
	}
	ipv4, both := []string{"10.244.1.0/24"}, []string{"10.244.1.0/24", "fd00:0:0:1::/64"}
	to4, to6 := netip.MustParsePrefix(both[0]), netip.MustParsePrefix(both[1])
	hop4, hop6 := netip.MustParseAddr("10.244.1.1"), netip.MustParseAddr("fd00:0:0:1::1")
	by := func(to netip.Prefix, via, link string) Route { return Route{to, netip.MustParseAddr(via), link} }
	through4, through6 := Route{to4, hop4, "cov-t"}, Route{to6, hop6, "cov-t"}
	to := func(hop netip.Addr, node string) Endpoint {
		return Endpoint{hop, hardwareOf("b"), netip.MustParseAddr(node)}
	}
	for name, c := range map[string]struct {
		podCIDRs  []string
		addresses []netip.Addr
		routes    []Route
		endpoints []Endpoint
		refused   int
	}{
		"has not reported yet":             {ipv4, nil, nil, nil, 0},
		"same subnet":                      {ipv4, addresses("192.0.2.2"), []Route{by(to4, "192.0.2.2", "eth0")}, nil, 0},
		"subnet of another address":        {ipv4, addresses("198.18.0.2"), []Route{through4}, []Endpoint{to(hop4, "198.18.0.2")}, 0},
		"same subnet, both families":       {both, addresses("192.0.2.2", "2001:db8::2"), []Route{by(to4, "192.0.2.2", "eth0"), by(to6, "2001:db8::2", "eth0")}, nil, 0},
		"another subnet":                   {ipv4, addresses("198.51.100.1"), []Route{through4}, []Endpoint{to(hop4, "198.51.100.1")}, 0},
		"address without a subnet":         {ipv4, addresses("203.0.113.2"), []Route{through4}, []Endpoint{to(hop4, "203.0.113.2")}, 0},
		"behind a tunnel of others":        {ipv4, addresses("10.1.0.2"), []Route{through4}, []Endpoint{to(hop4, "10.1.0.2")}, 0},
		"another subnet, both families":    {both, addresses("2001:db9::1", "198.51.100.1"), []Route{through4, through6}, []Endpoint{to(hop4, "198.51.100.1"), to(hop6, "198.51.100.1")}, 0},
		"IPv6 without an address for it":   {both, addresses("192.0.2.2"), []Route{by(to4, "192.0.2.2", "eth0"), through6}, []Endpoint{to(hop6, "192.0.2.2")}, 0},
		"an address in the subnet, second": {ipv4, addresses("198.51.100.1", "192.0.2.2"), []Route{by(to4, "192.0.2.2", "eth0")}, nil, 0},
		"IPv6 alone":                       {both, addresses("2001:db9::1"), nil, nil, 2},
		"this node's address":              {ipv4, addresses("192.0.2.1"), nil, nil, 1},
		"addresses of no machine":          {ipv4, addresses("127.0.0.1", "0.0.0.0", "224.0.0.1", "169.254.0.1", "255.255.255.255"), nil, nil, 1},
		"a pod's address":                  {ipv4, addresses("10.244.7.7"), nil, nil, 1},
		"one good address of two":          {ipv4, addresses("127.0.0.1", "198.51.100.1"), []Route{through4}, []Endpoint{to(hop4, "198.51.100.1")}, 0},
	} {
		p := peer("b", 1, c.podCIDRs...)
		p.Addresses = c.addresses
		plan := r.Plan(prefixes("10.244.0.0/24", "fd00::/64"), []Peer{p}, interfaces)
		if !slices.Equal(plan.Routes, c.routes) || !slices.Equal(plan.Tunnel.Endpoints, c.endpoints) || len(plan.Refused) != c.refused {
			t.Errorf("%s: %v, want %v; endpoints %v, want %v; refused %q, want %d", name, plan.Routes, c.routes, plan.Tunnel.Endpoints, c.endpoints, plan.Refused, c.refused)
		}
		if is := plan.Tunnel; is.Local.String() != "192.0.2.1" || is.MTU != 1350 || !slices.Equal(is.Hops, addresses("10.244.0.1", "fd00::1")) {
			t.Errorf("%s: the tunnel is %+v", name, is)
		}
	}
	twins := []Peer{peer("b", 2, "10.244.2.0/24"), peer("b", 1, "10.244.1.0/24"), peer("a", 1, "10.244.3.0/24"), peer("c", 1, "10.244.4.7/32")}
	for i := range twins {
		twins[i].Addresses = addresses(fmt.Sprint("198.51.100.", i))
	}
	if plan := r.Plan(nil, twins, interfaces); !slices.Equal(plan.Routes, []Route{through4}) || len(plan.Refused) != 3 {
		t.Errorf("nodes with one hardware address, and one with one address: %v, refused %q", plan.Routes, plan.Refused)
	}
	r.Own = addresses("2001:db8::1")
	if is := r.Plan(nil, nil, interfaces).Tunnel; is.Local != r.Own[0] || is.MTU != 1330 {
		t.Errorf("without an IPv4 address the tunnel is %+v", is)
	}
}

// What all nodes of a cluster must agree on without asking each other follows from
// what they know, and differs for what must differ.
func TestIdentifiers(t *testing.T) {
	one, other := Routes{ClusterCIDRs: prefixes("10.244.0.1/16")}, Routes{ClusterCIDRs: prefixes("10.245.0.0/16")}
	again := Routes{Name: "u", NodeName: "b", ClusterCIDRs: prefixes("10.244.0.0/16")}
	if one.identifier() != again.identifier() || one.identifier() == other.identifier() || one.identifier() >= 1<<24 {
		t.Errorf("identifiers %d, %d and %d", one.identifier(), again.identifier(), other.identifier())
	}
	if a, b := hardwareOf("a"), hardwareOf("b"); a == b || a != hardwareOf("a") || a[0]&3 != 2 || b[0]&3 != 2 {
		t.Errorf("hardware addresses %v and %v", a, b)
	}
}

// machine is a node of a cluster with one pod.
type machine struct {
	t       *testing.T
	number  int
	ns, pod netns.NsHandle
	network *Network
	routes  Routes
	own     []netip.Prefix // pod CIDRs
}

// newMachine returns a machine whose pod has the address 10.244.NUMBER.2, and
// fd00:0:0:NUMBER::2.
func newMachine(t *testing.T, number int) *machine {
	t.Helper()
	m := &machine{t: t, number: number, ns: netnstest.New(t), pod: netnstest.New(t)}
	m.own = prefixes(fmt.Sprintf("10.244.%d.0/24", number), fmt.Sprintf("fd00:0:0:%d::/64", number))
	m.routes = Routes{Name: "t", NodeName: m.name(), ClusterCIDRs: prefixes("10.244.0.0/16", "fd00::/48"), NodeMaskSizeIPv4: 24, NodeMaskSizeIPv6: 64}
	dir := t.TempDir()
	m.network = New(Config{Name: "t", ClusterCIDRs: m.routes.ClusterCIDRs, CNIConfDir: filepath.Join(dir, "conf"), LeaseDir: filepath.Join(dir, "leases")})
	m.network.records = filepath.Join(dir, "records")
	for _, ns := range []netns.NsHandle{m.ns, m.pod} {
		netnstest.Do(t, ns, withoutDetection)
	}
	gateway := []string{fmt.Sprintf("10.244.%d.1", number), fmt.Sprintf("fd00:0:0:%d::1", number)}
	connectNamespaces(t, m.ns, "cor-t", gateway[0]+"/24", m.pod, "eth0", m.podAddress(4)+"/24")
	netnstest.Do(t, m.ns, func() error {
		return errors.Join(
			addAddress("cor-t", gateway[1]+"/64"),
			os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644), os.WriteFile("/proc/sys/net/ipv6/conf/all/forwarding", []byte("1"), 0o644),
			m.network.masquerade(m.own),
		)
	})
	netnstest.Do(t, m.pod, func() error { return addAddress("eth0", m.podAddress(6)+"/64") })
	for _, by := range gateway {
		netnstest.Do(t, m.pod, func() error { return defaultRoute("eth0", by) })
	}
	return m
}

func (m *machine) name() string { return fmt.Sprint("machine-", m.number) }

// podAddress returns the address of the pod of a family, 4 or 6.
func (m *machine) podAddress(family int) string {
	if family == 4 {
		return fmt.Sprintf("10.244.%d.2", m.number)
	}
	return fmt.Sprintf("fd00:0:0:%d::2", m.number)
}

// at says at which addresses others reach the machine.
func (m *machine) at(list ...string) {
	m.routes.Own = addresses(list...)
	m.network.config.Address = func() netip.Addr { return m.routes.Own[0] }
}

// peer returns the machine as others see it.
func (m *machine) peer() Peer {
	p := Peer{Name: m.name(), Created: int64(m.number), PodCIDRs: m.own, Addresses: m.routes.Own}
	if m.routes.Encryption != nil {
		p.WireGuard = m.routes.Encryption.Identity()
	}
	return p
}

// moves gives the interface eth0 of the machine another address.
func (m *machine) moves(from, to, gateway string) {
	m.t.Helper()
	netnstest.Do(m.t, m.ns, func() error {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		former, err := netlink.ParseAddr(from)
		if err != nil {
			return err
		}
		next, err := netlink.ParseAddr(to)
		if err != nil {
			return err
		}
		if err := errors.Join(netlink.AddrDel(link, former), netlink.AddrAdd(link, next)); err != nil {
			return err
		}
		if err := defaultRoute("eth0", gateway); !errors.Is(err, unix.EEXIST) { // the kernel may have kept it
			return err
		}
		return nil
	})
}

// apply routes the pods of other machines, and reports whether that changed
// anything.
func (m *machine) apply(others ...*machine) (changed bool) {
	m.t.Helper()
	netnstest.Do(m.t, m.ns, func() error {
		interfaces, err := Interfaces()
		if err != nil {
			return err
		}
		var peers []Peer
		for _, other := range others {
			peers = append(peers, other.peer())
		}
		plan := m.routes.Plan(m.own, peers, interfaces)
		if len(plan.Refused) > 0 {
			return fmt.Errorf("refused: %q", plan.Refused)
		}
		changed, err = m.routes.Apply(plan)
		return err
	})
	return changed
}

// mtu returns the MTU in the CNI configuration, and that of an interface.
func (m *machine) mtu(name string) (configured, actual int) {
	m.t.Helper()
	netnstest.Do(m.t, m.ns, func() error {
		content, err := m.network.conflist(m.own)
		if err != nil {
			return err
		}
		var list struct{ Plugins []struct{ MTU int } }
		if err := json.Unmarshal(content, &list); err != nil {
			return err
		}
		configured = list.Plugins[0].MTU
		link, err := netlink.LinkByName(name)
		if err == nil {
			actual = link.Attrs().MTU
		}
		return err
	})
	return configured, actual
}

// withoutDetection turns the detection of duplicate IPv6 addresses off, so that
// interfaces that are made next can ask for their neighbours at once.
func withoutDetection() error {
	var errs []error
	for _, of := range []string{"all", "default"} {
		errs = append(errs, os.WriteFile("/proc/sys/net/ipv6/conf/"+of+"/accept_dad", []byte("0"), 0o644))
	}
	return errors.Join(errs...)
}

// addAddress gives an interface an IPv6 address that works at once.
func addAddress(name, address string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	parsed, err := netlink.ParseAddr(address)
	if err != nil {
		return err
	}
	parsed.Flags = unix.IFA_F_NODAD
	return netlink.AddrAdd(link, parsed)
}

// defaultRoute routes everything else by a gateway.
func defaultRoute(name, gateway string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.ParseIP(gateway)})
}

// reach checks that the pods of two machines reach each other by their own
// addresses, in both directions and families.
func reach(t *testing.T, a, b *machine) {
	t.Helper()
	for _, family := range []int{4, 6} {
		for _, way := range [][2]*machine{{a, b}, {b, a}} {
			from, to := way[0].podAddress(family), way[1].podAddress(family)
			if got := sees(t, way[1].pod, way[0].pod, net.JoinHostPort(to, "80")); got != from {
				t.Errorf("%s is reached from %s, want %s", to, got, from)
			}
		}
	}
}

// needsTunnels skips a test on a machine whose kernel has no VXLAN.
func needsTunnels(t *testing.T) {
	t.Helper()
	lacks := false
	netnstest.Do(t, netnstest.New(t), func() error {
		err := netlink.LinkAdd(&netlink.Vxlan{LinkAttrs: netlink.LinkAttrs{Name: "probe"}, VxlanId: 1, Port: TunnelPort})
		lacks = errors.Is(err, unix.EOPNOTSUPP)
		if lacks {
			return nil
		}
		return err
	})
	if lacks {
		t.Skip("the kernel has no VXLAN")
	}
}

// Machine 1 has a router between it and machine 2, and shares a link with machine 3.
func TestMachinesReachEachOther(t *testing.T) {
	netnstest.NeedsIPv6(t)
	needsTunnels(t)
	one, two, three, router := newMachine(t, 1), newMachine(t, 2), newMachine(t, 3), netnstest.New(t)
	connectNamespaces(t, one.ns, "eth0", "192.0.2.1/24", router, "a", "192.0.2.254/24")
	connectNamespaces(t, two.ns, "eth0", "198.51.100.1/24", router, "b", "198.51.100.254/24")
	connectNamespaces(t, one.ns, "eth1", "203.0.113.1/24", three.ns, "eth0", "203.0.113.3/24")
	netnstest.Do(t, router, func() error { return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644) })
	netnstest.Do(t, one.ns, func() error { return defaultRoute("eth0", "192.0.2.254") })
	netnstest.Do(t, two.ns, func() error { return defaultRoute("eth0", "198.51.100.254") })
	netnstest.Do(t, one.ns, func() error { return addAddress("eth1", "2001:db8::1/64") })
	netnstest.Do(t, three.ns, func() error { return addAddress("eth0", "2001:db8::3/64") })
	one.at("192.0.2.1", "203.0.113.1", "2001:db8::1")
	two.at("198.51.100.1")
	three.at("203.0.113.3", "2001:db8::3")
	for _, changed := range []bool{true, false} {
		for m, others := range map[*machine][]*machine{one: {two, three}, two: {one}, three: {one}} {
			if got := m.apply(others...); got != changed {
				t.Errorf("%s: changed is %v, want %v", m.name(), got, changed)
			}
		}
	}
	reach(t, one, two)
	reach(t, one, three)
	if configured, actual := one.mtu("cov-t"); configured != 1450 || actual != 1450 {
		t.Errorf("the MTU of pods is %d, and that of the tunnel %d; want 1450", configured, actual)
	}
	if got := sees(t, two.pod, one.ns, net.JoinHostPort(two.podAddress(4), "80")); got != "10.244.1.1" {
		t.Errorf("a pod of machine 2 is reached from machine 1 itself by %s, want the first address of its pods", got)
	}

	// The MTU of the link to the router is lowered, at both ends.
	for name, ns := range map[string]netns.NsHandle{"eth0": one.ns, "a": router} {
		netnstest.Do(t, ns, func() error {
			link, err := netlink.LinkByName(name)
			if err == nil {
				err = netlink.LinkSetMTU(link, 1400)
			}
			return err
		})
	}
	if changed := one.apply(two, three); !changed {
		t.Error("another MTU changes nothing")
	}
	if configured, actual := one.mtu("cov-t"); configured != 1350 || actual != 1350 {
		t.Errorf("the MTU of pods is %d, and that of the tunnel %d; want 1350", configured, actual)
	}

	two.moves("198.51.100.1/24", "198.51.100.7/24", "198.51.100.254")
	two.at("198.51.100.7")
	for _, changed := range []bool{one.apply(two, three), two.apply(one)} {
		if !changed {
			t.Error("another address of machine 2 changes nothing")
		}
	}
	reach(t, one, two)

	// Repair: others remove the tunnel, and then what it knows.
	netnstest.Do(t, one.ns, func() error {
		_, err := removeTunnel("cov-t")
		return err
	})
	if !one.apply(two, three) || one.apply(two, three) {
		t.Error("a tunnel that was removed is not made again, or twice")
	}
	netnstest.Do(t, one.ns, func() error { return forget("cov-t") })
	if !one.apply(two, three) || one.apply(two, three) {
		t.Error("a tunnel that others have emptied is not filled again, or twice")
	}
	reach(t, one, two)
	ends(t, one, three)
}

// Machine 1 has a further node, 3. Machine 2 is behind a router, and machine 4 shares a
// link with machine 1.
func TestFurtherNodesAndOtherMachines(t *testing.T) {
	netnstest.NeedsIPv6(t)
	needsTunnels(t)
	one, two, inner, four, router := newMachine(t, 1), newMachine(t, 2), newMachine(t, 3), newMachine(t, 4), netnstest.New(t)
	connectNamespaces(t, one.ns, "eth0", "192.0.2.1/24", router, "a", "192.0.2.254/24")
	connectNamespaces(t, two.ns, "eth0", "198.51.100.1/24", router, "b", "198.51.100.254/24")
	connectNamespaces(t, one.ns, "eth1", "203.0.113.1/24", four.ns, "eth0", "203.0.113.4/24")
	connectNamespaces(t, one.ns, "cos-t", "10.9.0.1/24", inner.ns, "eth0", "10.9.0.3/24")
	netnstest.Do(t, router, func() error { return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644) })
	nodes := prefixes("10.9.0.0/24", "fd00:9::/64")
	one.network.config.Nodes, one.network.config.NodesLink = nodes, "cos-t"
	netnstest.Do(t, one.ns, func() error {
		return errors.Join(
			defaultRoute("eth0", "192.0.2.254"), addAddress("eth1", "2001:db8::1/64"), addAddress("cos-t", "fd00:9::1/64"), one.network.masquerade(one.own),
		)
	})
	netnstest.Do(t, two.ns, func() error { return defaultRoute("eth0", "198.51.100.254") })
	netnstest.Do(t, four.ns, func() error { return addAddress("eth0", "2001:db8::4/64") })
	netnstest.Do(t, inner.ns, func() error { return errors.Join(addAddress("eth0", "fd00:9::3/64"), defaultRoute("eth0", "10.9.0.1")) })
	one.at("192.0.2.1", "203.0.113.1", "2001:db8::1")
	two.at("198.51.100.1")
	four.at("203.0.113.4", "2001:db8::4")
	inner.at("10.9.0.3", "fd00:9::3")
	segment := map[string][]netip.Addr{one.name(): addresses("10.9.0.1", "fd00:9::1"), inner.name(): inner.routes.Own}
	one.routes.Link, one.routes.Addresses = "cos-t", segment
	inner.routes.Link, inner.routes.Addresses, inner.routes.Gateways = "eth0", segment, segment[one.name()]
	for _, m := range []*machine{two, four} {
		m.routes.Behind, m.routes.Front = nodes, one.name()
	}
	for _, changed := range []bool{true, false} {
		for m, others := range map[*machine][]*machine{one: {two, inner, four}, two: {one, inner}, four: {one, inner}, inner: {one, two, four}} {
			if got := m.apply(others...); got != changed {
				t.Errorf("%s: changed is %v, want %v", m.name(), got, changed)
			}
		}
	}
	for _, m := range []*machine{one, two, four} {
		reach(t, inner, m)
	}
	for _, c := range []struct {
		from          netns.NsHandle
		address, sees string
	}{
		{two.ns, "10.9.0.3:80", "10.244.2.1"}, {two.pod, "10.9.0.3:80", "10.244.2.1"}, {two.ns, "[fd00:9::3]:80", "fd00:0:0:2::1"}, {four.ns, "10.9.0.3:80", "203.0.113.4"},
	} {
		if got := sees(t, inner.ns, c.from, c.address); got != c.sees {
			t.Errorf("the further node is reached from %s, want %s", got, c.sees)
		}
	}
	for _, m := range []*machine{two, four} {
		netnstest.Do(t, m.ns, func() error {
			if err := m.network.Remove(); err != nil {
				return err
			}
			left, err := m.routes.present()
			if len(left) > 0 {
				t.Errorf("%s: left are %v", m.name(), left)
			}
			return err
		})
	}
}

// ends checks that the tunnel of a machine goes with the last node that needs it,
// and everything else with the network.
func ends(t *testing.T, m, neighbour *machine) {
	t.Helper()
	if !m.apply(neighbour) || m.apply(neighbour) {
		t.Error("the tunnel is not removed with the last machine behind it, or twice")
	}
	reach(t, m, neighbour)
	netnstest.Do(t, m.ns, func() error {
		if _, err := netlink.LinkByName("cov-t"); !isMissing(err) {
			t.Errorf("the tunnel is left: %v", err)
		}
		for range 2 {
			if err := m.network.Remove(); err != nil {
				return err
			}
		}
		left, err := m.routes.present()
		if len(left) > 0 {
			t.Errorf("left are %v", left)
		}
		return err
	})
}

// forget empties the tables of an interface.
func forget(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	var errs []error
	for _, family := range []int{unix.AF_BRIDGE, unix.AF_INET, unix.AF_INET6} {
		_, err := keepEntries(link, family, nil)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Pods do not reach the port of the tunnel on any node, where they could forge the
// addresses of others: not on other machines, not on their own one, and not by an
// address of a node in the cluster CIDR, to which pods of other nodes may send.
func TestPodsDoNotReachTheTunnel(t *testing.T) {
	netnstest.NeedsIPv6(t)
	for name, encrypts := range map[string]bool{"plain": false, "encrypted": true} { // beside one that is not
		t.Run(name, func(t *testing.T) {
			m, world := newMachine(t, 1), netnstest.New(t)
			m.network.config.Encrypt = encrypts
			netnstest.Do(t, m.ns, func() error { return m.network.masquerade(m.own) })
			connectNamespaces(t, m.ns, "eth0", "192.0.2.1/24", world, "eth0", "192.0.2.9/24")
			netnstest.Do(t, world, func() error { return defaultRoute("eth0", "192.0.2.1") })
			for _, c := range []struct {
				from, at netns.NsHandle
				address  string
			}{{m.pod, world, "192.0.2.9"}, {m.pod, m.ns, "192.0.2.1"}, {world, m.ns, "10.244.1.1"}} {
				closedToTunnels(t, c.from, c.at, c.address)
			}
		})
	}
}

// closedToTunnels checks that datagrams from one namespace to an IPv4 address of
// another one arrive, except at the port of the tunnel.
func closedToTunnels(t *testing.T, from, at netns.NsHandle, address string) {
	t.Helper()
	ip, ports := net.ParseIP(address), []int{TunnelPort, TunnelPort + 1}
	sockets := map[int]*net.UDPConn{}
	for _, port := range ports {
		netnstest.Do(t, at, func() (err error) {
			sockets[port], err = net.ListenUDP("udp4", &net.UDPAddr{IP: ip, Port: port})
			return err
		})
		defer func() { _ = sockets[port].Close() }()
	}
	netnstest.Do(t, from, func() error {
		var errs []error
		for _, port := range ports {
			to, err := net.DialUDP("udp4", nil, &net.UDPAddr{IP: ip, Port: port})
			if err != nil {
				return err
			}
			_, err = to.Write([]byte("frame"))
			errs = append(errs, err, to.Close())
		}
		return errors.Join(errs...)
	})
	buffer := make([]byte, 10)
	other := sockets[TunnelPort+1]
	if err := other.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Read(buffer); err != nil {
		t.Fatalf("another port of %s: %v", address, err)
	}
	raw, err := sockets[TunnelPort].SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var received error // what was sent first would have arrived first
	err = raw.Read(func(fd uintptr) bool {
		_, _, received = unix.Recvfrom(int(fd), buffer, unix.MSG_DONTWAIT)
		return true
	})
	if err != nil || !errors.Is(received, unix.EAGAIN) {
		t.Errorf("the port of the tunnel is reached at %s: %v, %v", address, received, err)
	}
}
