package dns

import (
	"context"
	"net"
	"net/netip"
	"testing"

	"github.com/miekg/dns"
)

func testClients(pods ...string) *clients {
	var ranges []netip.Prefix
	for _, p := range pods {
		ranges = append(ranges, netip.MustParsePrefix(p))
	}
	c := newClients(ranges, func(a netip.Addr) bool { return a == netip.MustParseAddr("192.0.2.11") })
	c.interfaces = func() ([]net.Addr, error) {
		return []net.Addr{&net.IPNet{IP: net.IPv4(192, 0, 2, 10), Mask: net.CIDRMask(24, 32)}}, nil
	}
	return c
}

// writer takes the answer to a client.
type writer struct {
	dns.ResponseWriter
	client net.Addr
	reply  *dns.Msg
	size   int // of the reply in bytes, unless it was not packed
}

func (w *writer) RemoteAddr() net.Addr { return w.client }

func (w *writer) WriteMsg(m *dns.Msg) error {
	w.reply = m
	return nil
}

func (w *writer) Write(data []byte) (int, error) {
	w.reply, w.size = new(dns.Msg), len(data)
	return len(data), w.reply.Unpack(data)
}

// TestStrangersAreRefused checks that only pods, this machine and the cluster's other DNS
// servers are answered.
func TestStrangersAreRefused(t *testing.T) {
	view := fakeView{namespaces: []string{"default"}, services: []*Service{
		{Namespace: "default", Name: "web", ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.20")}},
	}}
	s := &Server{
		clients: testClients("10.244.0.0/16", "fd00:244::/56"), forward: newForwarder("/nonexistent", "", nil),
		zone: &Zone{Domain: "cluster.local.", TTL: ttl, View: view},
	}
	ask := func(client string) *dns.Msg {
		w := &writer{client: net.UDPAddrFromAddrPort(netip.MustParseAddrPort(client))}
		s.resolve(context.Background(), w, new(dns.Msg).SetQuestion("web.default.svc.cluster.local.", dns.TypeA))
		return w.reply
	}
	for client, want := range map[string]int{
		"10.244.3.4:5353":           dns.RcodeSuccess,
		"[::ffff:10.244.3.4]:5353":  dns.RcodeSuccess,
		"[fd00:244::7]:5353":        dns.RcodeSuccess,
		"127.0.0.1:5353":            dns.RcodeSuccess,
		"192.0.2.10:5353":           dns.RcodeSuccess, // this machine
		"192.0.2.11:5353":           dns.RcodeSuccess, // another node's server
		"192.0.2.12:5353":           dns.RcodeRefused,
		"10.245.0.1:5353":           dns.RcodeRefused,
		"[fe80::1%eth0]:5353":       dns.RcodeRefused,
		"[::ffff:192.0.2.200]:5353": dns.RcodeRefused,
	} {
		reply := ask(client)
		if reply.Rcode != want || (len(reply.Answer) > 0) != (want == dns.RcodeSuccess) {
			t.Errorf("%s gets %s with %d records, want %s", client, dns.RcodeToString[reply.Rcode], len(reply.Answer), dns.RcodeToString[want])
		}
	}
	s.clients = testClients()
	if reply := ask("203.0.113.9:5353"); reply.Rcode != dns.RcodeSuccess {
		t.Errorf("a server without ranges answers %s", dns.RcodeToString[reply.Rcode])
	}
}

// TestMachine checks that queries from the machine that a host is a part of are
// known by their address.
func TestMachine(t *testing.T) {
	c := Config{Machine: "10.9.0.1:10053"}
	for address, want := range map[string]bool{"10.9.0.1": true, "10.9.0.2": false} {
		if got := c.isMachine(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s is the machine's: %v", address, got)
		}
	}
	if (Config{}).isMachine(netip.Addr{}) {
		t.Error("without a machine, there is one")
	}
}

// TestDatagramsAreSmall checks that the answer to a query by UDP is small even if
// the query asks for more: its sender may be forged.
func TestDatagramsAreSmall(t *testing.T) {
	service := &Service{Namespace: "default", Name: "big"}
	for i := range 500 {
		service.Endpoints = append(service.Endpoints, Endpoint{Address: netip.AddrFrom4([4]byte{10, 244, byte(i >> 8), byte(i)})})
	}
	s := &Server{
		clients: testClients("10.244.0.0/16"), forward: newForwarder("/nonexistent", "", nil),
		zone: &Zone{Domain: "cluster.local.", TTL: ttl, View: fakeView{namespaces: []string{"default"}, services: []*Service{service}}},
	}
	query := new(dns.Msg).SetQuestion("big.default.svc.cluster.local.", dns.TypeA)
	query.SetEdns0(dns.MaxMsgSize-1, false)
	w := &writer{client: &net.UDPAddr{IP: net.IPv4(10, 244, 0, 5), Port: 53}}
	s.resolve(context.Background(), w, query)
	if w.size > maxDatagram || !w.reply.Truncated {
		t.Errorf("an answer of %d bytes by UDP, truncated %v", w.size, w.reply.Truncated)
	}
	w.client = &net.TCPAddr{IP: net.IPv4(10, 244, 0, 5), Port: 53}
	s.resolve(context.Background(), w, query)
	if len(w.reply.Answer) != 500 {
		t.Errorf("%d records by TCP, want all 500", len(w.reply.Answer))
	}
}

// TestStreamsAreBounded checks that connections of strangers, and those over a
// client's quota, are closed.
func TestStreamsAreBounded(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := listener{inner, testClients("10.244.0.0/16"), newQuota(10, 2)}
	accepted := make(chan net.Conn)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	}()
	defer func() {
		_ = l.Close()
		<-ended
	}()
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	dial()
	first := <-accepted
	dial()
	second := <-accepted
	if n, err := dial().Read(make([]byte, 1)); err == nil {
		t.Errorf("a third connection of one client lives and reads %d bytes", n)
	}
	_ = first.Close()
	_ = first.Close() // gives back once
	dial()
	third := <-accepted
	if _, err := dial().Read(make([]byte, 1)); err == nil {
		t.Error("a place was given back twice")
	}
	_ = second.Close()
	_ = third.Close()
}
