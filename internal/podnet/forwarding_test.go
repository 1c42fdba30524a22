package podnet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/coracle-io/coracle/internal/netnstest"
	"github.com/coracle-io/coracle/internal/sharedfile"
)

// set writes settings of IPv6, each as INTERFACE/NAME=VALUE.
func set(settings ...string) error {
	var errs []error
	for _, s := range settings {
		path, value, _ := strings.Cut(s, "=")
		errs = append(errs, os.WriteFile(filepath.Join(settings6, path), []byte(value), 0o644))
	}
	return errors.Join(errs...)
}

// differ returns which of the settings have another value.
func differ(settings ...string) error {
	var errs []error
	for _, s := range settings {
		path, want, _ := strings.Cut(s, "=")
		got, err := readSetting(filepath.Join(settings6, path))
		if err == nil && got != want {
			err = fmt.Errorf("%s is %s, want %s", path, got, want)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// link adds an interface.
func link(of netlink.Link, address string) error {
	err := errors.Join(netlink.LinkAdd(of), netlink.LinkSetUp(of))
	if err == nil && address != "" {
		err = addAddress(of.Attrs().Name, address)
	}
	return err
}

func veth(name, peer string) netlink.Link {
	return &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: peer}
}

func bridge(name string) netlink.Link {
	return &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}
}

// newHost returns a namespace that does not forward, with the interfaces eth0 to eth3, a
// port of a bridge and a bridge of a cluster, and the pod network of the cluster t there.
func newHost(t *testing.T) (netns.NsHandle, *Network) {
	t.Helper()
	netnstest.NeedsIPv6(t)
	ns, n := netnstest.New(t), networkOf(t, "t", t.TempDir())
	netnstest.Do(t, ns, func() error {
		err := errors.Join(
			set("all/forwarding=0"), withoutDetection(),
			link(veth("eth0", "eth1"), "2001:db8::2/64"), link(veth("eth2", "eth3"), ""), link(bridge("cor-t"), ""), link(bridge("br0"), ""), link(veth("port", "far"), ""),
		)
		if err != nil {
			return err
		}
		port, err := netlink.LinkByName("port")
		if err != nil {
			return err
		}
		master, err := netlink.LinkByName("br0")
		if err != nil {
			return err
		}
		return errors.Join(netlink.LinkSetMaster(port, master), set(
			"eth0/accept_ra=1", "eth1/accept_ra=0", "eth2/accept_ra=2", "eth3/accept_ra=1", "eth3/forwarding=1", "cor-t/accept_ra=1", "port/accept_ra=1", "br0/accept_ra=0", "far/accept_ra=0",
		))
	})
	return ns, n
}

// networkOf returns the pod network of a cluster whose notes are in a directory.
func networkOf(t *testing.T, name, notes string) *Network {
	t.Helper()
	dir := t.TempDir()
	n := New(Config{Name: name, Forwarding: notes, CNIConfDir: filepath.Join(dir, "conf"), LeaseDir: filepath.Join(dir, "leases")})
	n.records = filepath.Join(dir, "records")
	return n
}

// forward makes the machine forward IPv6 for a cluster.
func forward(n *Network) error {
	note, err := n.note()
	if err != nil {
		return err
	}
	return forwardIPv6(note, n.claim)
}

// change writes a note.
func change(n *Network, content string) error {
	note, err := n.note()
	if err != nil {
		return err
	}
	return os.WriteFile(note, []byte(content), 0o600)
}

// expectNotes checks how many files the clusters of a machine have in their directory.
func expectNotes(t *testing.T, n *Network, want int) {
	t.Helper()
	left, err := os.ReadDir(n.config.Forwarding)
	if err != nil || len(left) != want {
		t.Errorf("the files of clusters are %v, %v; want %d", left, err, want)
	}
}

// TestForwardingKeepsRouters checks on which interfaces router advertisements are accepted
// while the machine forwards, and that the removal restores them, once and with forwarding.
func TestForwardingKeepsRouters(t *testing.T) {
	ns, n := newHost(t)
	others := []string{"eth1/accept_ra=0", "eth2/accept_ra=2", "eth3/accept_ra=1", "port/accept_ra=1", "br0/accept_ra=0"}
	netnstest.Do(t, ns, func() error {
		for range 2 { // the second time, the note must say the same
			if err := errors.Join(forward(n), differ(append(others, "all/forwarding=1", "eth0/accept_ra=2", "cor-t/accept_ra=1")...)); err != nil {
				return err
			}
		}
		if err := errors.Join(set("all/forwarding=0"), forward(n), differ("all/forwarding=1", "eth0/accept_ra=2")); err != nil {
			return fmt.Errorf("after somebody has turned it off: %w", err)
		}
		return errors.Join(n.Remove(), differ(append(others, "all/forwarding=0", "eth0/forwarding=0", "eth3/forwarding=1", "eth0/accept_ra=1")...), n.Remove())
	})
	expectNotes(t, n, 0)
}

// TestForwardingStays checks that settings stay that somebody else has made, or needs.
func TestForwardingStays(t *testing.T) {
	for name, c := range map[string]struct {
		before, then func(n *Network) error
		want         []string
	}{
		"on before": {
			func(*Network) error { return set("all/forwarding=1") }, nil, []string{"all/forwarding=1", "eth0/accept_ra=1"},
		},
		"containers of others": {
			nil, func(*Network) error { return link(bridge("docker0"), "fd00:5::1/64") }, []string{"all/forwarding=1", "eth0/accept_ra=2"},
		},
		"changed since": {nil, func(*Network) error { return set("all/forwarding=0", "eth0/accept_ra=0") }, []string{"all/forwarding=0", "eth0/accept_ra=0"}},
		"another boot": {nil, func(n *Network) error {
			return change(n, `{"boot": "former", "interfaces": {"eth0": 3}}`)
		}, []string{"all/forwarding=1", "eth0/accept_ra=2"}},
		"a damaged note":       {nil, func(n *Network) error { return change(n, `{"boot`) }, []string{"all/forwarding=1", "eth0/accept_ra=2"}},
		"an interface is gone": {nil, func(*Network) error { return netlink.LinkDel(veth("eth0", "eth1")) }, []string{"all/forwarding=0"}},
	} {
		t.Run(name, func(t *testing.T) {
			ns, n := newHost(t)
			netnstest.Do(t, ns, func() error {
				if c.before != nil {
					if err := c.before(n); err != nil {
						return err
					}
				}
				if err := forward(n); err != nil {
					return err
				}
				if c.then != nil {
					if err := c.then(n); err != nil {
						return err
					}
				}
				return errors.Join(n.Remove(), differ(c.want...))
			})
			expectNotes(t, n, 0)
		})
	}
}

// TestTheLastClusterEndsForwarding checks that settings stay when the cluster goes that has
// made them, and that the last cluster of the machine restores them, also if it found
// forwarding on. Clusters of another network namespace are not concerned.
func TestTheLastClusterEndsForwarding(t *testing.T) {
	ns, first := newHost(t)
	second := networkOf(t, "u", first.config.Forwarding)
	netnstest.Do(t, ns, func() error {
		conn, err := nftables.New()
		if err != nil {
			return err
		}
		for _, name := range []string{"t", "u"} {
			conn.AddTable(table(name))
		}
		return errors.Join(conn.Flush(), forward(first), forward(second), first.Remove(), differ("all/forwarding=1", "eth0/accept_ra=2"))
	})
	expectNotes(t, first, 1)
	elsewhere, other := netnstest.New(t), networkOf(t, "u", first.config.Forwarding)
	netnstest.Do(t, elsewhere, other.Remove)
	expectNotes(t, first, 1)
	netnstest.Do(t, ns, func() error {
		return errors.Join(second.Remove(), differ("all/forwarding=0", "eth0/accept_ra=1", "eth3/forwarding=1"))
	})
	expectNotes(t, first, 0)
}

// TestAStartingClusterIsCounted checks that the removal of a cluster leaves forwarding on for
// one that has just asked for it and has nothing else yet, and for one that does so
// meanwhile.
func TestAStartingClusterIsCounted(t *testing.T) {
	ns, first := newHost(t)
	second := networkOf(t, "u", first.config.Forwarding)
	netnstest.Do(t, ns, func() error {
		return errors.Join(forward(first), forward(second), first.Remove(), differ("all/forwarding=1", "eth0/accept_ra=2"),
			second.Remove(), differ("all/forwarding=0", "eth0/accept_ra=1"))
	})
	expectNotes(t, first, 0)
	netnstest.Do(t, ns, func() error {
		note, err := first.note()
		if err != nil {
			return err
		}
		if err := errors.Join(forward(first), first.removeTable()); err != nil {
			return err
		}
		ended := make(chan error, 1)
		err = restoreIPv6(note, func(noted map[string]int) (need, error) {
			by, err := first.othersForward(noted)
			go func() { // it waits for the lock
				runtime.LockOSThread()
				err := netns.Set(ns)
				if err == nil {
					err = forward(second)
				}
				ended <- err
			}()
			return by, err
		})
		if err != nil {
			return err
		}
		return errors.Join(<-ended, differ("all/forwarding=1", "eth0/accept_ra=2"), second.Remove(), differ("all/forwarding=0"))
	})
	expectNotes(t, first, 0)
}

// TestHardwareThatComesLater checks on which interfaces router advertisements are accepted
// that come while the machine forwards.
func TestHardwareThatComesLater(t *testing.T) {
	var n forwardingNote
	n.cover([]interface6{{"eth0", 2, true, "1", "0"}, {"eth1", 3, true, "0", "0"}, {"br0", 4, false, "1", "0"}, {"router0", 5, true, "1", "1"}})
	if !maps.Equal(n.Interfaces, map[string]int{"br0": 4, "eth0": 2}) || !slices.Equal(n.Forwarded, []string{"router0"}) || n.Newest != 5 {
		t.Errorf("noted before forwarding: %+v", n)
	}
	now := []interface6{
		{"eth0", 2, true, "2", "1"}, {"eth1", 3, true, "1", "1"}, {"router0", 5, true, "1", "1"}, // which were there, whatever they have now
		{"eth2", 6, true, "1", "0"}, // which does not forward
		{"usb0", 7, true, "1", "1"}, {"wlan0", 8, true, "0", "1"}, {"veth0", 9, false, "1", "1"},
	}
	found, newest := n.later(now)
	if !maps.Equal(found, map[string]int{"usb0": 7}) || newest != 8 {
		t.Errorf("accepted on %v, looked at up to %d; want usb0, and 8", found, newest)
	}
	router := forwardingNote{Forwarded: []string{"default"}, Newest: 5}
	if found, newest := router.later(now); len(found) > 0 || newest != 8 {
		t.Errorf("where new interfaces forwarded before, accepted on %v, looked at up to %d", found, newest)
	}
	n.Newest = newest
	if found, newest := n.later(now); len(found) > 0 || newest != 8 {
		t.Errorf("at the second look, accepted on %v, looked at up to %d", found, newest)
	}
}

// TestVirtualInterfacesThatComeLater checks that nothing changes for interfaces behind which
// containers may be, nor without a cluster that forwards.
func TestVirtualInterfacesThatComeLater(t *testing.T) {
	ns, n := newHost(t)
	netnstest.Do(t, ns, func() error {
		return errors.Join(
			n.AcceptRouters(), differ("eth0/accept_ra=1"), forward(n), set("default/accept_ra=1"), link(veth("late0", "late1"), ""),
			n.AcceptRouters(), differ("late0/accept_ra=1", "late1/accept_ra=1", "eth0/accept_ra=2"),
		)
	})
	expectNotes(t, n, 1)
}

// TestLaterHardwareKeepsRouters checks that router advertisements are accepted on hardware
// that comes later, that who sets it otherwise decides, and that the removal restores it.
func TestLaterHardwareKeepsRouters(t *testing.T) {
	ns, n := newHost(t)
	n.hardware = func(link netlink.Link) bool { return strings.HasPrefix(link.Attrs().Name, "usb") }
	netnstest.Do(t, ns, func() error {
		return errors.Join(
			forward(n), set("default/accept_ra=1"), link(veth("usb0", "far0"), ""), link(veth("usb1", "far1"), ""),
			n.AcceptRouters(), differ("usb0/accept_ra=2", "usb1/accept_ra=2", "far0/accept_ra=1"),
			set("usb1/accept_ra=1"), n.AcceptRouters(), differ("usb0/accept_ra=2", "usb1/accept_ra=1"),
			netlink.LinkDel(veth("far1", "")), n.Remove(), differ("usb0/accept_ra=1", "eth0/accept_ra=1", "all/forwarding=0"),
		)
	})
	expectNotes(t, n, 0)
}

// TestRenamedHardware checks that hardware is not missed that udev gives another name while
// it is looked at, and that settings are restored under another name.
func TestRenamedHardware(t *testing.T) {
	ns, n := newHost(t)
	looks := 0
	n.hardware = func(link netlink.Link) bool {
		name := link.Attrs().Name
		if name == "usb0" {
			looks++
			if looks == 2 { // the first look is without the lock
				if err := netlink.LinkSetName(link, "late0"); err != nil {
					t.Error(err)
				}
			}
		}
		return slices.Contains([]string{"usb0", "usb1", "late0"}, name)
	}
	rename := func(from, to string) error {
		link, err := netlink.LinkByName(from)
		if err != nil {
			return err
		}
		return netlink.LinkSetName(link, to)
	}
	netnstest.Do(t, ns, func() error {
		return errors.Join(
			forward(n), set("default/accept_ra=1"), netlink.LinkAdd(veth("usb0", "far0")), netlink.LinkAdd(veth("usb1", "far1")),
			n.AcceptRouters(), differ("late0/accept_ra=1", "usb1/accept_ra=2"), n.AcceptRouters(), differ("late0/accept_ra=2"),
			rename("late0", "late2"), n.Remove(), differ("late2/accept_ra=1", "usb1/accept_ra=1", "all/forwarding=0"),
		)
	})
	expectNotes(t, n, 0)
}

// TestNotesOfOtherNamespaces checks that a note changes nothing that is of a namespace which
// is gone, and had the same number.
func TestNotesOfOtherNamespaces(t *testing.T) {
	ns, n := newHost(t)
	var former string
	netnstest.Do(t, netnstest.New(t), func() (err error) {
		former, err = thisBoot()
		return err
	})
	if !strings.Contains(former, "/") {
		t.Skip("the kernel does not tell namespaces apart")
	}
	netnstest.Do(t, ns, func() error {
		boot, err := thisBoot()
		if err != nil {
			return err
		}
		if err := forward(n); err != nil {
			return err
		}
		note, err := n.note()
		if err != nil {
			return err
		}
		noted, err := os.ReadFile(note)
		if err != nil {
			return err
		}
		return errors.Join(change(n, strings.ReplaceAll(string(noted), boot, former)), n.Remove(), differ("all/forwarding=1", "eth0/accept_ra=2"))
	})
	expectNotes(t, n, 0)
}

// TestNotesOfOtherUsers checks that nothing is changed as a note says that others can write.
func TestNotesOfOtherUsers(t *testing.T) {
	ns, n := newHost(t)
	netnstest.Do(t, ns, func() error {
		note, err := n.note()
		if err != nil {
			return err
		}
		if err := errors.Join(forward(n), os.Chmod(note, 0o666)); err != nil {
			return err
		}
		if shared := (*sharedfile.OwnershipError)(nil); !errors.As(n.Remove(), &shared) {
			t.Error("a note that others can write is used")
		}
		return differ("all/forwarding=1", "eth0/accept_ra=2")
	})
}

// TestTheKernelTellsOfInterfaces checks that nobody has to look again and again.
func TestTheKernelTellsOfInterfaces(t *testing.T) {
	ns := netnstest.New(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var changed <-chan struct{}
	netnstest.Do(t, ns, func() (err error) {
		if changed, err = WatchInterfaces(ctx); err != nil {
			return err
		}
		return link(veth("late0", "late1"), "")
	})
	select {
	case <-changed:
	case <-time.After(3 * time.Minute):
		t.Error("the kernel did not tell of an interface")
	}
}

// advertise sends a router advertisement (RFC 4861, section 4.2) from an interface of a
// namespace, with the lifetime of a default router of half an hour. It sends none while
// the interface has no link-local address yet.
func advertise(t *testing.T, ns netns.NsHandle, name string) {
	t.Helper()
	netnstest.Do(t, ns, func() error {
		out, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMPV6) // the kernel adds the checksum
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		index := out.Attrs().Index
		if err := errors.Join(unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, 255), unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_IF, index)); err != nil {
			return err
		}
		message := make([]byte, 16)
		message[0], message[4] = 134, 64           // the type, and the hop limit of hosts
		message[6], message[7] = 1800>>8, 1800&255 // the lifetime in seconds
		all := [16]byte{0: 0xff, 1: 0x02, 15: 1}
		if err := unix.Sendto(fd, message, 0, &unix.SockaddrInet6{Addr: all, ZoneId: uint32(index)}); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) && !errors.Is(err, unix.ENETUNREACH) {
			return err
		}
		return nil
	})
}

// defaults returns the default routes of IPv6 by a router in a namespace.
func defaults(t *testing.T, ns netns.NsHandle) (routes []netlink.Route) {
	t.Helper()
	netnstest.Do(t, ns, func() error {
		all, err := netlink.RouteListFiltered(netlink.FAMILY_V6, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
		for _, r := range all {
			bits := 0
			if r.Dst != nil {
				bits, _ = r.Dst.Mask.Size()
			}
			if bits == 0 && len(r.Gw) > 0 {
				routes = append(routes, r)
			}
		}
		return err
	})
	return routes
}

// TestRealRouterAdvertisements checks that a machine with a default route from a router keeps
// it when it begins to forward, and takes it from later advertisements. Without a note the
// kernel does neither.
func TestRealRouterAdvertisements(t *testing.T) {
	netnstest.NeedsIPv6(t)
	for _, noted := range []bool{true, false} {
		host, router, note := netnstest.New(t), netnstest.New(t), ""
		if noted {
			note = filepath.Join(t.TempDir(), "forwarding.json")
		}
		for _, ns := range []netns.NsHandle{host, router} {
			netnstest.Do(t, ns, withoutDetection)
		}
		netnstest.Do(t, host, func() error { return set("all/forwarding=0", "default/forwarding=0", "default/accept_ra=1") })
		connectNamespaces(t, host, "eth0", "192.0.2.1/24", router, "eth0", "192.0.2.9/24")
		hears := func() {
			t.Helper()
			again := time.NewTicker(50 * time.Millisecond)
			defer again.Stop()
			late := time.After(3 * time.Minute)
			for len(defaults(t, host)) == 0 {
				advertise(t, router, "eth0")
				select {
				case <-again.C:
				case <-late:
					t.Fatal("the machine takes no default route from router advertisements")
				}
			}
		}
		hears()
		netnstest.Do(t, host, func() error { return forwardIPv6(note, func() error { return nil }) })
		routes := defaults(t, host)
		if kept := len(routes) > 0; kept != noted {
			t.Fatalf("with a note (%v), the machine has the default routes %v", noted, routes)
		}
		if !noted {
			continue
		}
		netnstest.Do(t, host, func() error { return netlink.RouteDel(&routes[0]) })
		hears()
	}
}
