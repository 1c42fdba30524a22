package podnet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/coracle-io/coracle/internal/netnstest"
	"github.com/coracle-io/coracle/internal/nft"
	"github.com/coracle-io/coracle/internal/wireguard"
)

// wireGuardPort is the port of all nodes in these tests.
const wireGuardPort = 51820

// newDevice returns what encrypts for a node, with a new key.
func newDevice(t *testing.T) *wireguard.Device {
	t.Helper()
	key, err := wireguard.LoadKey(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	d := wireguard.New(key, wireGuardPort, func(string, ...any) {})
	t.Cleanup(d.Stop)
	return d
}

// TestPlanEncrypted checks that all nodes of other machines are peers, with the ranges
// that are theirs and no others, and that nobody takes the place of another by a key.
func TestPlanEncrypted(t *testing.T) {
	r := Routes{
		Name: "t", NodeName: "a", Own: addresses("192.0.2.1", "2001:db8::1"), ClusterCIDRs: prefixes("10.244.0.0/16", "fd00::/48"), NodeMaskSizeIPv4: 24, NodeMaskSizeIPv6: 64,
		Link: "cos-t", Addresses: map[string][]netip.Addr{"a": addresses("10.9.0.1"), "a-2": addresses("10.9.0.2")},
		Behind: prefixes("10.8.0.0/24"), Front: "m", Encryption: newDevice(t),
	}
	interfaces := []Interface{{Name: "eth0", MTU: 1500, Shared: true, Prefixes: prefixes("192.0.2.1/24", "2001:db8::1/64")}}
	known := func(p Peer, key byte, list ...string) Peer {
		p.Addresses, p.WireGuard = addresses(list...), wireguard.Identity{Key: wireguard.Key{key}, Port: uint16(key)}
		return p
	}
	b := known(peer("b", 1, "fd00:0:0:1::/64", "10.244.1.0/24"), 1, "2001:db8::2", "192.0.2.2")
	is := func(key byte, endpoint string, ranges ...string) wireguard.Peer {
		return wireguard.Peer{Key: wireguard.Key{key}, Endpoint: netip.MustParseAddrPort(endpoint), AllowedIPs: prefixes(ranges...)}
	}
	toB := is(1, "192.0.2.2:1", "10.244.1.0/24", "fd00:0:0:1::/64")
	impostor := known(peer("x", 2, "10.244.7.0/24"), 1, "192.0.2.7")
	own := known(peer("x", 2, "10.244.7.0/24"), 7, "192.0.2.7")
	own.WireGuard = r.Encryption.Identity()
	silent := known(peer("x", 2, "10.244.7.0/24"), 7, "192.0.2.7")
	silent.WireGuard = wireguard.Identity{}
	twice := known(peer("x", 2, "10.244.1.0/24", "10.244.7.0/24"), 7, "198.51.100.7")
	for name, c := range map[string]struct {
		peers   []Peer
		want    []wireguard.Peer
		refused int
	}{
		"in the same subnet":         {[]Peer{b}, []wireguard.Peer{toB}, 0},
		"in another one":             {[]Peer{known(b, 1, "198.51.100.1")}, []wireguard.Peer{is(1, "198.51.100.1:1", "10.244.1.0/24", "fd00:0:0:1::/64")}, 0},
		"another node of the host":   {[]Peer{peer("a-2", 1, "10.244.2.0/24")}, nil, 0},
		"the key of an older node":   {[]Peer{impostor, b}, []wireguard.Peer{toB}, 1},
		"the key of this node":       {[]Peer{own, b}, []wireguard.Peer{toB}, 1},
		"without a key":              {[]Peer{silent, b}, []wireguard.Peer{toB}, 1},
		"the range of an older node": {[]Peer{twice, b}, []wireguard.Peer{toB, is(7, "198.51.100.7:7", "10.244.7.0/24")}, 1},
		"further nodes of another machine": {
			[]Peer{b, known(peer("m", 1, "10.244.3.0/24"), 3, "192.0.2.3"), known(peer("m-2", 2, "10.244.4.0/24"), 9, "10.8.0.2")},
			[]wireguard.Peer{toB, is(3, "192.0.2.3:3", "10.8.0.0/24", "10.244.3.0/24", "10.244.4.0/24")}, 0,
		},
	} {
		plan := r.Plan(prefixes("10.244.0.0/24", "fd00::/64"), c.peers, interfaces)
		same := func(a, b wireguard.Peer) bool {
			return a.Key == b.Key && a.Endpoint == b.Endpoint && slices.Equal(a.AllowedIPs, b.AllowedIPs)
		}
		if !slices.EqualFunc(plan.Tunnel.Peers, c.want, same) || len(plan.Refused) != c.refused || len(plan.Tunnel.Endpoints) > 0 || plan.Tunnel.MTU != 1440 {
			t.Errorf("%s: the tunnel is %+v, want the peers %v; refused %q, want %d", name, plan.Tunnel, c.want, plan.Refused, c.refused)
		}
		var through []netip.Prefix
		for _, way := range plan.Routes {
			if way.Link == "cov-t" {
				through = append(through, way.To)
			}
		}
		var allowed []netip.Prefix
		for _, p := range c.want {
			allowed = append(allowed, p.AllowedIPs...)
		}
		slices.SortFunc(through, netip.Prefix.Compare)
		slices.SortFunc(allowed, netip.Prefix.Compare)
		if !slices.Equal(through, allowed) {
			t.Errorf("%s: %v go through the tunnel, and %v may come", name, through, allowed)
		}
	}
	r.Own = addresses("2001:db8::1")
	if is := r.Plan(nil, nil, interfaces).Tunnel; is.MTU != 1420 {
		t.Errorf("over IPv6 the MTU is %d, want 1420", is.MTU)
	}
}

// needsEncryption skips a test on a machine that cannot make interfaces of WireGuard.
func needsEncryption(t *testing.T) {
	t.Helper()
	netnstest.NeedsIPv6(t)
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		t.Skip("the kernel has no /dev/net/tun")
	}
}

// encrypt makes a machine one of an encrypted network.
func (m *machine) encrypt() {
	m.t.Helper()
	m.routes.Encryption = newDevice(m.t)
	m.network.config.Encrypt = true
	netnstest.Do(m.t, m.ns, func() error { return m.network.masquerade(m.own) })
}

// pair returns two machines that share a link, eth0 of both.
func pair(t *testing.T, encrypted bool) (one, two *machine) {
	t.Helper()
	one, two = newMachine(t, 1), newMachine(t, 2)
	connectNamespaces(t, one.ns, "eth0", "192.0.2.1/24", two.ns, "eth0", "192.0.2.2/24")
	netnstest.Do(t, one.ns, func() error { return addAddress("eth0", "2001:db8::1/64") })
	netnstest.Do(t, two.ns, func() error { return addAddress("eth0", "2001:db8::2/64") })
	one.at("192.0.2.1", "2001:db8::1")
	two.at("192.0.2.2", "2001:db8::2")
	if encrypted {
		one.encrypt()
		two.encrypt()
	}
	return one, two
}

// listen returns a socket that gets a copy of each packet at the interface eth0 of a
// network namespace, in both directions.
func listen(t *testing.T, ns netns.NsHandle) (socket int) {
	t.Helper()
	all := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
	netnstest.Do(t, ns, func() error {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		if socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		return errors.Join(
			unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20),
			unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 120}),
			unix.Bind(socket, &unix.SockaddrLinklayer{Protocol: all, Ifindex: link.Attrs().Index}),
		)
	})
	t.Cleanup(func() { _ = unix.Close(socket) })
	return socket
}

// drain returns the packets that a socket of listen has.
func drain(t *testing.T, socket int) (frames [][]byte) {
	t.Helper()
	for {
		buffer := make([]byte, 1<<17)
		n, _, err := unix.Recvfrom(socket, buffer, unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EAGAIN) {
			return frames
		}
		if err != nil {
			t.Fatal(err)
		}
		frames = append(frames, buffer[:n])
	}
}

// encrypted returns the content of a packet of IPv4 that is from or for the port of
// WireGuard, or nil.
func encrypted(frame []byte) []byte {
	const ethernet, ipv4, udp = 14, 20, 8
	if len(frame) < ethernet+ipv4+udp || binary.BigEndian.Uint16(frame[12:]) != unix.ETH_P_IP || frame[ethernet+9] != unix.IPPROTO_UDP {
		return nil
	}
	ports := frame[ethernet+ipv4:]
	if binary.BigEndian.Uint16(ports) != wireGuardPort || binary.BigEndian.Uint16(ports[2:]) != wireGuardPort {
		return nil
	}
	return ports[udp:]
}

// TestPlainTextOnTheWire checks that nothing of what pods send each other can be read
// between their machines, neither content nor addresses, and that all of it can without
// encryption, so that the test would find it.
func TestPlainTextOnTheWire(t *testing.T) {
	needsEncryption(t)
	for name, encrypts := range map[string]bool{"plain": false, "encrypted": true} {
		t.Run(name, func(t *testing.T) {
			one, two := pair(t, encrypts)
			socket := listen(t, one.ns)
			for _, changed := range []bool{true, false} {
				for m, other := range map[*machine]*machine{one: two, two: one} {
					if got := m.apply(other); got != changed {
						t.Errorf("%s: changed is %v, want %v", m.name(), got, changed)
					}
				}
			}
			reach(t, one, two)
			readable, sealed := 0, 0
			secrets := [][]byte{make([]byte, 64)} // reach sends zeros
			for _, m := range []*machine{one, two} {
				for _, family := range []int{4, 6} {
					secrets = append(secrets, netip.MustParseAddr(m.podAddress(family)).AsSlice())
				}
			}
			for _, frame := range drain(t, socket) {
				if content := encrypted(frame); content != nil {
					sealed++
				}
				if slices.ContainsFunc(secrets, func(s []byte) bool { return bytes.Contains(frame, s) }) {
					readable++
				}
			}
			if (readable > 0) == encrypts || (sealed > 0) != encrypts {
				t.Errorf("%d packets can be read, and %d are encrypted", readable, sealed)
			}
			if encrypts {
				encryptedMachinesKeepUp(t, one, two)
			}
		})
	}
}

// encryptedMachinesKeepUp checks what has to happen when the tunnel is removed by
// others, when a node has another key, and when it is gone.
func encryptedMachinesKeepUp(t *testing.T, one, two *machine) {
	t.Helper()
	if configured, actual := one.mtu("cov-t"); configured != 1440 || actual != 1440 {
		t.Errorf("the MTU of pods is %d, and that of the tunnel %d; want 1440", configured, actual)
	}
	netnstest.Do(t, one.ns, func() error {
		_, err := removeTunnel("cov-t")
		return err
	})
	if !one.apply(two) || one.apply(two) {
		t.Error("a tunnel that was removed is not made again, or twice")
	}
	reach(t, one, two)
	two.routes.Encryption.Stop()
	two.routes.Encryption = newDevice(t)
	if !one.apply(two) || !two.apply(one) || one.apply(two) || two.apply(one) {
		t.Error("another key changes nothing, or twice")
	}
	reach(t, one, two)
	if !one.apply() || one.apply() {
		t.Error("the tunnel is not removed with the last peer, or twice")
	}
	netnstest.Do(t, one.ns, func() error {
		if _, err := netlink.LinkByName("cov-t"); !isMissing(err) {
			t.Errorf("the tunnel is left: %v", err)
		}
		return one.network.Remove()
	})
}

// datagrams returns a socket of the pod of a machine.
func datagrams(t *testing.T, m *machine) *net.UDPConn {
	t.Helper()
	var socket *net.UDPConn
	netnstest.Do(t, m.pod, func() (err error) {
		socket, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(m.podAddress(4)), Port: 7})
		return err
	})
	t.Cleanup(func() { _ = socket.Close() })
	if err := socket.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	return socket
}

// send sends a datagram to such a socket, from the pod of another machine.
func send(t *testing.T, from netns.NsHandle, to *net.UDPConn, text string) {
	t.Helper()
	netnstest.Do(t, from, func() error {
		socket, err := net.DialUDP("udp4", nil, to.LocalAddr().(*net.UDPAddr))
		if err != nil {
			return err
		}
		_, err = socket.Write([]byte(text))
		return errors.Join(err, socket.Close())
	})
}

// TestUnknownKeysAreNotAnswered checks that a machine does not answer another one whose
// key it does not know, even if that one has the address and the ranges of a node.
func TestUnknownKeysAreNotAnswered(t *testing.T) {
	needsEncryption(t)
	one, two := pair(t, true)
	two.apply(one)
	key := two.routes.Encryption
	two.routes.Encryption = newDevice(t) // what others know
	one.apply(two)
	two.routes.Encryption = key
	at, wire := datagrams(t, one), listen(t, one.ns)
	send(t, two.pod, at, "forged")
	buffer := make([]byte, 1<<17)
	for attempts := 0; attempts < 2; { // the second one says that the first had no answer
		n, _, err := unix.Recvfrom(wire, buffer, 0)
		if err != nil {
			t.Fatal(err)
		}
		content := encrypted(buffer[:n])
		const fromOne, initiation, response = 1, 1, 2 // the last byte of its address, and types of messages
		switch {
		case len(content) == 0:
		case buffer[14+15] == fromOne && content[0] == response:
			t.Fatal("an unknown key is answered")
		case buffer[14+15] != fromOne && content[0] == initiation:
			attempts++
		}
	}
	raw, err := at.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var received error
	err = raw.Read(func(fd uintptr) bool {
		_, _, received = unix.Recvfrom(int(fd), buffer, unix.MSG_DONTWAIT)
		return true
	})
	if err != nil || !errors.Is(received, unix.EAGAIN) {
		t.Errorf("the pod has received what an unknown key sent: %v, %v", received, err)
	}
}

// TestSealedBeforePodCIDRs checks that an encrypted network is sealed before its node has
// pod CIDRs, and that a chain of it which others have emptied is missed.
func TestSealedBeforePodCIDRs(t *testing.T) {
	inNamespace(t, func() {
		n := New(Config{Name: "t", ClusterCIDRs: prefixes("10.244.0.0/16", "fd00::/48"), Encrypt: true})
		for range 2 {
			if err := n.ShareNodes(); err != nil {
				t.Error(err)
			}
		}
		rules, err := nft.CountRules(0, table("t"))
		if err != nil || rules[sealIn] != 2 || rules[sealOut] != 2 {
			t.Errorf("the rules are %v, %v; want 2 of each seal", rules, err)
		}
		if intact, err := n.tableIntact(nil); !intact || err != nil {
			t.Errorf("the table is intact: %v, %v", intact, err)
		}
		conn, err := nftables.New()
		if err != nil {
			t.Error(err)
			return
		}
		conn.FlushChain(&nftables.Chain{Name: sealOut, Table: table("t")})
		if err := conn.Flush(); err != nil {
			t.Error(err)
		}
		if intact, err := n.tableIntact(nil); intact || err != nil {
			t.Errorf("without its rules the table is intact: %v, %v", intact, err)
		}
	})
}

// TestPodsAreSealed checks that packets with the address of a pod do not arrive from
// the network between machines, and that none for a pod goes there while the tunnel
// does not lead to it.
func TestPodsAreSealed(t *testing.T) {
	needsEncryption(t)
	one, two := pair(t, true)
	wire := listen(t, one.ns)
	by := func(to, gateway string) func() error {
		return func() error {
			link, err := netlink.LinkByName("eth0")
			if err != nil {
				return err
			}
			_, pods, err := net.ParseCIDR(to)
			if err != nil {
				return err
			}
			return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: pods, Gw: net.ParseIP(gateway)})
		}
	}
	// As if others routed the pods, and machine 2 did not seal its own.
	netnstest.Do(t, one.ns, by("10.244.2.0/24", "192.0.2.2"))
	netnstest.Do(t, two.ns, by("10.244.1.0/24", "192.0.2.1"))
	at, there := datagrams(t, one), datagrams(t, two)
	send(t, one.pod, there, "leak")
	two.network.config.Encrypt = false
	netnstest.Do(t, two.ns, func() error { return two.network.masquerade(two.own) })
	send(t, two.pod, at, "forged")
	buffer := make([]byte, 1<<17)
	for forged := false; !forged; { // it is on the wire
		n, _, err := unix.Recvfrom(wire, buffer, 0)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(buffer[:n], []byte("leak")) {
			t.Error("what a pod sends to another one, to which no tunnel leads, is on the wire")
		}
		forged = bytes.Contains(buffer[:n], []byte("forged"))
	}
	send(t, one.ns, at, "own") // from the machine itself, which reaches its pods
	if n, err := at.Read(buffer); err != nil || string(buffer[:n]) != "own" {
		t.Errorf("the pod has received %q, %v", buffer[:n], err)
	}
}
