package nftables

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/netnstest"
	"github.com/coracle-io/coracle/internal/networkpolicy"
	"github.com/coracle-io/coracle/internal/nft"
	"github.com/coracle-io/coracle/internal/persistent"
	"github.com/coracle-io/coracle/internal/proxy"
	proxynftables "github.com/coracle-io/coracle/internal/proxy/nftables"
)

var (
	anyone = networkpolicy.Rule{AnyPeer: true, AnyPort: true}
	group  = networkpolicy.Group{Namespace: "x", Pods: "(a=1)"}
	http   = networkpolicy.NamedPort{Protocol: v1.ProtocolTCP, Name: "http"}
	policy = types.NamespacedName{Namespace: "x", Name: "policy"}
)

// isolating returns Rules by which one policy isolates pods in the directions in
// which it has rules, of which there may be none.
func isolating(ingress, egress []networkpolicy.Rule, pods ...string) networkpolicy.Rules {
	r := networkpolicy.Rules{
		Pods: map[netip.Addr]networkpolicy.Isolation{}, Policies: map[types.NamespacedName]*networkpolicy.Policy{policy: {Ingress: ingress, Egress: egress}},
		Groups: map[networkpolicy.Group]networkpolicy.Addresses{group: persistent.Of(map[netip.Addr]struct{}{netip.MustParseAddr("10.9.1.3"): {}, netip.MustParseAddr("fd09::3"): {}})},
		Ports:  map[networkpolicy.NamedPort]networkpolicy.PodPorts{http: persistent.Of(map[netip.AddrPort]struct{}{netip.MustParseAddrPort("10.9.1.2:81"): {}, netip.MustParseAddrPort("10.9.1.3:80"): {}})},
	}
	for _, p := range pods {
		var i networkpolicy.Isolation
		if ingress != nil {
			i.Ingress = []types.NamespacedName{policy}
		}
		if egress != nil {
			i.Egress = []types.NamespacedName{policy}
		}
		r.Pods[netip.MustParseAddr(p)] = i
	}
	return r
}

func blocksOf(ends ...string) []networkpolicy.Block {
	var out []networkpolicy.Block
	for i := 0; i < len(ends); i += 2 {
		out = append(out, networkpolicy.Block{From: netip.MustParseAddr(ends[i]), To: netip.MustParseAddr(ends[i+1])})
	}
	return out
}

func (l *lab) apply(rules networkpolicy.Rules) {
	l.t.Helper()
	if err := l.backend.Apply(rules); err != nil {
		l.t.Fatal(err)
	}
}

// to returns the connections that must pass to a from these members, and the
// ones from all others, which must not.
func to(port int, protocol v1.Protocol, passes ...string) []try {
	var out []try
	for _, from := range []string{"b", "c", outside} {
		out = append(out, try{from, "a", protocol, port, false})
		for _, p := range passes {
			if p == from {
				out[len(out)-1].passes = true
			}
		}
	}
	return append(out, try{"node", "a", protocol, port, true})
}

// TestTraffic sends packets under each kind of rule. The pod a is 10.9.1.2, b
// 10.9.1.3 and c 10.9.1.4.
func TestTraffic(t *testing.T) {
	l := newLab(t, "a", "b", "c")
	for _, member := range []string{"a", "b", "c", outside, "node"} {
		l.serve(member, 80, 81)
	}
	type rules = []networkpolicy.Rule
	http80 := []networkpolicy.Ports{{Protocol: v1.ProtocolTCP, From: 80, To: 80}}
	for _, c := range []struct {
		name            string
		ingress, egress rules // of a
		tries           []try
	}{
		{"none", nil, nil, append(to(80, "", "b", "c", outside), to(80, v1.ProtocolUDP, "b", "c", outside)...)},
		{"deny all", rules{}, rules{}, append(to(80, ""), try{"a", "b", "", 80, false}, try{"a", outside, "", 80, false},
			try{"a", "node", "", 80, true}, try{"a", "192.0.2.1", "", 80, true}, try{"b", "c", "", 80, true}, try{"b", outside, "", 80, true})},
		{"allow all", rules{anyone}, rules{anyone}, append(to(80, "", "b", "c", outside), try{"a", "b", "", 80, true})},
		{"deny ingress alone", rules{}, nil, append(to(80, ""), try{"a", "b", "", 80, true}, try{"a", outside, v1.ProtocolUDP, 80, true})},
		{"deny egress alone", nil, rules{}, append(to(80, "", "b", "c", outside), try{"a", "b", "", 80, false}, try{"a", outside, v1.ProtocolUDP, 80, false})},
		{"from a group", rules{{Groups: []networkpolicy.Group{group}, AnyPort: true}}, nil, append(to(80, "", "b"), to(81, v1.ProtocolUDP, "b")...)},
		{"from a group at a port", rules{{Groups: []networkpolicy.Group{group}, Ports: http80}}, nil,
			append(append(to(80, "", "b"), to(81, "")...), to(80, v1.ProtocolUDP)...)},
		{"at a port", rules{{AnyPeer: true, Ports: http80}}, nil, append(to(80, "", "b", "c", outside), to(81, "")...)},
		{"at a range of ports", rules{{AnyPeer: true, Ports: []networkpolicy.Ports{{Protocol: v1.ProtocolUDP, From: 81, To: 65535}}}}, nil,
			append(append(to(81, v1.ProtocolUDP, "b", "c", outside), to(80, v1.ProtocolUDP)...), to(81, "")...)},
		{"at ranges of ports", rules{{AnyPeer: true, Ports: []networkpolicy.Ports{
			{Protocol: v1.ProtocolTCP, From: 70, To: 80}, {Protocol: v1.ProtocolTCP, From: 82, To: 65535}, {Protocol: v1.ProtocolUDP, From: 1, To: 2}, {Protocol: v1.ProtocolUDP, From: 81, To: 81},
		}}}, nil, slices.Concat(to(80, "", "b", "c", outside), to(81, ""), to(80, v1.ProtocolUDP), to(81, v1.ProtocolUDP, "b", "c", outside))},
		{"at named ports", rules{{AnyPeer: true, Named: []networkpolicy.NamedPort{{Protocol: v1.ProtocolTCP, Name: "other"}, http}}}, nil,
			append(to(81, "", "b", "c", outside), to(80, "")...)},
		{"at a named port", rules{{Groups: []networkpolicy.Group{group}, Named: []networkpolicy.NamedPort{http}}}, nil, append(to(81, "", "b"), to(80, "")...)},
		{"from blocks", rules{{Blocks: blocksOf("10.9.1.0", "10.9.1.2", "10.9.1.4", "255.255.255.255"), AnyPort: true}}, nil, to(80, "", "c", outside)},
		{"from all addresses", rules{{Blocks: blocksOf("0.0.0.0", "255.255.255.255"), AnyPort: true}}, nil, to(80, "", "b", "c", outside)},
		{"rules are united", rules{{Groups: []networkpolicy.Group{group}, Ports: http80}, {Blocks: blocksOf("192.0.2.7", "192.0.2.7"), AnyPort: true}}, nil,
			append(to(80, "", "b", outside), to(81, "", outside)...)},
		{"to a group", nil, rules{{Groups: []networkpolicy.Group{group}, AnyPort: true}},
			[]try{{"a", "b", "", 80, true}, {"a", "c", "", 80, false}, {"a", outside, "", 80, false}, {"c", "a", "", 80, true}}},
		{"to a named port", nil, rules{{AnyPeer: true, Named: []networkpolicy.NamedPort{http}}},
			[]try{{"a", "b", "", 80, true}, {"a", "b", "", 81, false}, {"a", "c", "", 80, false}}},
		{"to a block at a port", nil, rules{{Blocks: blocksOf("192.0.2.0", "192.0.2.255"), Ports: http80}},
			[]try{{"a", outside, "", 80, true}, {"a", outside, "", 81, false}, {"a", "b", "", 80, false}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l.t = t
			l.apply(isolating(c.ingress, c.egress, "10.9.1.2", "fd09::2"))
			l.check(c.tries...)
		})
	}
	l.t = t
	// Both pods must allow a connection.
	both := isolating([]networkpolicy.Rule{}, nil, "10.9.1.3")
	both.Pods[netip.MustParseAddr("10.9.1.2")] = networkpolicy.Isolation{Egress: []types.NamespacedName{policy}}
	both.Policies[policy] = &networkpolicy.Policy{Egress: []networkpolicy.Rule{anyone}}
	l.apply(both)
	l.check(try{"a", "b", "", 80, false}, try{"a", "c", "", 80, true}, try{"c", "b", "", 80, false})
	// IPv6, with neighbours that are not known yet.
	l.apply(isolating([]networkpolicy.Rule{{Groups: []networkpolicy.Group{group}, AnyPort: true}}, []networkpolicy.Rule{}, "10.9.1.2", "fd09::2"))
	l.check(try{"b", "fd09::2", "", 80, true}, try{"c", "fd09::2", "", 80, false}, try{"a", "fd09::3", "", 80, false}, try{outside, "fd09::2", "", 80, false}, try{"node", "fd09::2", "", 80, true})
	if intact, err := l.backend.Intact(); !intact || err != nil {
		t.Errorf("intact %v, %v", intact, err)
	}
	if err := l.backend.Remove(); err != nil {
		t.Fatal(err)
	}
	l.check(try{"c", "a", "", 80, true}, try{"a", "c", "", 80, true})
}

// TestServices judges what goes to a Service by the pod behind it.
func TestServices(t *testing.T) {
	l := newLab(t, "a", "b", "c")
	l.serve("a", 8080)
	services := proxynftables.New(proxynftables.Config{Table: "coracle-test-proxy", ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.9.1.0/24")}, NetNS: int(l.node)})
	if err := services.Apply(proxy.Rules{Services: proxy.ServicePorts{}.With(
		proxy.PortName{Port: "http", Protocol: v1.ProtocolTCP, Family: v1.IPv4Protocol},
		&proxy.ServicePort{ClusterIP: netip.MustParseAddr("10.96.0.20"), Port: 80, NodePort: 30080, Cluster: []netip.AddrPort{netip.MustParseAddrPort("10.9.1.2:8080")}},
	)}); err != nil {
		t.Fatal(err)
	}
	for _, m := range []string{"a", "b", "c", "node"} {
		if m != "node" {
			l.check(try{m, "10.96.0.20", "", 80, true})
		}
	}
	eighty := []networkpolicy.Ports{{Protocol: v1.ProtocolTCP, From: 8080, To: 8080}}
	l.apply(isolating([]networkpolicy.Rule{{Groups: []networkpolicy.Group{group}, Ports: eighty}}, []networkpolicy.Rule{}, "10.9.1.2"))
	l.check(
		try{"b", "10.96.0.20", "", 80, true}, try{"b", "192.0.2.1", "", 30080, true}, try{"c", "10.96.0.20", "", 80, false}, try{"c", "192.0.2.1", "", 30080, false},
		try{outside, "192.0.2.1", "", 30080, false}, try{"a", "10.96.0.20", "", 80, true},
	)
	l.apply(isolating([]networkpolicy.Rule{{Blocks: blocksOf("192.0.2.7", "192.0.2.7"), Ports: eighty}}, nil, "10.9.1.2"))
	l.check(try{outside, "192.0.2.1", "", 30080, true}, try{"b", "10.96.0.20", "", 80, false})
}

// TestChangeEndsConnections checks that open connections follow the policies,
// and that replies and other connections go on.
func TestChangeEndsConnections(t *testing.T) {
	l := newLab(t, "a", "b", "c")
	l.serve("a", 80)
	l.serve("b", 80)
	open := func(from, to string) func(passes bool) {
		c, err := l.dial(from, "tcp", to, long)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return func(passes bool) {
			t.Helper()
			timeout := short
			if passes {
				timeout = long
			}
			if err := echo(c, timeout); (err == nil) != passes {
				t.Errorf("connection from %s to %s: %v, want it to pass: %v", from, to, err, passes)
			}
		}
	}
	fromB, fromC, fromA := open("b", "10.9.1.2:80"), open("c", "10.9.1.2:80"), open("a", "10.9.1.3:80")
	fromB(true)
	fromC(true)
	l.apply(isolating([]networkpolicy.Rule{{Groups: []networkpolicy.Group{group}, AnyPort: true}}, nil, "10.9.1.2"))
	fromB(true)
	fromC(false)
	fromA(true)
	// A new process takes over without a gap.
	l.backend = New(Config{Table: "coracle-test", Bridge: "cor-test", IPv6: true, NetNS: int(l.node)})
	l.check(try{"c", "a", "", 80, false})
	l.apply(isolating([]networkpolicy.Rule{anyone}, nil, "10.9.1.2"))
	fromB(true)
	fromC(true)
}

// TestFailureClosesNothingAndOpensNothing checks that a transaction that fails
// leaves the rules of the last one, and that the next one works.
func TestFailureClosesNothingAndOpensNothing(t *testing.T) {
	l := newLab(t, "a", "b", "c")
	l.serve("a", 80)
	good := isolating([]networkpolicy.Rule{{Groups: []networkpolicy.Group{group}, AnyPort: true}}, nil, "10.9.1.2")
	l.apply(good)
	bad := isolating([]networkpolicy.Rule{anyone}, nil, "10.9.1.2")
	bad.Policies[policy].Ingress[0].Blocks = blocksOf("10.0.0.0", "10.255.255.255", "10.0.0.0", "10.0.0.5")
	bad.Policies[policy].Ingress[0].AnyPeer = false
	if err := l.backend.Apply(bad); err == nil {
		t.Fatal("the kernel has taken blocks that overlap")
	}
	l.check(to(80, "", "b")...)
	l.apply(good)
	l.check(to(80, "", "b")...)
}

// TestAddressOfAFormerPod checks that replies to a pod do not reach the pod that
// has its address next.
func TestAddressOfAFormerPod(t *testing.T) {
	l := newLab(t, "a", "b")
	address := netip.MustParseAddr("10.9.1.2")
	rules := func(owner types.UID) networkpolicy.Rules {
		r := isolating([]networkpolicy.Rule{}, nil, "10.9.1.2")
		r.Owners = map[netip.Addr]types.UID{address: owner}
		return r
	}
	l.apply(rules("former"))
	l.serve("b", 53)
	c, err := l.dial("a", "udp", "10.9.1.3:53", long)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := echo(c, long); err != nil {
		t.Fatal(err)
	}
	_, port, _ := strings.Cut(c.LocalAddr().String(), ":")
	reply := func(wait time.Duration) bool {
		// What b sends from port 53 to the port of the flow is a reply to a.
		netnstest.Do(t, l.members["b"], func() error {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_UDP)
			if err != nil {
				return err
			}
			defer func() { _ = unix.Close(fd) }()
			var n int
			if _, err := fmt.Sscan(port, &n); err != nil {
				return err
			}
			datagram := binary.BigEndian.AppendUint16(nil, 53)
			datagram = append(binary.BigEndian.AppendUint16(datagram, uint16(n)), 0, 9, 0, 0, 'y')
			return unix.Sendto(fd, datagram, 0, &unix.SockaddrInet4{Addr: address.As4()})
		})
		_ = c.SetReadDeadline(time.Now().Add(wait))
		_, err := c.Read(make([]byte, 16))
		return err == nil
	}
	if !reply(long) {
		t.Error("a reply has not reached the pod that asked")
	}
	l.apply(rules("next"))
	if reply(short) {
		t.Error("a reply to the former pod has reached the next one")
	}
}

// TestNeighbours checks that pods of one bridge do not bypass the policies by
// link-local addresses and broadcasts.
func TestNeighbours(t *testing.T) {
	l := newLab(t, "a", "b")
	l.serve("a", 80)
	shouts := func(wait time.Duration) bool {
		var conn net.PacketConn
		netnstest.Do(t, l.members["b"], func() (err error) {
			conn, err = net.ListenPacket("udp4", ":0")
			return err
		})
		defer func() { _ = conn.Close() }()
		if _, err := conn.WriteTo([]byte("x"), net.UDPAddrFromAddrPort(netip.MustParseAddrPort("10.9.1.255:80"))); err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(wait))
		_, _, err := conn.ReadFrom(make([]byte, 16))
		return err == nil
	}
	l.apply(isolating(nil, nil))
	l.check(try{"b", "fe80::2%eth0", "", 80, true})
	if !shouts(long) {
		t.Error("a broadcast has not arrived, and no pod is isolated")
	}
	l.apply(isolating([]networkpolicy.Rule{}, nil, "10.9.1.2"))
	l.check(try{"b", "fe80::2%eth0", "", 80, false}, try{"node", "10.9.1.2", "", 80, true}, try{"node", "fd09::2", "", 80, true})
	if shouts(short) {
		t.Error("a broadcast has reached an isolated pod")
	}
	l.apply(isolating([]networkpolicy.Rule{}, nil))
	l.check(try{"b", "fe80::2%eth0", "", 80, true})
}

// TestIngressPorts checks that a pod does not reach by the Ingresses of its node what its
// policies forbid. What is not isolated in that direction, other ports and replies pass.
func TestIngressPorts(t *testing.T) {
	l := newLab(t, "a", "b")
	l.backend = New(Config{Table: "coracle-test", Bridge: "cor-test", IPv6: true, IngressPorts: []uint16{80, 443}, NetNS: int(l.node)})
	for _, member := range []string{"a", "node"} {
		l.serve(member, 80, 81)
	}
	passing := []try{
		{"a", "node", "", 81, true}, {"a", "node", v1.ProtocolUDP, 80, true}, {"a", "fd09::1", "", 81, true}, {"node", "a", "", 80, true}, {"node", "fd09::2", "", 80, true},
		{"b", "node", "", 80, true}, {"b", "fd09::1", "", 80, true}, {outside, "192.0.2.1", "", 80, true},
	}
	l.apply(isolating(nil, []networkpolicy.Rule{}, "10.9.1.2", "fd09::2"))
	l.check(append(passing, try{"a", "node", "", 80, false}, try{"a", "192.0.2.1", "", 80, false}, try{"a", "fd09::1", "", 80, false})...)
	l.apply(isolating(nil, []networkpolicy.Rule{{Blocks: blocksOf("10.9.1.1", "10.9.1.1", "fd09::1", "fd09::1"), AnyPort: true}}, "10.9.1.2", "fd09::2"))
	l.check(append(passing, try{"a", "node", "", 80, true}, try{"a", "192.0.2.1", "", 80, false}, try{"a", "fd09::1", "", 80, true})...)
	l.apply(isolating([]networkpolicy.Rule{}, nil, "10.9.1.2", "fd09::2"))
	l.check(append(passing, try{"a", "node", "", 80, true}, try{"a", "fd09::1", "", 80, true})...)
	if intact, err := l.backend.Intact(); !intact || err != nil {
		t.Errorf("intact %v, %v", intact, err)
	}
	l.apply(isolating(nil, nil))
	l.check(append(passing, try{"a", "node", "", 80, true})...)
}

// TestSCTP sends the first chunk of an SCTP association. No kernel module of SCTP
// is needed for it.
func TestSCTP(t *testing.T) {
	l := newLab(t, "a", "b")
	var server int
	netnstest.Do(t, l.members["a"], func() (err error) {
		server, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_SCTP)
		return err
	})
	defer func() { _ = unix.Close(server) }()
	arrives := func(port uint16, wait time.Duration) bool {
		packet := binary.BigEndian.AppendUint16(nil, 5000)
		packet = binary.BigEndian.AppendUint16(packet, port)
		packet = append(packet, make([]byte, 8)...)                                                     // no tag; the checksum is below
		packet = append(packet, 1, 0, 0, 20, 0, 0, 0, byte(port), 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 100) // INIT
		binary.LittleEndian.PutUint32(packet[8:], crc32.Checksum(packet, crc32.MakeTable(crc32.Castagnoli)))
		end := time.Now().Add(wait)
		for time.Now().Before(end) {
			netnstest.Do(t, l.members["b"], func() error {
				fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_SCTP)
				if err != nil {
					return err
				}
				defer func() { _ = unix.Close(fd) }()
				return unix.Sendto(fd, packet, 0, &unix.SockaddrInet4{Addr: [4]byte{10, 9, 1, 2}})
			})
			_ = unix.SetsockoptTimeval(server, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: int64(short / time.Microsecond)})
			b := make([]byte, 128)
			if n, _, err := unix.Recvfrom(server, b, 0); err == nil && bytes.HasSuffix(b[:n], packet) {
				return true
			}
		}
		return false
	}
	l.apply(isolating([]networkpolicy.Rule{{AnyPeer: true, Ports: []networkpolicy.Ports{{Protocol: v1.ProtocolSCTP, From: 7000, To: 7010}}}}, nil, "10.9.1.2"))
	if !arrives(7005, long) {
		t.Error("a packet to an allowed port of SCTP has not arrived")
	}
	if arrives(7011, short) {
		t.Error("a packet to another port of SCTP has arrived")
	}
}

// TestIntact checks that sets of all kinds are found as they were written, and that
// an address which another program has taken from one is missed.
func TestIntact(t *testing.T) {
	l := newLab(t)
	rules := isolating([]networkpolicy.Rule{{
		Groups: []networkpolicy.Group{group}, Blocks: blocksOf("0.0.0.0", "10.0.0.1", "10.0.0.7", "10.0.0.7", "255.0.0.0", "255.255.255.255", "::", "fd00::1"), Named: []networkpolicy.NamedPort{http},
		Ports: []networkpolicy.Ports{{Protocol: v1.ProtocolTCP, From: 0, To: 1}, {Protocol: v1.ProtocolTCP, From: 9, To: 9}, {Protocol: v1.ProtocolTCP, From: 65000, To: 65535}},
	}}, []networkpolicy.Rule{}, "10.9.1.2", "fd09::2")
	if isolated, err := l.backend.Isolated(); len(isolated) > 0 || err != nil {
		t.Errorf("isolated without a table: %v, %v", isolated, err)
	}
	for _, c := range []struct {
		table  string
		intact bool
	}{{"other", true}, {"coracle-test", false}} {
		l.backend = New(Config{Table: "coracle-test", Bridge: "cor-test", IPv6: true, NetNS: int(l.node)}) // which has compared nothing yet
		l.apply(rules)
		if isolated, err := l.backend.Isolated(); fmt.Sprint(isolated) != "[10.9.1.2 fd09::2]" || err != nil {
			t.Errorf("isolated: %v, %v", isolated, err)
		}
		conn, err := nft.Connect(int(l.node))
		if err != nil {
			t.Fatal(err)
		}
		table := &nftables.Table{Family: nftables.TableFamilyIPv4, Name: c.table}
		if c.intact {
			conn.AddTable(table)
		} else {
			conn.FlushSet(set{kind: isolated}.describe(nft.IPv4, table, ingressPods))
		}
		if err := conn.Flush(); err != nil {
			t.Fatal(err)
		}
		if intact, err := l.backend.Intact(); intact != c.intact || err != nil {
			t.Errorf("after a change of table %s: intact %v, %v", c.table, intact, err)
		}
	}
}

// TestMany applies thousands of policies, blocks and ports in one transaction,
// and then one change.
func TestMany(t *testing.T) {
	l := newLab(t, "a", "b")
	l.serve("a", 80)
	rules := isolating([]networkpolicy.Rule{}, nil, "10.9.1.2")
	var names []types.NamespacedName
	for i := range 2000 {
		name := types.NamespacedName{Namespace: "x", Name: fmt.Sprint("p", i)}
		names = append(names, name)
		rules.Policies[name] = &networkpolicy.Policy{Ingress: []networkpolicy.Rule{{
			Blocks: blocksOf(fmt.Sprintf("172.16.%d.%d", i/250, i%250), fmt.Sprintf("172.16.%d.%d", i/250, i%250)),
			Ports:  []networkpolicy.Ports{{Protocol: v1.ProtocolTCP, From: uint16(i + 1), To: uint16(i + 1)}},
		}}}
	}
	wide := networkpolicy.Rule{}
	for i := range 3000 {
		a := netip.AddrFrom4([4]byte{11, byte(i / 100), byte(i % 100), 0})
		wide.Blocks = append(wide.Blocks, networkpolicy.Block{From: a, To: a})
		wide.Ports = append(wide.Ports, networkpolicy.Ports{Protocol: v1.ProtocolTCP, From: uint16(2*i + 100), To: uint16(2*i + 100)})
	}
	rules.Policies[names[0]].Ingress = append(rules.Policies[names[0]].Ingress, wide)
	rules.Pods[netip.MustParseAddr("10.9.1.2")] = networkpolicy.Isolation{Ingress: names}
	started := time.Now()
	l.apply(rules)
	t.Logf("%d policies took %v", len(names), time.Since(started))
	l.check(try{"b", "a", "", 80, false})
	rules.Policies[names[1000]] = &networkpolicy.Policy{Ingress: []networkpolicy.Rule{{Groups: []networkpolicy.Group{group}, AnyPort: true}}}
	started = time.Now()
	l.apply(rules)
	t.Logf("a change took %v", time.Since(started))
	l.check(try{"b", "a", "", 80, true})
}
