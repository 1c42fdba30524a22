package dns

import (
	"net"
	"strconv"
	"testing"

	"github.com/miekg/dns"
	cachetesting "k8s.io/client-go/tools/cache/testing"

	"github.com/coracle-io/coracle/internal/freeport"
)

// TestAllListenersOrNone starts a server with two addresses. Another
// program has one. The server fails and leaves the free address alone.
func TestAllListenersOrNone(t *testing.T) {
	port := freeport.For(t)
	taken, err := net.Listen("tcp", net.JoinHostPort("127.0.0.2", strconv.Itoa(port)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	s := &Server{
		config: Config{Client: configMaps(cachetesting.NewFakeControllerSource()), Addresses: []string{"127.0.0.1", "127.0.0.2"}, Port: port},
		view:   &informerView{}, forward: newForwarder("/nonexistent", "", nil), zone: &Zone{Domain: "cluster.local."},
	}
	if err := s.run(t.Context()); err == nil {
		t.Fatal("the server runs without one of its addresses")
	}
	free := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	packets, err := net.ListenPacket("udp", free)
	if err != nil {
		t.Fatalf("the failed server still listens: %v", err)
	}
	_ = packets.Close()
	streams, err := net.Listen("tcp", free)
	if err != nil {
		t.Fatalf("the failed server still listens: %v", err)
	}
	_ = streams.Close()
}

// TestRefusals checks the queries that are answered by an error alone.
func TestRefusals(t *testing.T) {
	s := &Server{
		clients: testClients(), forward: newForwarder("/nonexistent", "", nil),
		zone: &Zone{Domain: "cluster.local.", TTL: ttl, View: fakeView{}},
	}
	for name, c := range map[string]struct {
		change func(*dns.Msg)
		want   int
	}{
		"transfer":                {func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeAXFR }, dns.RcodeRefused},
		"incremental transfer":    {func(m *dns.Msg) { m.SetIxfr("cluster.local.", 1, "a.", "b.") }, dns.RcodeRefused},
		"transfer from elsewhere": {func(m *dns.Msg) { m.SetAxfr("example.com.") }, dns.RcodeRefused},
		"another class":           {func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS }, dns.RcodeRefused},
		"any class":               {func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassANY }, dns.RcodeRefused},
		"EDNS of the future":      {func(m *dns.Msg) { m.SetEdns0(4096, false); m.IsEdns0().SetVersion(1) }, dns.RcodeBadVers},
		"an update":               {func(m *dns.Msg) { m.Opcode = dns.OpcodeUpdate }, dns.RcodeNotImplemented},
		"two questions":           {func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) }, dns.RcodeFormatError},
		"an ordinary one":         {func(*dns.Msg) {}, dns.RcodeSuccess},
	} {
		query := new(dns.Msg).SetQuestion("cluster.local.", dns.TypeSOA)
		c.change(query)
		w := &writer{client: &net.TCPAddr{IP: net.IPv4(10, 244, 0, 5), Port: 53}}
		s.resolve(t.Context(), w, query)
		wire, err := w.reply.Pack()
		if err != nil {
			t.Fatal(err)
		}
		var got dns.Msg
		if err := got.Unpack(wire); err != nil {
			t.Fatal(err)
		}
		if got.Rcode != c.want || (len(got.Answer) > 0) != (c.want == dns.RcodeSuccess) {
			t.Errorf("%s: %s with %d records, want %s", name, dns.RcodeToString[got.Rcode], len(got.Answer), dns.RcodeToString[c.want])
		}
	}
}

// TestAddressesAreShuffled checks that each address is first at times, and that
// aliases stay before addresses.
func TestAddressesAreShuffled(t *testing.T) {
	first := map[string]bool{}
	for range 200 {
		records := []dns.RR{
			record(t, "www.example.com. 5 IN CNAME web.example.com."), record(t, "web.example.com. 5 IN A 192.0.2.1"),
			record(t, "web.example.com. 5 IN A 192.0.2.2"), record(t, "web.example.com. 5 IN AAAA fd00::1"),
		}
		shuffleAddresses(records)
		if records[0].Header().Rrtype != dns.TypeCNAME {
			t.Fatalf("the alias moved: %v", records)
		}
		first[records[1].String()] = true
	}
	if len(first) != 3 {
		t.Errorf("first are only %v", first)
	}
}
