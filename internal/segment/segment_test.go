package segment

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/coracle-io/coracle/internal/netnstest"
	"github.com/coracle-io/coracle/test/mark"
)

func TestMain(m *testing.M) { os.Exit(mark.Main(m)) }

func TestAddresses(t *testing.T) {
	s := New("t", netip.MustParsePrefix("10.9.0.7/29"))
	for node, want := range map[int]string{1: "10.9.0.1", 2: "10.9.0.2", 6: "10.9.0.6", 7: "invalid IP", 8: "invalid IP"} {
		if got := s.Address(node).String(); got != want {
			t.Errorf("node %d has the address %s, want %s", node, got, want)
		}
	}
	if s.Gateway() != s.Address(1) || s.Link() != "cos-t" {
		t.Errorf("the machine is %s at %s", s.Gateway(), s.Link())
	}
	both := New("t", netip.MustParsePrefix("10.9.0.0/29"), netip.MustParsePrefix("fd00:9::/64"))
	for node, want := range map[int]string{1: "[10.9.0.1 fd00:9::1]", 6: "[10.9.0.6 fd00:9::6]", 7: "[]"} {
		if got := fmt.Sprint(both.Addresses(node)); got != want {
			t.Errorf("node %d has the addresses %s, want %s", node, got, want)
		}
	}
}

// members returns the further nodes of a segment with ranges, an IPv4 one by
// default, and with their namespaces below a directory. They are removed at the end
// of the test.
func members(t *testing.T, machine netns.NsHandle, ranges ...netip.Prefix) []Member {
	if len(ranges) == 0 {
		ranges = []netip.Prefix{netip.MustParsePrefix("10.9.0.0/24")}
	}
	s, dir := New("t", ranges...), t.TempDir()
	var all []Member
	for node := 2; node <= 3; node++ {
		m := Member{Segment: s, Node: node, Namespace: filepath.Join(dir, string(rune('0'+node)), "netns"), HostName: "t"}
		t.Cleanup(func() { netnstest.Do(t, machine, m.Remove) })
		all = append(all, m)
	}
	return all
}

// in calls f in the namespace of a member.
func (m Member) in(t *testing.T, f func() error) {
	t.Helper()
	ns, err := netns.GetFromPath(m.Namespace)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ns.Close() }()
	netnstest.Do(t, ns, f)
}

// accepts checks that a server in one namespace is reached from another one.
func accepts(t *testing.T, at func(func() error), from func(func() error), address netip.Addr) {
	t.Helper()
	var listener net.Listener
	at(func() (err error) {
		listener, err = net.Listen("tcp", netip.AddrPortFrom(address, 0).String())
		return err
	})
	defer func() { _ = listener.Close() }()
	from(func() error {
		c, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			return err
		}
		return c.Close()
	})
}

// TestJoin joins two nodes twice, breaks what can break, and checks that the
// nodes and the machine reach each other after each repair, and that removal
// leaves nothing.
// TestHairpin checks that the bridge sends a node back what comes from it: what a node
// sends to the machine may be meant for the node itself.
func TestHairpin(t *testing.T) {
	machine := netnstest.New(t)
	for _, m := range members(t, machine) {
		netnstest.Do(t, machine, func() error {
			if err := m.join(machine); err != nil {
				return err
			}
			port, err := netlink.LinkByName(m.Segment.port(m.Node))
			if err != nil {
				return err
			}
			if at, err := netlink.LinkGetProtinfo(port); err != nil || !at.Hairpin {
				t.Errorf("interface %s of the bridge is not in hairpin mode: %+v, %v", port.Attrs().Name, at, err)
			}
			return nil
		})
	}
}

func TestJoin(t *testing.T) {
	machine := netnstest.New(t)
	all := members(t, machine)
	onMachine := func(f func() error) { t.Helper(); netnstest.Do(t, machine, f) }
	join := func() error {
		for _, m := range all {
			if err := m.join(machine); err != nil {
				return err
			}
		}
		return nil
	}
	connected := func() {
		t.Helper()
		node2 := func(f func() error) { t.Helper(); all[0].in(t, f) }
		node3 := func(f func() error) { t.Helper(); all[1].in(t, f) }
		accepts(t, node3, node2, all[1].Segment.Address(3))
		accepts(t, onMachine, node2, all[0].Segment.Gateway())
		accepts(t, node2, onMachine, all[0].Segment.Address(2))
	}
	before := links(t, machine) // loopback, and those of kernel modules that add one to each namespace
	onMachine(join)
	onMachine(join)
	connected()

	s := all[0].Segment
	onMachine(s.Remove)
	onMachine(func() error { return s.Keep(3) })
	connected()

	onMachine(func() error { return removeLink(s.port(2)) })
	all[0].in(t, func() error {
		if err := all[0].Check(); !errors.Is(err, ErrLeft) {
			t.Errorf("without its interface: %v", err)
		}
		return nil
	})
	onMachine(join)
	connected()

	all[0].in(t, func() error {
		link, err := netlink.LinkByName(Link)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetDown(link); err != nil { // removes the route as well
			return err
		}
		return all[0].Check()
	})
	connected()

	all[0].in(t, func() error {
		if err := unix.Unmount(all[0].Namespace, unix.MNT_DETACH); err != nil {
			return err
		}
		return all[0].Check()
	})
	onMachine(join)
	connected()

	onMachine(func() error { return unix.Unmount(all[0].Namespace, unix.MNT_DETACH) })
	onMachine(join) // a new namespace
	connected()

	for range 2 {
		onMachine(func() error { return errors.Join(all[0].Remove(), all[1].Remove(), s.Remove()) })
	}
	if after := links(t, machine); !slices.Equal(after, before) {
		t.Errorf("interfaces left: %v, before: %v", after, before)
	}
	for _, m := range all {
		if _, err := os.Lstat(m.Namespace); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", m.Namespace, err)
		}
	}
}

// TestFamilies joins nodes with IPv6 addresses, alone and beside IPv4 ones, and
// checks that they reach each other after a repair, and know the way to the world.
func TestFamilies(t *testing.T) {
	netnstest.NeedsIPv6(t)
	ipv4, ipv6 := netip.MustParsePrefix("10.9.0.0/24"), netip.MustParsePrefix("fd00:9::/64")
	for _, ranges := range [][]netip.Prefix{{ipv6}, {ipv4, ipv6}} {
		machine := netnstest.New(t)
		all := members(t, machine, ranges...)
		onMachine := func(f func() error) { t.Helper(); netnstest.Do(t, machine, f) }
		node2 := func(f func() error) { t.Helper(); all[0].in(t, f) }
		node3 := func(f func() error) { t.Helper(); all[1].in(t, f) }
		connected := func() {
			t.Helper()
			for i := range ranges {
				accepts(t, node3, node2, all[1].Segment.Addresses(3)[i])
				accepts(t, onMachine, node2, all[0].Segment.Addresses(1)[i])
				accepts(t, node2, onMachine, all[0].Segment.Addresses(2)[i])
			}
		}
		for range 2 {
			onMachine(func() error { return errors.Join(all[0].join(machine), all[1].join(machine)) })
		}
		connected()
		node2(func() error {
			link, err := netlink.LinkByName(Link)
			if err != nil {
				return err
			}
			return errors.Join(netlink.LinkSetDown(link), all[0].Check()) // which removes addresses and routes
		})
		connected()
		node2(func() error {
			for _, gateway := range all[0].Segment.Addresses(1) {
				family := netlink.FAMILY_V4
				if gateway.Is6() {
					family = netlink.FAMILY_V6
				}
				routes, err := netlink.RouteListFiltered(family, &netlink.Route{Gw: gateway.AsSlice()}, netlink.RT_FILTER_GW)
				if err != nil {
					return err
				}
				if len(routes) != 1 {
					t.Errorf("%d routes by %s, want one", len(routes), gateway)
				}
			}
			return nil
		})
	}
}

// links returns the names of the interfaces in a network namespace.
func links(t *testing.T, namespace netns.NsHandle) (names []string) {
	t.Helper()
	netnstest.Do(t, namespace, func() error {
		list, err := netlink.LinkList()
		for _, l := range list {
			names = append(names, l.Attrs().Name)
		}
		return err
	})
	return names
}

// TestKeepsThatNothingChanges checks that a segment that is intact gets no changes.
func TestKeepsThatNothingChanges(t *testing.T) {
	machine := netnstest.New(t)
	m := members(t, machine)[0]
	netnstest.Do(t, machine, func() error { return m.join(machine) })
	in := func(f func() error) { t.Helper(); m.in(t, f) }
	onMachine := func(f func() error) { t.Helper(); netnstest.Do(t, machine, f) }
	for name, c := range map[string]struct {
		at   func(func() error)
		keep func() error
	}{"machine": {onMachine, func() error { return m.Segment.Keep(3) }}, "node": {in, m.Check}} {
		c.at(func() error {
			addresses, routes := make(chan netlink.AddrUpdate, 100), make(chan netlink.RouteUpdate, 100)
			done := make(chan struct{})
			defer close(done)
			if err := errors.Join(netlink.AddrSubscribe(addresses, done), netlink.RouteSubscribe(routes, done)); err != nil {
				return err
			}
			if err := c.keep(); err != nil {
				return err
			}
			// The kernel sends messages in order: this one comes after all others.
			lo, err := netlink.LinkByName("lo")
			if err != nil {
				return err
			}
			last, err := netlink.ParseAddr("192.0.2.1/32")
			if err != nil {
				return err
			}
			if err := netlink.AddrAdd(lo, last); err != nil {
				return err
			}
			for got := range addresses {
				if got.LinkAddress.String() == last.IPNet.String() {
					break
				}
				if got.LinkAddress.IP.To4() != nil { // the kernel's own IPv6 ones come at any time
					t.Errorf("%s: the address %s changed", name, &got.LinkAddress)
				}
			}
			for got := range routes {
				if got.Dst != nil && got.Dst.IP.Equal(last.IP) {
					break
				}
				if got.Family == netlink.FAMILY_V4 {
					t.Errorf("%s: the route %s changed", name, got.Route)
				}
			}
			return nil
		})
	}
}

// TestBridgeKeepsItsHardwareAddress checks that the machine stays the same
// neighbour for its nodes when ports come and go.
func TestBridgeKeepsItsHardwareAddress(t *testing.T) {
	machine := netnstest.New(t)
	all := members(t, machine)
	s := all[0].Segment
	address := func() string {
		var out string
		netnstest.Do(t, machine, func() error {
			link, err := netlink.LinkByName(s.Link())
			if err == nil {
				out = link.Attrs().HardwareAddr.String()
			}
			return err
		})
		return out
	}
	netnstest.Do(t, machine, func() error { return s.Keep(3) })
	first := address()
	for i, do := range []func() error{
		func() error { return errors.Join(all[0].join(machine), all[1].join(machine)) }, all[0].Remove, all[1].Remove,
		func() error { return errors.Join(s.Remove(), s.Keep(3)) },
	} {
		netnstest.Do(t, machine, do)
		if got := address(); got != first {
			t.Errorf("step %d: the bridge has %s, want %s", i, got, first)
		}
	}
}

// TestAddressesOfOthersStay checks that addresses that others have given the
// interfaces of the segment stay.
func TestAddressesOfOthersStay(t *testing.T) {
	machine := netnstest.New(t)
	m := members(t, machine)[0]
	netnstest.Do(t, machine, func() error { return m.join(machine) })
	add := func(name, address string) error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		a, err := netlink.ParseAddr(address)
		if err != nil {
			return err
		}
		return netlink.AddrAdd(link, a)
	}
	netnstest.Do(t, machine, func() error { return add("cos-t", "10.8.0.1/24") })
	m.in(t, func() error { return errors.Join(add(Link, "10.7.0.1/32"), add(Link, "10.8.0.2/24")) })
	netnstest.Do(t, machine, func() error { return m.join(machine) })
	check := func(name string, want ...string) error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		addresses, err := netlink.AddrList(link, netlink.FAMILY_V4)
		var got []string
		for _, a := range addresses {
			got = append(got, a.IPNet.String())
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s has %q, want %q", name, got, want)
		}
		return err
	}
	netnstest.Do(t, machine, func() error { return check("cos-t", "10.8.0.1/24", "10.9.0.1/24") })
	m.in(t, func() error { return check(Link, "10.7.0.1/32", "10.8.0.2/24", "10.9.0.2/24") })
}

// TestInterfaceOfOthers checks that a node whose interface another one has replaced
// leaves, says which it is, and removes only its own.
func TestInterfaceOfOthers(t *testing.T) {
	machine := netnstest.New(t)
	m := members(t, machine)[0]
	netnstest.Do(t, machine, func() error { return m.join(machine) })
	netnstest.Do(t, machine, func() error { // as if another program had renamed the other end
		link, err := netlink.LinkByName(m.Segment.port(2))
		if err != nil {
			return err
		}
		return errors.Join(netlink.LinkSetDown(link), netlink.LinkSetName(link, "other"), m.join(machine), removeLink(m.Segment.port(2)))
	})
	m.in(t, func() error {
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: Link}}); err != nil {
			return err
		}
		if err := m.Check(); !errors.Is(err, ErrLeft) {
			t.Errorf("with another interface of the name: %v", err)
		}
		return nil
	})
	netnstest.Do(t, machine, func() error {
		if err := m.join(machine); err == nil || !strings.Contains(err.Error(), "another program has made it: rename it") {
			t.Errorf("joined with another interface of the name: %v", err)
		}
		return nil
	})
	m.in(t, func() error {
		_, err := netlink.LinkByName(Link)
		return err
	})
}

func TestInside(t *testing.T) {
	machine := netnstest.New(t)
	m := members(t, machine)[0]
	if inside, err := m.Inside(); inside || err != nil {
		t.Errorf("before it is there: %v, %v", inside, err)
	}
	netnstest.Do(t, machine, func() error { return m.join(machine) })
	if inside, err := m.Inside(); inside || err != nil {
		t.Errorf("outside: %v, %v", inside, err)
	}
	own := m
	own.Namespace = "/proc/self/ns/net"
	if inside, err := own.Inside(); !inside || err != nil {
		t.Errorf("inside: %v, %v", inside, err)
	}
}
