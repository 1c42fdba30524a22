package dns

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
)

// resolver answers on loopback, by UDP and TCP on one port, until the test
// ends.
func resolver(t testing.TB, answer func(w dns.ResponseWriter, q *dns.Msg)) string {
	t.Helper()
	packets, streams := listenBoth(t)
	for _, server := range []*dns.Server{{PacketConn: packets}, {Listener: streams}} {
		serve(t, server, answer)
	}
	return packets.LocalAddr().String()
}

// serve runs a server until the test ends.
func serve(t testing.TB, server *dns.Server, answer func(w dns.ResponseWriter, q *dns.Msg)) {
	t.Helper()
	started := make(chan struct{})
	ended := make(chan error, 1)
	server.Handler, server.NotifyStartedFunc = dns.HandlerFunc(answer), func() { close(started) }
	go func() { ended <- server.ActivateAndServe() }()
	<-started
	t.Cleanup(func() {
		if err := server.Shutdown(); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// listenBoth listens on one port of loopback by UDP and TCP. It retries if
// another program has the TCP port.
func listenBoth(t testing.TB) (net.PacketConn, net.Listener) {
	t.Helper()
	const attempts = 50
	var failed error
	for range attempts {
		packets, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		streams, err := net.Listen("tcp", packets.LocalAddr().String())
		if err == nil {
			return packets, streams
		}
		failed = errors.Join(err, packets.Close())
	}
	t.Fatal(failed)
	return nil, nil
}

func record(t testing.TB, text string) dns.RR {
	t.Helper()
	rr, err := dns.NewRR(text)
	if err != nil {
		t.Fatal(err)
	}
	return rr
}

func isTCP(w dns.ResponseWriter) bool {
	_, ok := w.RemoteAddr().(*net.TCPAddr)
	return ok
}

// TestForwardsAQueryOfItsOwn checks that a resolver gets only the
// question of a client's query, and the rest cannot be guessed.
func TestForwardsAQueryOfItsOwn(t *testing.T) {
	type seen struct {
		id   uint16
		port string
		name string
	}
	sent := make(chan seen, 100)
	server := resolver(t, func(w dns.ResponseWriter, q *dns.Msg) {
		_, port, _ := net.SplitHostPort(w.RemoteAddr().String())
		sent <- seen{q.Id, port, q.Question[0].Name}
		if opt := q.IsEdns0(); opt == nil || len(opt.Option) != 0 {
			t.Errorf("the resolver got the EDNS options of the client: %v", opt)
		}
		reply := new(dns.Msg).SetReply(q)
		reply.Answer = []dns.RR{record(t, q.Question[0].Name+" 60 IN A 192.0.2.1")}
		_ = w.WriteMsg(reply)
	})
	const name = "www.Example-With-Many-Letters.com."
	ids, ports, names := map[uint16]bool{}, map[string]bool{}, map[string]bool{}
	const times = 20
	for range times {
		query := new(dns.Msg).SetQuestion(name, dns.TypeA)
		query.Id = 4711
		query.SetEdns0(4096, true)
		query.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_LOCAL{Code: dns.EDNS0LOCALSTART, Data: []byte("x")}}
		reply, err := exchange(t.Context(), query, server)
		if err != nil {
			t.Fatal(err)
		}
		got := <-sent
		ids[got.id], ports[got.port], names[got.name] = true, true, true
		if !strings.EqualFold(got.name, name) {
			t.Errorf("the resolver was sent for %s, want %s", got.name, name)
		}
		if reply.Id != query.Id || reply.Question[0].Name != name || len(reply.Answer) != 1 || reply.Answer[0].Header().Name != name {
			t.Errorf("the client gets %v", reply)
		}
	}
	if ids[4711] && len(ids) == 1 || len(ids) < times/2 || len(ports) < times/2 || len(names) < times/2 {
		t.Errorf("%d IDs, %d ports and %d writings of the name in %d queries: want others each time", len(ids), len(ports), len(names), times)
	}
}

// TestForgedAnswersAreAskedAgain checks that TCP decides when an answer by UDP does not
// repeat the letters' case.
func TestForgedAnswersAreAskedAgain(t *testing.T) {
	server := resolver(t, func(w dns.ResponseWriter, q *dns.Msg) {
		reply := new(dns.Msg).SetReply(q)
		address := "192.0.2.1"
		if !isTCP(w) {
			reply.Question[0].Name, address = strings.ToLower(q.Question[0].Name), "203.0.113.66"
		}
		reply.Answer = []dns.RR{record(t, q.Question[0].Name+" 60 IN A "+address)}
		_ = w.WriteMsg(reply)
	})
	reply, err := exchange(t.Context(), new(dns.Msg).SetQuestion("www.an-example-with-so-many-letters.com.", dns.TypeA), server)
	if err != nil {
		t.Fatal(err)
	}
	if got := reply.Answer[0].(*dns.A).A.String(); got != "192.0.2.1" {
		t.Errorf("the client gets %s, the forged address", got)
	}
}

func TestAnswersToOtherQuestionsAreRefused(t *testing.T) {
	server := resolver(t, func(w dns.ResponseWriter, q *dns.Msg) {
		reply := new(dns.Msg).SetReply(q)
		reply.Question[0].Name = "other.example.com."
		reply.Answer = []dns.RR{record(t, "www.example.com. 60 IN A 203.0.113.66")}
		_ = w.WriteMsg(reply)
	})
	if reply, err := exchange(t.Context(), new(dns.Msg).SetQuestion("www.example.com.", dns.TypeA), server); err == nil {
		t.Errorf("the client gets %v", reply)
	}
}

// TestOneClientsQuestionsAreBounded checks that the queries of others are answered while one
// client sends very many.
func TestOneClientsQuestionsAreBounded(t *testing.T) {
	q := newQuota(4, 2)
	a, b, c := netip.MustParseAddr("10.244.0.5"), netip.MustParseAddr("10.244.0.6"), netip.MustParseAddr("10.244.0.7")
	var displaced []string
	take := func(client netip.Addr, name string) (give func()) {
		t.Helper()
		give, ok := q.acquire(client, func() { displaced = append(displaced, name) })
		if !ok {
			t.Fatalf("%s is refused", name)
		}
		return give
	}
	gives := []func(){take(a, "a's first"), take(a, "a's second"), take(b, "b's")}
	if _, ok := q.acquire(a, nil); ok {
		t.Error("a third question of one client is let through")
	}
	gives = append(gives, take(c, "c's"))
	gives = append(gives, take(b, "b's second"))
	if !slices.Equal(displaced, []string{"a's first"}) {
		t.Errorf("more than all may have displaces %v, want the oldest of the client with most", displaced)
	}
	gives[0]() // has been displaced
	if q.uses.Len() != 4 {
		t.Errorf("%d questions are under way, want 4", q.uses.Len())
	}
	for range 2 {
		for _, give := range gives {
			give()
		}
	}
	if q.uses.Len() != 0 {
		t.Errorf("%d questions are under way after all have ended", q.uses.Len())
	}

	f := newForwarder("/nonexistent", "", nil)
	f.quota = newQuota(0, 0)
	query := new(dns.Msg).SetQuestion("example.com.", dns.TypeA)
	if reply := f.ask(t.Context(), a, query); reply.Rcode != dns.RcodeServerFailure || reply.Id != query.Id {
		t.Errorf("a question beyond the bounds is answered by %v", reply)
	}
}

// TestLoopbackIsOneClient checks that all loopback addresses are counted as one
// client.
func TestLoopbackIsOneClient(t *testing.T) {
	at := func(address string) netip.Addr {
		return clientAt(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(address)))
	}
	if a := at("127.0.0.1:53"); a != at("127.44.0.9:99") || a != at("[::1]:7") || a != at("[::ffff:127.0.0.3]:1") {
		t.Error("loopback addresses are clients of their own")
	}
	if at("10.244.0.5:53") == at("10.244.0.6:53") {
		t.Error("two pods are one client")
	}
}

// TestDisplacedQuestionsFail checks that a query that is displaced fails at once.
func TestDisplacedQuestionsFail(t *testing.T) {
	sent, answered := make(chan struct{}), make(chan struct{})
	server := resolver(t, func(w dns.ResponseWriter, q *dns.Msg) {
		if strings.EqualFold(q.Question[0].Name, "slow.example.com.") {
			sent <- struct{}{}
			<-answered
		}
		_ = w.WriteMsg(new(dns.Msg).SetReply(q))
	})
	f := forwarderTo(server)
	f.quota = newQuota(1, 1)
	slow := make(chan *dns.Msg)
	go func() {
		slow <- f.ask(t.Context(), netip.MustParseAddr("10.244.0.5"), new(dns.Msg).SetQuestion("slow.example.com.", dns.TypeA))
	}()
	<-sent
	reply := f.ask(t.Context(), netip.MustParseAddr("10.244.0.6"), new(dns.Msg).SetQuestion("www.example.com.", dns.TypeA))
	if reply.Rcode != dns.RcodeSuccess {
		t.Errorf("the client that came later gets %v", reply)
	}
	if reply := <-slow; reply.Rcode != dns.RcodeServerFailure {
		t.Errorf("the displaced question is answered by %v", reply)
	}
	close(answered)
}

// TestResolversWithoutEDNS queries resolvers that refuse EDNS. One of them
// answers with a header alone.
func TestResolversWithoutEDNS(t *testing.T) {
	for name, refuse := range map[string]func(q *dns.Msg) *dns.Msg{
		"format error":    func(q *dns.Msg) *dns.Msg { return new(dns.Msg).SetRcode(q, dns.RcodeFormatError) },
		"not implemented": func(q *dns.Msg) *dns.Msg { return new(dns.Msg).SetRcode(q, dns.RcodeNotImplemented) },
		"header alone": func(q *dns.Msg) *dns.Msg {
			return &dns.Msg{MsgHdr: dns.MsgHdr{Id: q.Id, Response: true, Rcode: dns.RcodeFormatError}}
		},
	} {
		server := resolver(t, func(w dns.ResponseWriter, q *dns.Msg) {
			reply := new(dns.Msg).SetReply(q)
			reply.Answer = []dns.RR{record(t, q.Question[0].Name+" 60 IN A 192.0.2.1")}
			if q.IsEdns0() != nil {
				reply = refuse(q)
			}
			_ = w.WriteMsg(reply)
		})
		reply, err := exchange(t.Context(), new(dns.Msg).SetQuestion("www.example.com.", dns.TypeA), server)
		if err != nil || reply.Rcode != dns.RcodeSuccess || len(reply.Answer) != 1 {
			t.Errorf("%s: the client gets %v, %v", name, reply, err)
		}
	}
}

// TestResolversThatLowerLetters checks that a resolver that writes names in lower case
// and does not answer by TCP is believed, and one that answers another question
// is not.
func TestResolversThatLowerLetters(t *testing.T) {
	for answered, believed := range map[string]bool{"www.an-example-with-so-many-letters.com.": true, "other.example.com.": false} {
		packets, streams := listenBoth(t)
		if err := streams.Close(); err != nil {
			t.Fatal(err)
		}
		serve(t, &dns.Server{PacketConn: packets}, func(w dns.ResponseWriter, q *dns.Msg) {
			reply := new(dns.Msg).SetReply(q)
			reply.Question[0].Name = answered
			reply.Answer = []dns.RR{record(t, answered+" 60 IN A 192.0.2.1")}
			_ = w.WriteMsg(reply)
		})
		query := new(dns.Msg).SetQuestion("www.An-Example-With-So-Many-Letters.com.", dns.TypeA)
		reply, err := exchange(t.Context(), query, packets.LocalAddr().String())
		switch {
		case !believed && err == nil:
			t.Errorf("an answer about %s is believed", answered)
		case believed && err != nil:
			t.Error(err)
		case believed && (len(reply.Answer) != 1 || reply.Answer[0].Header().Name != query.Question[0].Name):
			t.Errorf("the client gets %v", reply)
		}
	}
}

// TestClientsDoNotPoisonEachOther checks that nothing in one client's query changes
// what another client gets.
func TestClientsDoNotPoisonEachOther(t *testing.T) {
	server := resolver(t, func(w dns.ResponseWriter, q *dns.Msg) {
		reply := new(dns.Msg).SetReply(q)
		if q.RecursionDesired {
			reply.Answer = []dns.RR{record(t, q.Question[0].Name+" 60 IN A 192.0.2.1")}
			if q.CheckingDisabled {
				reply.Answer = []dns.RR{record(t, q.Question[0].Name+" 60 IN A 203.0.113.66")}
			}
		}
		_ = w.WriteMsg(reply)
	})
	a, b := netip.MustParseAddr("10.244.0.5"), netip.MustParseAddr("10.244.0.6")
	for what, change := range map[string]func(*dns.Msg){
		"no recursion":        func(m *dns.Msg) { m.RecursionDesired = false },
		"unchecked":           func(m *dns.Msg) { m.CheckingDisabled = true },
		"authenticated data":  func(m *dns.Msg) { m.AuthenticatedData = true },
		"other EDNS options":  func(m *dns.Msg) { m.SetEdns0(512, false) },
		"letters of its own":  func(m *dns.Msg) { m.Question[0].Name = "API.example.COM." },
		"no such thing known": func(*dns.Msg) {},
	} {
		f := forwarderTo(server)
		evil := new(dns.Msg).SetQuestion("api.example.com.", dns.TypeA)
		change(evil)
		f.ask(t.Context(), a, evil)
		reply := f.ask(t.Context(), b, new(dns.Msg).SetQuestion("api.example.com.", dns.TypeA))
		if reply.Rcode != dns.RcodeSuccess || len(reply.Answer) != 1 || reply.Answer[0].(*dns.A).A.String() != "192.0.2.1" {
			t.Errorf("after a query with %s, another client gets %v", what, reply)
		}
	}
}

// forwarderTo returns a forwarder to resolvers.
func forwarderTo(servers ...string) *forwarder {
	f := newForwarder("/nonexistent", "", nil)
	f.set(&settings{nameservers: servers})
	return f
}

// TestSilentResolversAreAskedLast checks that a resolver that does not answer
// delays only the first query.
func TestSilentResolversAreAskedLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s silent
		order := func() string { return strings.Join(s.last([]string{"a", "b", "c"}), " ") }
		s.set("a", true)
		if got := order(); got != "b c a" {
			t.Errorf("after a was silent: %s", got)
		}
		s.set("b", true)
		s.set("c", true)
		if got := order(); got != "a b c" {
			t.Errorf("after all were silent: %s", got)
		}
		s.set("a", false)
		if got := order(); got != "a b c" {
			t.Errorf("after a answered: %s", got)
		}
		s.set("a", true)
		s.set("b", false)
		time.Sleep(silentPeriod + time.Second)
		if got := order(); got != "a b c" {
			t.Errorf("later: %s", got)
		}
		s.set("d", true)
		if len(s.until) != 1 {
			t.Errorf("resolvers of the past are kept: %v", s.until)
		}
	})
}

// TestTheNextResolverAnswers has a resolver where nothing listens before one
// that works.
func TestTheNextResolverAnswers(t *testing.T) {
	const dead = "127.0.0.1:1"
	asked := make(chan struct{}, 10)
	server := resolver(t, func(w dns.ResponseWriter, q *dns.Msg) {
		asked <- struct{}{}
		_ = w.WriteMsg(new(dns.Msg).SetReply(q))
	})
	f := forwarderTo(dead, server)
	for range 2 {
		if reply := f.ask(t.Context(), netip.MustParseAddr("10.244.0.5"), new(dns.Msg).SetQuestion("www.example.com.", dns.TypeA)); reply.Rcode != dns.RcodeSuccess {
			t.Errorf("the client gets %v", reply)
		}
		<-asked
	}
	if got := f.resolvers("www.example.com."); !slices.Equal(got, []string{server, dead}) {
		t.Errorf("the resolvers are asked in the order %v, want the silent one last", got)
	}
}

// TestHostResolvers reads them from the host's file, without the cluster's DNS.
func TestHostResolvers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(file, []byte("nameserver 10.96.0.10\nnameserver 192.0.2.10\nnameserver 127.0.0.53\nnameserver fd00::53\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	own := Config{Addresses: []string{"192.0.2.10"}, Port: 10053, Announce: []string{"10.96.0.10"}}.servers()
	// Port 53 of this machine is another program's.
	if got, want := newForwarder(file, "", own).resolvers("example.com."), []string{"192.0.2.10:53", "127.0.0.53:53", "[fd00::53]:53"}; !slices.Equal(got, want) {
		t.Errorf("resolvers %v, want %v", got, want)
	}
	own = Config{Addresses: []string{"192.0.2.10", "fd00::53"}, Port: 53}.servers()
	if got, want := newForwarder(file, "", own).resolvers("example.com."), []string{"10.96.0.10:53", "127.0.0.53:53"}; !slices.Equal(got, want) {
		t.Errorf("resolvers %v, want %v", got, want)
	}
}

// TestResolversBehindSystemd checks that the resolvers that systemd-resolved asks follow
// its stub, and no other resolver of the machine.
func TestResolversBehindSystemd(t *testing.T) {
	dir := t.TempDir()
	uplinks := filepath.Join(dir, "uplinks")
	if err := os.WriteFile(uplinks, []byte("nameserver 192.0.2.53\nnameserver 2001:db8::53\nsearch example.com\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ conf, uplinks, machine, want string }{
		{"nameserver 127.0.0.53\n", uplinks, "", "127.0.0.53:53 192.0.2.53:53 [2001:db8::53]:53"},
		{"nameserver 127.0.0.53\n", uplinks, "10.9.0.1:10053", "10.9.0.1:10053 192.0.2.53:53 [2001:db8::53]:53"},
		{"nameserver 127.0.0.53\n", filepath.Join(dir, "none"), "", "127.0.0.53:53"},
		{"nameserver 127.0.0.1\n", uplinks, "", "127.0.0.1:53"},
		{"nameserver 127.0.0.53\nnameserver 192.0.2.1\n", uplinks, "", "127.0.0.53:53 192.0.2.1:53"},
	} {
		file := filepath.Join(dir, "resolv.conf")
		if err := os.WriteFile(file, []byte(c.conf), 0o600); err != nil {
			t.Fatal(err)
		}
		f := newForwarder(file, c.machine, nil)
		f.uplinks = c.uplinks
		if got := strings.Join(f.resolvers("example.com."), " "); got != c.want {
			t.Errorf("%q with %s: %s, want %s", c.conf, c.uplinks, got, c.want)
		}
	}
}

// TestResolversOfTheMachine checks that a host that is a part of a machine asks
// the machine's DNS server in place of resolvers that only the machine reaches.
func TestResolversOfTheMachine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(file, []byte("nameserver 127.0.0.53\nnameserver 192.0.2.10\nnameserver ::1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := newForwarder(file, "10.9.0.1:10053", []string{"10.9.0.2:10053"}).resolvers("example.com.")
	if want := []string{"10.9.0.1:10053", "192.0.2.10:53"}; !slices.Equal(got, want) {
		t.Errorf("resolvers %v, want %v", got, want)
	}
}
