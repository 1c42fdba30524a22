package podnet

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/coracle-io/coracle/internal/netnstest"
	"github.com/coracle-io/coracle/internal/nft"
)

// connectNamespaces joins two namespaces by a pair of interfaces with addresses.
func connectNamespaces(t *testing.T, a netns.NsHandle, aName, aAddress string, b netns.NsHandle, bName, bAddress string) {
	t.Helper()
	setUp := func(name, address string) func() error {
		return func() error {
			link, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			parsed, err := netlink.ParseAddr(address)
			if err != nil {
				return err
			}
			return errors.Join(netlink.AddrAdd(link, parsed), netlink.LinkSetUp(link))
		}
	}
	netnstest.Do(t, a, func() error {
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: aName}, PeerName: bName, PeerNamespace: netlink.NsFd(int(b))})
	})
	netnstest.Do(t, a, setUp(aName, aAddress))
	netnstest.Do(t, b, setUp(bName, bAddress))
}

// TestFurtherNodesReachTheWorld checks that the world, which has no route to a
// further node, sees the machine's address, and that the node reaches the pods of
// the machine by its own address.
func TestFurtherNodesReachTheWorld(t *testing.T) {
	machine, world, node, pod := netnstest.New(t), netnstest.New(t), netnstest.New(t), netnstest.New(t)
	connectNamespaces(t, machine, "cos-t", "10.9.0.1/24", node, "eth0", "10.9.0.2/24")
	connectNamespaces(t, machine, "out", "192.0.2.1/24", world, "eth0", "192.0.2.9/24")
	connectNamespaces(t, machine, "cor-t", "10.244.0.1/24", pod, "eth0", "10.244.0.2/24")
	for ns, gateway := range map[netns.NsHandle]net.IP{node: net.IPv4(10, 9, 0, 1), pod: net.IPv4(10, 244, 0, 1)} {
		netnstest.Do(t, ns, func() error { return netlink.RouteAdd(&netlink.Route{Gw: gateway}) })
	}
	netnstest.Do(t, machine, func() error {
		n := New(Config{Name: "t", ClusterCIDRs: prefixes("10.244.0.0/16"), ServiceCIDRs: prefixes("10.96.0.0/16"), Nodes: prefixes("10.9.0.0/24"), NodesLink: "cos-t"})
		return errors.Join(os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644), n.masquerade(prefixes("10.244.0.0/24")))
	})
	for _, c := range []struct {
		at, from      netns.NsHandle
		address, sees string
	}{
		{world, node, "192.0.2.9:80", "192.0.2.1"}, {pod, node, "10.244.0.2:80", "10.9.0.2"}, {node, pod, "10.9.0.2:80", "10.9.0.1"}, {world, pod, "192.0.2.9:81", "192.0.2.1"},
	} {
		if got := sees(t, c.at, c.from, c.address); got != c.sees {
			t.Errorf("%s is reached from %s, want %s", c.address, got, c.sees)
		}
	}
}

// sees sends several full packets by TCP from one namespace to an address of
// another one, and returns the address from which they come.
func sees(t *testing.T, at, from netns.NsHandle, address string) string {
	t.Helper()
	var listener net.Listener
	netnstest.Do(t, at, func() (err error) {
		listener, err = net.Listen("tcp", address)
		return err
	})
	const size = 8 << 10 // which the sockets hold while nobody reads
	netnstest.Do(t, from, func() error {
		to, err := net.Dial("tcp", address)
		if err != nil {
			return err
		}
		_, err = to.Write(make([]byte, size))
		return errors.Join(err, to.Close())
	})
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, accepted); err != nil || n != size {
		t.Errorf("%s got %d bytes, %v; want %d", address, n, err, size)
	}
	if err := errors.Join(accepted.Close(), listener.Close()); err != nil {
		t.Error(err)
	}
	return accepted.RemoteAddr().(*net.TCPAddr).IP.String()
}

// TestShareNodes checks that further nodes are masqueraded before the first one has
// pod CIDRs, and that the rules of pods then stay.
func TestShareNodes(t *testing.T) {
	inNamespace(t, func() {
		alone := New(Config{Name: "t", ClusterCIDRs: prefixes("10.244.0.0/16")})
		n := New(Config{Name: "t", ClusterCIDRs: prefixes("10.244.0.0/16"), Nodes: prefixes("10.9.0.0/24"), NodesLink: "cos-t"})
		for i, step := range []struct {
			do    func() error
			rules int
		}{
			{alone.ShareNodes, 0}, {n.ShareNodes, 1}, {n.ShareNodes, 1}, {func() error { return n.masquerade(prefixes("10.244.0.0/24")) }, 2}, {n.ShareNodes, 2},
		} {
			if err := step.do(); err != nil {
				t.Errorf("step %d: %v", i, err)
			}
			rules, err := nft.CountRules(0, table("t"))
			if err != nil || rules[masqueradeChain] != step.rules {
				t.Errorf("step %d: %d rules, %v; want %d", i, rules[masqueradeChain], err, step.rules)
			}
		}
		if forwards, err := os.ReadFile("/proc/sys/net/ipv4/ip_forward"); err != nil || string(forwards) != "1\n" {
			t.Errorf("ip_forward is %q, %v", forwards, err)
		}
	})
}
