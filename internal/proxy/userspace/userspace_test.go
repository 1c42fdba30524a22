package userspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/costtest"
	"github.com/coracle-io/coracle/internal/freeport"
	"github.com/coracle-io/coracle/internal/proxy"
	"github.com/coracle-io/coracle/internal/proxy/nftables"
	"github.com/coracle-io/coracle/internal/proxy/proxytest"
)

// patience bounds the waits for what happens at once on a machine that is not busy.
const patience = 3 * time.Minute

// fakeTable takes the place of the table of nftables.
type fakeTable struct {
	rules  proxy.Rules
	failed error
}

func (*fakeTable) Deliver(nftables.Delivery) {}
func (*fakeTable) Intact() (bool, error)     { return true, nil }
func (*fakeTable) Remove() error             { return nil }
func (f *fakeTable) Apply(rules proxy.Rules) error {
	f.rules = rules
	return f.failed
}

// lab is a backend without rules in the kernel: tests connect to its listeners.
type lab struct {
	*Backend
	t     *testing.T
	table *fakeTable
}

func newLab(t *testing.T) *lab {
	l := &lab{Backend: New(t.Context(), nftables.Config{Table: "coracle-test"}), t: t, table: &fakeTable{}}
	l.Backend.table = l.table
	t.Cleanup(l.Backend.close)
	return l
}

func nameOf(protocol v1.Protocol) proxy.PortName {
	return proxy.PortName{NamespacedName: types.NamespacedName{Namespace: "default", Name: "s"}, Port: "p", Protocol: protocol, Family: v1.IPv4Protocol}
}

// apply applies the rules of one port.
func (l *lab) apply(protocol v1.Protocol, p *proxy.ServicePort) {
	l.t.Helper()
	if err := l.Apply(proxy.Rules{Services: proxy.ServicePorts{}.With(nameOf(protocol), p)}); err != nil {
		l.t.Fatal(err)
	}
}

// dial connects to the listener of a port.
func (l *lab) dial(protocol v1.Protocol) net.Conn {
	l.t.Helper()
	port := l.port(nameOf(protocol), false)
	if port == 0 {
		l.t.Fatal("there is no listener")
	}
	c, err := net.DialTimeout(strings.ToLower(string(protocol)), fmt.Sprintf("127.0.0.1:%d", port), patience)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		l.t.Fatal(err)
	}
	return c
}

// server starts an endpoint that calls handle with each connection.
func server(t *testing.T, handle func(*net.TCPConn)) netip.AddrPort {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go handle(c.(*net.TCPConn))
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-done
	})
	return listener.Addr().(*net.TCPAddr).AddrPort()
}

// named starts an endpoint that says its name.
func named(t *testing.T, name string) netip.AddrPort {
	return server(t, func(c *net.TCPConn) {
		_, _ = io.WriteString(c, name)
		_ = c.Close()
	})
}

// answerers returns who answers n connections.
func (l *lab) answerers(n int) (all []string) {
	l.t.Helper()
	for range n {
		answer, err := io.ReadAll(l.dial(v1.ProtocolTCP))
		if err != nil {
			l.t.Fatal(err)
		}
		all = append(all, string(answer))
	}
	return all
}

func TestRoundRobin(t *testing.T) {
	l := newLab(t)
	a, b := named(t, "a"), named(t, "b")
	nobody := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(freeport.For(t)))
	l.apply(v1.ProtocolTCP, &proxy.ServicePort{Cluster: []netip.AddrPort{a, b}})
	if got := l.answerers(4); !slices.Equal(got, []string{"a", "b", "a", "b"}) {
		t.Errorf("%q answer", got)
	}
	port := l.port(nameOf(v1.ProtocolTCP), false)
	l.apply(v1.ProtocolTCP, &proxy.ServicePort{Cluster: []netip.AddrPort{a, b}, Affinity: time.Hour})
	if got := l.answerers(3); len(slices.Compact(got)) != 1 {
		t.Errorf("with affinity %q answer", got)
	}
	l.apply(v1.ProtocolTCP, &proxy.ServicePort{Cluster: []netip.AddrPort{nobody, b}, Affinity: time.Hour})
	if got := l.answerers(3); !slices.Equal(got, []string{"b", "b", "b"}) {
		t.Errorf("instead of an endpoint that does not listen, %q answer", got)
	}
	if now := l.port(nameOf(v1.ProtocolTCP), false); now != port {
		t.Errorf("the port was %d and is %d", port, now)
	}
	l.apply(v1.ProtocolTCP, &proxy.ServicePort{Cluster: []netip.AddrPort{nobody}})
	if answer, err := io.ReadAll(l.dial(v1.ProtocolTCP)); err == nil {
		t.Errorf("without an endpoint that listens there is the answer %q", answer)
	}
	l.apply(v1.ProtocolTCP, &proxy.ServicePort{})
	if now := l.port(nameOf(v1.ProtocolTCP), false); now != 0 || l.room.taken() > 0 {
		t.Errorf("without endpoints the port is %d, with %d connections", now, l.room.taken())
	}
}

// TestHalfClose checks that one side may still send when the other one has ended.
func TestHalfClose(t *testing.T) {
	l := newLab(t)
	l.apply(v1.ProtocolTCP, &proxy.ServicePort{Cluster: []netip.AddrPort{server(t, func(c *net.TCPConn) {
		data, _ := io.ReadAll(c) // until the client has ended
		_, _ = c.Write([]byte(strings.ToUpper(string(data))))
		_ = c.Close()
	})}})
	c := l.dial(v1.ProtocolTCP).(*net.TCPConn)
	if _, err := io.WriteString(c, "question"); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(c); err != nil || string(answer) != "QUESTION" {
		t.Errorf("the answer is %q, %v", answer, err)
	}
}

// TestConnectionsEndWithTheirEndpoint checks that those to other endpoints go on.
func TestConnectionsEndWithTheirEndpoint(t *testing.T) {
	l := newLab(t)
	echo := func(c *net.TCPConn) { _, _ = io.Copy(c, c) }
	a, b := server(t, echo), server(t, echo)
	l.apply(v1.ProtocolTCP, &proxy.ServicePort{Cluster: []netip.AddrPort{a, b}})
	first, second := l.dial(v1.ProtocolTCP), l.dial(v1.ProtocolTCP)
	ask := func(c net.Conn) error {
		if _, err := c.Write([]byte("x")); err != nil {
			return err
		}
		_, err := io.ReadFull(c, make([]byte, 1))
		return err
	}
	for i, c := range []net.Conn{first, second} { // one after another, so that first has a
		if err := ask(c); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
	}
	l.apply(v1.ProtocolTCP, &proxy.ServicePort{Cluster: []netip.AddrPort{a}})
	toA, toB := ask(first), ask(second)
	if toA != nil && toB != nil || toA == nil && toB == nil {
		t.Errorf("after the end of one endpoint, the connections say %v and %v", toA, toB)
	}
}

// TestTooManyConnections checks that a connection too many takes the place of another one.
func TestTooManyConnections(t *testing.T) {
	l := newLab(t)
	l.room.mostOfAll = 1
	l.apply(v1.ProtocolTCP, &proxy.ServicePort{Cluster: []netip.AddrPort{server(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })}})
	first := l.dial(v1.ProtocolTCP)
	if got := ask(t, first, "1"); got != "1" {
		t.Fatalf("the answer is %q", got)
	}
	if got := ask(t, l.dial(v1.ProtocolTCP), "2"); got != "2" {
		t.Errorf("a connection too many gets the answer %q", got)
	}
	if _, err := first.Read(make([]byte, 1)); err == nil {
		t.Error("the connection before it has not ended")
	}
	if n := l.room.taken(); n != 1 {
		t.Errorf("%d connections have a place", n)
	}
}

// taken returns how many connections have seats.
func (r *room) taken() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all.Len()
}

// counted counts how often a connection was ended.
type counted struct{ ended int }

func (c *counted) abort() { c.ended++ }

// TestGreedyClients checks that a client with very many connections keeps others neither from
// the same Service nor from another one.
func TestGreedyClients(t *testing.T) {
	greedy, fair := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	for name, test := range map[string]struct {
		ofPort, ofAll int
		others        bool // whether the other client uses another port
	}{"the same port": {5, 100, false}, "another port": {100, 5, true}} {
		r := newRoom()
		r.mostOfPort, r.mostOfAll = test.ofPort, test.ofAll
		used := &listener{ctx: t.Context(), room: r, active: map[connection]netip.AddrPort{}}
		other := used
		if test.others {
			other = &listener{ctx: t.Context(), room: r, active: map[connection]netip.AddrPort{}}
		}
		var seated []*seat
		var many [10]*counted
		one := &counted{}
		for i := range many {
			many[i] = &counted{}
			seated = append(seated, used.admit(many[i], greedy))
			if i == 2 {
				seated = append(seated, other.admit(one, fair))
			}
		}
		for i, c := range many {
			if ended := i < len(many)-4; (c.ended == 1) != ended || c.ended > 1 {
				t.Errorf("%s: connection %d of the greedy client was ended %d times", name, i, c.ended)
			}
		}
		if one.ended > 0 || r.taken() != 5 {
			t.Errorf("%s: the other client's connection was ended %d times, and %d have a place", name, one.ended, r.taken())
		}
		for _, s := range seated[:len(seated)-1] {
			used.leave(s)
		}
		if r.taken() != 1 {
			t.Errorf("%s: %d have a place after all but one have left", name, r.taken())
		}
	}
}

// datagramServer starts an endpoint of UDP that answers with its name and the question.
func datagramServer(t *testing.T, name string) netip.AddrPort {
	t.Helper()
	socket, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buffer := make([]byte, 64)
		for {
			n, from, err := socket.ReadFrom(buffer)
			if err != nil {
				return
			}
			_, _ = socket.WriteTo(append([]byte(name+" "), buffer[:n]...), from)
		}
	}()
	t.Cleanup(func() {
		_ = socket.Close()
		<-done
	})
	return socket.LocalAddr().(*net.UDPAddr).AddrPort()
}

// ask sends a datagram and returns the answer.
func ask(t *testing.T, c net.Conn, text string) string {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 64)
	n, err := c.Read(buffer)
	if err != nil {
		t.Fatal(err)
	}
	return string(buffer[:n])
}

// TestDatagrams checks that a client keeps its endpoint until that goes.
func TestDatagrams(t *testing.T) {
	l := newLab(t)
	a, b := datagramServer(t, "a"), datagramServer(t, "b")
	l.apply(v1.ProtocolUDP, &proxy.ServicePort{Cluster: []netip.AddrPort{a, b}})
	first, second := l.dial(v1.ProtocolUDP), l.dial(v1.ProtocolUDP)
	for _, step := range []struct {
		c    net.Conn
		text string
		want string
	}{{first, "1", "a 1"}, {second, "2", "b 2"}, {first, "3", "a 3"}, {second, "4", "b 4"}} {
		if got := ask(t, step.c, step.text); got != step.want {
			t.Errorf("%s is answered by %q, want %q", step.text, got, step.want)
		}
	}
	l.apply(v1.ProtocolUDP, &proxy.ServicePort{Cluster: []netip.AddrPort{b}})
	if got := ask(t, first, "5"); got != "b 5" {
		t.Errorf("after the end of a there is the answer %q", got)
	}
	l.apply(v1.ProtocolUDP, &proxy.ServicePort{})
	if l.room.taken() > 0 || len(l.listeners) > 0 {
		t.Errorf("%d flows of %d listeners are left", l.room.taken(), len(l.listeners))
	}
}

// TestTooManyFlows checks that a flow too many takes the place of another one, whose client
// begins a new one.
func TestTooManyFlows(t *testing.T) {
	l := newLab(t)
	l.room.mostOfAll = 1
	l.apply(v1.ProtocolUDP, &proxy.ServicePort{Cluster: []netip.AddrPort{datagramServer(t, "a"), datagramServer(t, "b"), datagramServer(t, "c")}})
	first, second := l.dial(v1.ProtocolUDP), l.dial(v1.ProtocolUDP)
	for _, step := range []struct {
		c          net.Conn
		text, want string
	}{{first, "1", "a 1"}, {second, "2", "b 2"}, {second, "3", "b 3"}, {first, "4", "c 4"}} {
		if got := ask(t, step.c, step.text); got != step.want {
			t.Errorf("%s is answered by %q, want %q", step.text, got, step.want)
		}
	}
	if n := l.room.taken(); n != 1 {
		t.Errorf("%d flows have a place", n)
	}
}

// TestRefusals checks that what is not served has no endpoints, and only while that is so.
func TestRefusals(t *testing.T) {
	l := newLab(t)
	p := &proxy.ServicePort{Cluster: proxytest.Endpoints("127.0.0.1:1"), Local: proxytest.Endpoints("127.0.0.1:1"), NodePort: 30080, ExternalLocal: true}
	l.apply(v1.ProtocolSCTP, p)
	first := l.table.rules.Services.Get(nameOf(v1.ProtocolSCTP))
	if len(first.Cluster)+len(first.Local) > 0 || first.NodePort != 30080 || len(p.Cluster) != 1 {
		t.Errorf("SCTP is served with %+v", first)
	}
	l.apply(v1.ProtocolSCTP, p)
	if l.table.rules.Services.Get(nameOf(v1.ProtocolSCTP)) != first {
		t.Error("a Service that has not changed is another one")
	}
	l.apply(v1.ProtocolTCP, p)
	if l.table.rules.Services.Get(nameOf(v1.ProtocolTCP)) != p || len(l.listeners) != 2 || len(l.refused) > 0 {
		t.Errorf("TCP is not served: %+v, refused %v", l.table.rules.Services.Get(nameOf(v1.ProtocolTCP)), l.refused)
	}

	l.netNS = -1 // in which no socket can be opened
	rules := proxy.Rules{Services: proxy.ServicePorts{}.With(nameOf(v1.ProtocolTCP), p).With(nameOf(v1.ProtocolUDP), p)}
	if err := l.Apply(rules); err == nil || !strings.Contains(err.Error(), "default/s:p") {
		t.Errorf("a listener that cannot be opened: %v", err)
	}
	if got := l.table.rules.Services; got.Get(nameOf(v1.ProtocolTCP)) != p || len(got.Get(nameOf(v1.ProtocolUDP)).Cluster) > 0 {
		t.Errorf("without a listener there is %+v", got.Get(nameOf(v1.ProtocolUDP)))
	}
	l.netNS = 0
	if err := l.Apply(rules); err != nil || l.table.rules.Services.Get(nameOf(v1.ProtocolUDP)) != p {
		t.Errorf("a listener that can be opened again: %v", err)
	}
	l.table.failed = errors.New("failed")
	if err := l.Apply(proxy.Rules{}); !errors.Is(err, l.table.failed) || len(l.listeners) != 4 {
		t.Errorf("rules that cannot be applied: %v, with %d listeners", err, len(l.listeners))
	}
}

// TestAffinity checks when a client gets another endpoint.
func TestAffinity(t *testing.T) {
	var b balancer
	client, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	both := proxytest.Endpoints("10.9.1.3:80", "10.9.1.4:80")
	now := time.Now()
	expect := func(when string, client netip.Addr, want netip.AddrPort) {
		t.Helper()
		if got, ok := b.choose(client, now); !ok || got != want {
			t.Errorf("%s: %s, %v, want %s", when, got, ok, want)
		}
	}
	if got, ok := b.choose(client, now); ok {
		t.Errorf("without endpoints there is %s", got)
	}
	b.set(both, time.Minute)
	expect("at first", client, both[0])
	expect("another client", other, both[1])
	now = now.Add(time.Minute - 1)
	expect("within the time", client, both[0])
	now = now.Add(time.Minute - 1)
	expect("within the time since", client, both[0])
	now = now.Add(time.Minute)
	b.next = 1
	expect("after the time", client, both[1])
	b.set(both[:1], time.Minute)
	expect("without its endpoint", client, both[0])
	b.set(both, time.Minute)
	b.forget(client)
	b.next = 1
	expect("when it does not answer", client, both[1])

	b.clients = map[netip.Addr]choice{}
	for i := range mostClients {
		b.clients[netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})] = choice{both[0], now}
	}
	if _, ok := b.choose(client, now); !ok || len(b.clients) != mostClients {
		t.Errorf("%d clients are remembered", len(b.clients))
	}
	now = now.Add(time.Minute)
	if _, ok := b.choose(client, now); !ok || len(b.clients) != 1 {
		t.Errorf("%d clients are remembered after their time", len(b.clients))
	}
}

// TestEndedAttempt checks that a client whose attempt to reach its endpoint is ended, for that
// of another one, stays with the endpoint.
func TestEndedAttempt(t *testing.T) {
	client, endpoint := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddrPort("192.0.2.1:80")
	l := &listener{ctx: t.Context(), label: "test", family: v1.IPv4Protocol}
	l.balancer.set([]netip.AddrPort{endpoint, netip.MustParseAddrPort("192.0.2.2:80")}, time.Hour)
	ended, end := context.WithCancel(t.Context())
	end()
	if _, _, err := l.dial(ended, l.network("tcp"), client); err == nil {
		t.Error("an attempt that was ended has succeeded")
	}
	if again, ok := l.balancer.choose(client, time.Now()); !ok || again != endpoint {
		t.Errorf("the next attempt is to reach %s, want %s", again, endpoint)
	}
}

// TestAnswersComeFromWhereClientsSent checks the control messages of answers.
func TestAnswersComeFromWhereClientsSent(t *testing.T) {
	four, six := netip.MustParseAddr("192.0.2.1").As4(), netip.MustParseAddr("2001:db8::1").As16()
	for name, c := range map[string]struct{ received, want []byte }{
		"IPv4":    {unix.PktInfo4(&unix.Inet4Pktinfo{Ifindex: 3, Spec_dst: [4]byte{127, 0, 0, 1}, Addr: four}), unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: four})},
		"IPv6":    {unix.PktInfo6(&unix.Inet6Pktinfo{Ifindex: 3, Addr: six}), unix.PktInfo6(&unix.Inet6Pktinfo{Addr: six})},
		"nothing": {nil, nil},
		"rubbish": {[]byte{1, 2, 3}, nil},
	} {
		if got := answerControl(c.received); !bytes.Equal(got, c.want) {
			t.Errorf("%s: % x, want % x", name, got, c.want)
		}
	}
}

// TestCostOfAChange checks that a change of one Service looks at no others, and costs with
// 10,000 Services what it costs with 100.
func TestCostOfAChange(t *testing.T) {
	cost := func(services int) uint64 {
		l, rules := newLab(t), proxy.Rules{}
		name := nameOf(v1.ProtocolTCP)
		for i := range services { // without endpoints, so that there are no listeners
			name.Name = fmt.Sprint("s", i)
			rules.Services = rules.Services.With(name, &proxy.ServicePort{Port: 80})
		}
		if err := l.Apply(rules); err != nil {
			t.Fatal(err)
		}
		visited := 0
		rules.Services = rules.Services.Counted(&visited).With(name, &proxy.ServicePort{Port: 81})
		c := costtest.Of(t, func() {
			if err := l.Apply(rules); err != nil {
				t.Error(err)
			}
		})
		if got := l.table.rules.Services; visited > 20 || got.Len() != services || got.Get(name).Port != 81 {
			t.Errorf("with %d Services, %d are looked at, and %d served", services, visited, got.Len())
		}
		return c.Bytes
	}
	few, many := cost(100), cost(10_000)
	if many > 4*few {
		t.Errorf("a change allocates %d bytes with 100 Services and %d with 10,000", few, many)
	}
}
