package localport

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/coracle-io/coracle/internal/clusternames"
	"github.com/coracle-io/coracle/internal/netnstest"
	"github.com/coracle-io/coracle/internal/proxy"
)

// reserved is a port in the namespaces of these tests.
const reserved = ":1001"

// lab is a network namespace whose loopback interface has 192.0.2.1, too.
type lab struct {
	t  *testing.T
	ns netns.NsHandle
}

func newLab(t *testing.T) lab {
	l := lab{t, netnstest.New(t)}
	netnstest.Do(t, l.ns, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		address, err := netlink.ParseAddr("192.0.2.1/32")
		if err != nil {
			return err
		}
		return netlink.AddrAdd(lo, address)
	})
	return l
}

// listen opens a server of a program until the test ends, or stop is called.
func (l lab) listen(network, address string) (stop func(), err error) {
	netnstest.Do(l.t, l.ns, func() error {
		if network[:3] == "udp" {
			c, listenErr := net.ListenPacket(network, address)
			if err = listenErr; err == nil {
				stop = func() { _ = c.Close() }
			}
			return nil
		}
		c, listenErr := net.Listen(network, address)
		if err = listenErr; err == nil {
			stop = func() { _ = c.Close() }
		}
		return nil
	})
	if err == nil {
		l.t.Cleanup(stop)
	}
	return stop, err
}

func (l lab) serve(network, address string) (stop func()) {
	l.t.Helper()
	stop, err := l.listen(network, address)
	if err != nil {
		l.t.Fatal(err)
	}
	return stop
}

func (l lab) claim(k *Keeper, wanted map[proxy.LocalPort]proxy.Claim) string {
	l.t.Helper()
	var obstacles map[proxy.LocalPort]proxy.Obstacle
	netnstest.Do(l.t, l.ns, func() (err error) {
		obstacles, err = k.Claim(wanted)
		return err
	})
	return show(obstacles)
}

// TestProgramsOfTheKernel checks the ports of real programs.
func TestProgramsOfTheKernel(t *testing.T) {
	l := newLab(t)
	for network, addresses := range map[string][]string{
		"tcp":  {":1001", "192.0.2.1:1002", "127.0.0.1:1003"},
		"tcp6": {"[::]:1004", "[::1]:1005"},
		"udp":  {":1001", "192.0.2.1:1002", "127.0.0.1:1003"},
	} {
		for _, address := range addresses {
			l.serve(network, address)
		}
	}
	k := New()
	defer k.Release()
	wanted := want(proxy.HoldIfVacant,
		"*:1001", "[::]:1001", "*:1002", "192.0.2.1:1003", "*:1003", "*:1004", "[::]:1004", "[::]:1005", "*:1006",
		"*:1001/UDP", "*:1002/UDP", "*:1003/UDP", "*:1004/UDP", "*:1005/SCTP",
	)
	const want = "*:1001/TCP *:1001/TCP *:1001/UDP *:1002/TCP *:1002/UDP *:1004/TCP"
	for range 2 {
		if got := l.claim(k, wanted); got != want {
			t.Errorf("programs have\n%s, want\n%s", got, want)
		}
	}
	for p := range wanted {
		wanted[p] = proxy.Claim{Hold: proxy.HoldIfVacant, Loopback: true}
	}
	const loopback = "*:1001/TCP *:1001/TCP *:1001/UDP *:1002/TCP *:1002/UDP *:1003/TCP *:1003/UDP *:1004/TCP"
	if got := l.claim(k, wanted); got != loopback {
		t.Errorf("with loopback, programs have\n%s, want\n%s", got, loopback)
	}
}

// TestReservationKeepsProgramsAway checks that a program cannot listen on a port that
// is reserved, so that it learns why it gets no connections, and that it can once
// the port is released.
func TestReservationKeepsProgramsAway(t *testing.T) {
	l := newLab(t)
	k, other := New(), New()
	wanted := want(proxy.HoldIfVacant, "*:1001", "192.0.2.1:1002", "*:1003/UDP", "[::]:1004")
	if got := l.claim(k, wanted); got != "" {
		t.Fatalf("refused: %s", got)
	}
	try := map[string][]string{"tcp": {":1001", "127.0.0.1:1001", "192.0.2.1:1002", "[::1]:1004"}, "udp": {":1003", "192.0.2.1:1003"}}
	for network, addresses := range try {
		for _, address := range addresses {
			if _, err := l.listen(network, address); !errors.Is(err, syscall.EADDRINUSE) {
				t.Errorf("listening on %s %s: %v", network, address, err)
			}
		}
	}
	if stop, err := l.listen("tcp4", "127.0.0.1:1002"); err != nil {
		t.Errorf("another address: %v", err)
	} else {
		stop()
	}
	// The proxy of another cluster sees the reservations.
	if got, want := l.claim(other, wanted), "*:1001/TCP *:1003/UDP *:1004/TCP 192.0.2.1:1002/TCP"; got != want {
		t.Errorf("another cluster is refused %s, want %s", got, want)
	}
	k.Release()
	for network, addresses := range try {
		for _, address := range addresses {
			stop, err := l.listen(network, address)
			if err != nil {
				t.Errorf("after the release, listening on %s %s: %v", network, address, err)
				continue
			}
			stop()
		}
	}
}

// TestProgramsWithSharedPorts checks that a program that shares its port with others
// of its kind cannot listen on a reserved port either.
func TestProgramsWithSharedPorts(t *testing.T) {
	l := newLab(t)
	k := New()
	defer k.Release()
	l.claim(k, want(proxy.HoldIfVacant, "*:1001"))
	for _, option := range []int{unix.SO_REUSEADDR, unix.SO_REUSEPORT} {
		config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
			return errors.Join(c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, option, 1) }), err)
		}}
		netnstest.Do(t, l.ns, func() error {
			c, err := config.Listen(context.Background(), "tcp4", reserved)
			if !errors.Is(err, syscall.EADDRINUSE) {
				t.Errorf("with option %d: %v", option, err)
			}
			if err == nil {
				_ = c.Close()
			}
			return nil
		})
	}
}

// TestOutgoingConnection checks that a connection from a port does not keep a rule
// from it.
func TestOutgoingConnection(t *testing.T) {
	l := newLab(t)
	l.serve("tcp4", "127.0.0.1:1001")
	var connection net.Conn
	netnstest.Do(t, l.ns, func() (err error) {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1002}}
		connection, err = dialer.Dial("tcp4", "127.0.0.1:1001")
		return err
	})
	defer func() { _ = connection.Close() }()
	k := New()
	defer k.Release()
	if got := l.claim(k, want(proxy.HoldIfVacant, "*:1002")); got != "" {
		t.Errorf("refused: %s", got)
	}
	if len(k.held) != 0 {
		t.Error("reserved, though a connection has the port")
	}
}

// TestServerThatHasEnded checks that the port of a server that has ended is reserved
// although the kernel still remembers its connections.
func TestServerThatHasEnded(t *testing.T) {
	l := newLab(t)
	netnstest.Do(t, l.ns, func() error {
		server, err := net.Listen("tcp4", reserved)
		if err != nil {
			return err
		}
		client, err := net.Dial("tcp4", "127.0.0.1:1001")
		if err != nil {
			return err
		}
		accepted, err := server.Accept()
		// The side that closes first remembers the connection.
		return errors.Join(err, accepted.Close(), client.Close(), server.Close())
	})
	k := New()
	defer k.Release()
	if got := l.claim(k, want(proxy.HoldIfVacant, "*:1001")); got != "" || len(k.held) != 1 {
		t.Errorf("refused %q, %d reserved", got, len(k.held))
	}
	for _, address := range []string{":1001", "127.0.0.1:1001"} {
		if _, err := l.listen("tcp4", address); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("listening on %s: %v", address, err)
		}
	}
}

func TestAddressesOfTheKernel(t *testing.T) {
	l := newLab(t)
	netnstest.Do(t, l.ns, func() error {
		addresses, err := New().Addresses()
		for _, a := range []string{"127.0.0.1", "192.0.2.1"} {
			if !slices.Contains(addresses, netip.MustParseAddr(a)) {
				t.Errorf("%s is missing among %v", a, addresses)
			}
		}
		return err
	})
}

// TestAddressesOfServices checks that those that the node has in the proxy mode ipvs are
// not taken for its own.
func TestAddressesOfServices(t *testing.T) {
	l := newLab(t)
	link, lacks := &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: clusternames.VirtualLink}}, false
	netnstest.Do(t, l.ns, func() error {
		err := netlink.LinkAdd(link)
		if lacks = errors.Is(err, unix.EOPNOTSUPP); lacks {
			return nil
		}
		return err
	})
	if lacks {
		t.Skip("the kernel has no dummy interfaces")
	}
	netnstest.Do(t, l.ns, func() error {
		address, err := netlink.ParseAddr("10.96.0.20/32")
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(link, address); err != nil {
			return err
		}
		own, err := namespace{}.addresses()
		if !slices.Contains(own, netip.MustParseAddr("192.0.2.1")) || slices.Contains(own, netip.MustParseAddr("10.96.0.20")) {
			t.Errorf("the node's own addresses are %v", own)
		}
		return err
	})
}
