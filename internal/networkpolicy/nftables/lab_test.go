package nftables

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/netnstest"
)

// lab is a node whose pods share a bridge, as the pod network makes it, and a
// host outside:
//
//	pods 10.9.1.2... ── bridge 10.9.1.1 ── node 192.0.2.1 ── 192.0.2.7 outside
type lab struct {
	t       *testing.T
	node    netns.NsHandle
	members map[string]netns.NsHandle
	address map[string]string
	backend *Backend
}

const outside = "outside"

func write(path, value string) error { return os.WriteFile(path, []byte(value), 0o644) }

func addAddress(link netlink.Link, address string) error {
	a, err := netlink.ParseAddr(address)
	if err != nil {
		return err
	}
	a.Flags = unix.IFA_F_NODAD
	return netlink.AddrAdd(link, a)
}

// newLab makes a node with these pods.
func newLab(t *testing.T, pods ...string) *lab {
	t.Helper()
	l := &lab{t: t, node: netnstest.New(t), members: map[string]netns.NsHandle{}, address: map[string]string{"node": "10.9.1.1", outside: "192.0.2.7"}}
	netnstest.Do(t, l.node, func() error {
		if err := errors.Join(
			write("/proc/sys/net/ipv4/ip_forward", "1"), write("/proc/sys/net/ipv6/conf/all/forwarding", "1"),
			write("/proc/sys/net/bridge/bridge-nf-call-iptables", "1"), write("/proc/sys/net/bridge/bridge-nf-call-ip6tables", "1"),
		); err != nil {
			return err
		}
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "cor-test"}}
		if err := netlink.LinkAdd(bridge); err != nil {
			return err
		}
		return errors.Join(addAddress(bridge, "10.9.1.1/24"), addAddress(bridge, "fd09::1/64"), netlink.LinkSetUp(bridge))
	})
	for i, name := range pods {
		l.join(name, fmt.Sprintf("10.9.1.%d/24", i+2), fmt.Sprintf("fd09::%d/64", i+2), "10.9.1.1", "fd09::1", func(near netlink.Link) error {
			bridge, err := netlink.LinkByName("cor-test")
			if err != nil {
				return err
			}
			return errors.Join(netlink.LinkSetMaster(near, bridge), netlink.LinkSetHairpin(near, true), netlink.LinkSetUp(near))
		})
		l.address[name] = fmt.Sprintf("10.9.1.%d", i+2)
	}
	l.join(outside, "192.0.2.7/24", "2001:db8::7/64", "192.0.2.1", "2001:db8::1", func(near netlink.Link) error {
		return errors.Join(addAddress(near, "192.0.2.1/24"), addAddress(near, "2001:db8::1/64"), netlink.LinkSetUp(near))
	})
	l.backend = New(Config{Table: "coracle-test", Bridge: "cor-test", IPv6: true, NetNS: int(l.node)})
	return l
}

// join makes a namespace with an interface whose other end is on the node.
func (l *lab) join(name, address4, address6, gateway4, gateway6 string, attach func(near netlink.Link) error) {
	l.t.Helper()
	ns := netnstest.New(l.t)
	l.members[name] = ns
	netnstest.Do(l.t, l.node, func() error {
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "v" + name}, PeerName: "eth0", PeerNamespace: netlink.NsFd(ns)}); err != nil {
			return err
		}
		near, err := netlink.LinkByName("v" + name)
		if err != nil {
			return err
		}
		return attach(near)
	})
	netnstest.Do(l.t, ns, func() error {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		if err := errors.Join(addAddress(link, address4), addAddress(link, address6), addAddress(link, "fe80::"+address6[strings.LastIndex(address6, ":")+1:]), netlink.LinkSetUp(link)); err != nil {
			return err
		}
		for _, g := range []string{gateway4, gateway6} {
			if err := netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.ParseIP(g)}); err != nil {
				return fmt.Errorf("route by %s: %w", g, err)
			}
		}
		return nil
	})
}

func (l *lab) ns(member string) netns.NsHandle {
	if member == "node" {
		return l.node
	}
	return l.members[member]
}

// serve answers on ports of a member, TCP and UDP, with what it got.
func (l *lab) serve(member string, ports ...int) {
	l.t.Helper()
	for _, port := range ports {
		var listener net.Listener
		var conn net.PacketConn
		netnstest.Do(l.t, l.ns(member), func() (err error) {
			if listener, err = net.Listen("tcp", fmt.Sprintf(":%d", port)); err == nil {
				conn, err = net.ListenPacket("udp", fmt.Sprintf(":%d", port))
			}
			return err
		})
		var running sync.WaitGroup
		running.Go(func() {
			for {
				c, err := listener.Accept()
				if err != nil {
					return
				}
				running.Go(func() {
					defer func() { _ = c.Close() }()
					b := make([]byte, 16)
					for {
						n, err := c.Read(b)
						if err != nil {
							return
						}
						_, _ = c.Write(b[:n])
					}
				})
			}
		})
		running.Go(func() {
			b := make([]byte, 16)
			for {
				n, from, err := conn.ReadFrom(b)
				if err != nil {
					return
				}
				_, _ = conn.WriteTo(b[:n], from)
			}
		})
		l.t.Cleanup(func() { _ = listener.Close(); _ = conn.Close(); running.Wait() })
	}
}

// A refusal is told from a slow machine by time alone: what must pass gets long,
// what must not gets short. A slow machine can hide a fault, but not invent one.
const (
	long  = 3 * time.Minute
	short = 150 * time.Millisecond
)

// dial opens a connection from a member.
func (l *lab) dial(from, network, address string, timeout time.Duration) (net.Conn, error) {
	var c net.Conn
	var err error
	netnstest.Do(l.t, l.ns(from), func() error {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		c, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return nil
	})
	return c, err
}

// echo sends a message and waits for it to come back. It repeats a datagram.
func echo(c net.Conn, timeout time.Duration) error {
	end := time.Now().Add(timeout)
	b := make([]byte, 16)
	for {
		if _, err := c.Write([]byte("x")); err != nil && !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, syscall.EPERM) {
			return err
		}
		wait := end
		if _, datagrams := c.(*net.UDPConn); datagrams {
			if soon := time.Now().Add(time.Second); soon.Before(end) {
				wait = soon
			}
		}
		_ = c.SetReadDeadline(wait)
		_, err := c.Read(b)
		if err == nil || time.Now().After(end) || !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
	}
}

// connects reports whether a message from a member comes back from an address.
func (l *lab) connects(from string, protocol v1.Protocol, address string, timeout time.Duration) bool {
	network := "tcp"
	if protocol == v1.ProtocolUDP {
		network = "udp"
	}
	c, err := l.dial(from, network, address, timeout)
	if err != nil {
		return false
	}
	defer func() { _ = c.Close() }()
	return echo(c, timeout) == nil
}

// try is a connection that must pass, or must not.
type try struct {
	from, to string
	protocol v1.Protocol
	port     int
	passes   bool
}

// check tries connections, all at once.
func (l *lab) check(tries ...try) {
	l.t.Helper()
	var running sync.WaitGroup
	for _, c := range tries {
		address, ok := l.address[c.to]
		if !ok {
			address = c.to
		}
		if c.protocol == "" {
			c.protocol = v1.ProtocolTCP
		}
		timeout := short
		if c.passes {
			timeout = long
		}
		running.Go(func() {
			if got := l.connects(c.from, c.protocol, netip.AddrPortFrom(netip.MustParseAddr(address), uint16(c.port)).String(), timeout); got != c.passes {
				l.t.Errorf("%s to %s, %s port %d: passes %v, want %v", c.from, c.to, c.protocol, c.port, got, c.passes)
			}
		})
	}
	running.Wait()
}
