package l2announce

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
	"github.com/coracle-io/coracle/internal/netnstest"
	"github.com/coracle-io/coracle/internal/proxy"
	"github.com/coracle-io/coracle/internal/proxy/nftables"
)

// lan is a link in a network namespace of its own, with the machines of a test:
//
//	client 192.0.2.9, 2001:db8::9 ─┐
//	node a 192.0.2.1, 2001:db8::1 ─┤ bridge
//	node b 192.0.2.2, 2001:db8::2 ─┘
type lan struct {
	*testing.T
	link   netns.NsHandle
	number int // of machines
}

func newLAN(t *testing.T) *lan {
	t.Helper()
	netnstest.NeedsIPv6(t)
	l := &lan{T: t, link: netnstest.New(t)}
	netnstest.Do(t, l.link, func() error {
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}); err != nil {
			return err
		}
		return up("br0")
	})
	return l
}

func up(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(link)
}

// computer is a machine on a lan.
type computer struct {
	*lan
	ns   netns.NsHandle
	port string // of the bridge
	own  []netip.Addr
	// order has the ranks of its responder, which has left ceded addresses to others.
	order *order
	ceded atomic.Int64
}

// attach adds a machine with the last part of its addresses.
func (l *lan) attach(host int) *computer {
	l.Helper()
	l.number++
	c := &computer{
		lan: l, ns: netnstest.New(l.T), port: fmt.Sprint("port", l.number),
		own: addresses(fmt.Sprint("192.0.2.", host), fmt.Sprintf("2001:db8::%x", host)), order: &order{changed: make(chan struct{}, 1)},
	}
	netnstest.Do(l.T, l.link, func() error {
		bridge, err := netlink.LinkByName("br0")
		if err != nil {
			return err
		}
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: c.port, MasterIndex: bridge.Attrs().Index}, PeerName: "eth0", PeerNamespace: netlink.NsFd(c.ns)}
		if err := netlink.LinkAdd(veth); err != nil {
			return err
		}
		return up(c.port)
	})
	netnstest.Do(l.T, c.ns, func() error {
		eth0, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		for i, bits := range []string{"/24", "/64"} {
			address, err := netlink.ParseAddr(c.own[i].String() + bits)
			if err != nil {
				return err
			}
			if i == 1 {
				address.Flags = unix.IFA_F_NODAD
			}
			if err := netlink.AddrAdd(eth0, address); err != nil {
				return err
			}
		}
		return netlink.LinkSetUp(eth0)
	})
	return c
}

// setPort plugs a machine in or out.
func (c *computer) setPort(on bool) {
	c.Helper()
	netnstest.Do(c.T, c.link, func() error {
		port, err := netlink.LinkByName(c.port)
		if err != nil {
			return err
		}
		if on {
			return netlink.LinkSetUp(port)
		}
		return netlink.LinkSetDown(port)
	})
}

// serve makes the machine a node with a pod, whose proxy leads port 80 of addresses to
// it. The pod answers with a name.
func (c *computer) serve(name string, list ...netip.Addr) {
	c.Helper()
	var listener net.Listener
	netnstest.Do(c.T, c.ns, func() (err error) {
		listener, err = net.Listen("tcp", ":0")
		return err
	})
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, name)
			_ = conn.Close()
		}
	})
	c.Cleanup(func() {
		_ = listener.Close()
		serving.Wait()
	})
	port := netip.MustParseAddrPort(listener.Addr().String()).Port()
	rules := proxy.Rules{}
	for i, a := range list {
		family, clusterIP, own := v1.IPv4Protocol, "10.96.0.20", c.own[0]
		if a.Is6() {
			family, clusterIP, own = v1.IPv6Protocol, "fd00:96::20", c.own[1]
		}
		pod := []netip.AddrPort{netip.AddrPortFrom(own, port)}
		name := proxy.PortName{NamespacedName: types.NamespacedName{Namespace: "x", Name: fmt.Sprint("s", i)}, Port: "http", Protocol: v1.ProtocolTCP, Family: family}
		rules.Services = rules.Services.With(name, &proxy.ServicePort{
			ClusterIP: netip.MustParseAddr(clusterIP), Port: 80, LoadBalancer: []netip.Addr{a}, Cluster: pod, Local: pod, ExternalLocal: true,
		})
	}
	if err := nftables.New(nftables.Config{Table: "coracle-test", IPv6: true, NetNS: int(c.ns)}).Apply(rules); err != nil {
		c.Fatal(err)
	}
}

// order is what a responder wants, which a test changes.
type order struct {
	mu      sync.Mutex // guards ranks
	ranks   map[netip.Addr]int
	changed chan struct{}
}

func (o *order) wanted() map[netip.Addr]int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ranks
}

// set gives the node a place in the order of addresses.
func (o *order) set(rank int, list ...netip.Addr) {
	ranks := map[netip.Addr]int{}
	for _, a := range list {
		ranks[a] = rank
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ranks = ranks
	signal(o.changed)
}

// announce runs a responder on the machine until the returned function is called, or
// the test ends.
func (c *computer) announce() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	r := &responder{wanted: c.order.wanted, changed: c.order.changed, own: c.own, took: func(netip.Addr) {}, ceded: func(netip.Addr, hardware) { c.ceded.Add(1) }}
	var running sync.WaitGroup
	running.Go(func() {
		netnstest.Do(c.T, c.ns, func() error {
			r.run(ctx)
			return nil
		})
	})
	stop = func() {
		cancel()
		running.Wait()
	}
	c.Cleanup(stop)
	return stop
}

// ask connects to port 80 of an address and returns what answers there, or the error.
func (c *computer) ask(a netip.Addr) (answer string) {
	netnstest.Do(c.T, c.ns, func() error {
		conn, err := net.DialTimeout("tcp", netip.AddrPortFrom(a, 80).String(), 3*time.Minute)
		if err != nil {
			answer = err.Error()
			return nil
		}
		defer func() { _ = conn.Close() }()
		// Another node may get the address meanwhile, which does not know the connection.
		if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			return err
		}
		content, err := io.ReadAll(conn)
		if answer = string(content); err != nil {
			answer = err.Error()
		}
		return nil
	})
	return answer
}

// expect waits until addresses are those of a machine for the client, and its pod
// answers there. On a machine that stops for seconds, another node may have them for a
// while.
func (c *computer) expect(when, name string, node *computer, list ...netip.Addr) {
	c.Helper()
	for _, a := range list {
		c.Logf("%s, %s", when, a)
		controllertest.Eventually(c.T, func() string { return c.ask(a) + " at " + c.neighbour(a) }, name+" at "+node.hardware())
	}
}

// neighbour returns the hardware address that the kernel has learnt for an address.
func (c *computer) neighbour(a netip.Addr) (found string) {
	netnstest.Do(c.T, c.ns, func() error {
		list, err := netlink.NeighList(0, netlink.FAMILY_ALL)
		for _, n := range list {
			if n.IP.Equal(a.AsSlice()) {
				found = n.HardwareAddr.String()
			}
		}
		return err
	})
	return found
}

func (c *computer) hardware() (address string) {
	netnstest.Do(c.T, c.ns, func() error {
		eth0, err := netlink.LinkByName("eth0")
		if err == nil {
			address = eth0.Attrs().HardwareAddr.String()
		}
		return err
	})
	return address
}

// TestAnnouncements checks that a client on the link finds the node that answers for an
// address by ARP and neighbour discovery, and reaches a pod behind its proxy there; and
// that another node takes over when the first one ends, is unplugged, or must not serve
// any more.
func TestAnnouncements(t *testing.T) {
	l := newLAN(t)
	client, a, b := l.attach(9), l.attach(1), l.attach(2)
	service := addresses("192.0.2.100", "2001:db8::100")
	a.serve("a", service...)
	b.serve("b", service...)
	a.order.set(0, service...)
	b.order.set(1, service...)
	stopA := a.announce()
	b.announce()
	client.expect("first", "a", a, service...)
	stopA()
	client.expect("after the end of its process", "b", b, service...)
	a.announce()
	client.expect("when the first one is back", "a", a, service...)
	a.setPort(false)
	client.expect("after it was unplugged", "b", b, service...)
	a.setPort(true)
	client.expect("when it is plugged in again", "a", a, service...)
	// As when it has no ready endpoint any more, which both nodes know.
	a.order.set(0)
	b.order.set(0, service...)
	client.expect("when the order has changed", "b", b, service...)
	b.order.set(0)
	for _, none := range append(addresses("192.0.2.101"), service[0]) { // nobody answers for them
		controllertest.Eventually(t, func() string { return client.refused(none) }, "")
	}
}

// TestTwoClusters checks that of two nodes that both believe to be the first one, as the
// nodes of two clusters with the same pool do, one leaves the addresses to the other.
func TestTwoClusters(t *testing.T) {
	l := newLAN(t)
	client, a, b := l.attach(9), l.attach(1), l.attach(2)
	service := addresses("192.0.2.100", "2001:db8::100")
	for name, node := range map[string]*computer{"a": a, "b": b} {
		node.serve(name, service...)
		node.order.set(0, service...)
		node.announce()
	}
	holder, other, name := a, b, "a"
	if a.hardware() > b.hardware() {
		holder, other, name = b, a, "b"
	}
	// It takes what it has left when the holder is silent for long, and leaves it again.
	controllertest.Eventually(t, func() bool { return other.ceded.Load() >= int64(len(service)) }, true)
	client.expect("decided", name, holder, service...)
	if n := holder.ceded.Load(); n > 0 {
		t.Errorf("the other one left %d addresses, too", n)
	}
}

// refused forgets the machine at an address and connects there. It returns what answers,
// or "" if no machine has the address.
func (c *computer) refused(a netip.Addr) (answer string) {
	netnstest.Do(c.T, c.ns, func() error {
		eth0, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		entry := &netlink.Neigh{LinkIndex: eth0.Attrs().Index, Family: netlink.FAMILY_V4, State: netlink.NUD_FAILED, IP: a.AsSlice()}
		if err := netlink.NeighDel(entry); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
		conn, err := net.DialTimeout("tcp", netip.AddrPortFrom(a, 80).String(), 3*time.Minute)
		switch {
		case err == nil:
			answer = "a connection"
			return conn.Close()
		case !errors.Is(err, unix.EHOSTUNREACH):
			answer = err.Error()
		}
		return nil
	})
	return answer
}
