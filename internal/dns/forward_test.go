package dns

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// resolver answers on loopback, by UDP and TCP at one port, until the test ends.
func resolver(t *testing.T, answer func(w dns.ResponseWriter, q *dns.Msg)) string {
	t.Helper()
	packets, streams := listenBoth(t)
	for _, server := range []*dns.Server{{PacketConn: packets}, {Listener: streams}} {
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
	return packets.LocalAddr().String()
}

// listenBoth listens at one port of loopback by UDP and TCP. Somebody else may
// have the port of the one by TCP.
func listenBoth(t *testing.T) (net.PacketConn, net.Listener) {
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

func record(t *testing.T, text string) dns.RR {
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

// Nothing that a client chooses reaches the resolver but the question, and
// nobody can guess the rest.
func TestForwardsAQueryOfItsOwn(t *testing.T) {
	type seen struct {
		id   uint16
		port string
		name string
	}
	asked := make(chan seen, 100)
	server := resolver(t, func(w dns.ResponseWriter, q *dns.Msg) {
		_, port, _ := net.SplitHostPort(w.RemoteAddr().String())
		asked <- seen{q.Id, port, q.Question[0].Name}
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
		got := <-asked
		ids[got.id], ports[got.port], names[got.name] = true, true, true
		if !strings.EqualFold(got.name, name) {
			t.Errorf("the resolver was asked for %s, want %s", got.name, name)
		}
		if reply.Id != query.Id || reply.Question[0].Name != name || len(reply.Answer) != 1 || reply.Answer[0].Header().Name != name {
			t.Errorf("the client gets %v", reply)
		}
	}
	if ids[4711] && len(ids) == 1 || len(ids) < times/2 || len(ports) < times/2 || len(names) < times/2 {
		t.Errorf("%d IDs, %d ports and %d writings of the name in %d queries: want others each time", len(ids), len(ports), len(names), times)
	}
}

// An answer by UDP that does not repeat the letters may be forged: TCP decides.
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

// A client that asks without end has others' questions answered all the same.
func TestOneClientsQuestionsAreBounded(t *testing.T) {
	q := newQuota(3, 2)
	a, b := netip.MustParseAddr("10.244.0.5"), netip.MustParseAddr("10.244.0.6")
	for range 2 {
		if !q.take(a) {
			t.Fatal("two questions of one client are refused")
		}
	}
	if q.take(a) {
		t.Error("a third question of one client is let through")
	}
	if !q.take(b) {
		t.Error("another client's question is refused")
	}
	if q.take(b) {
		t.Error("more questions than all may have are let through")
	}
	q.give(a)
	if !q.take(b) {
		t.Error("a place that was given back is not free")
	}
	q.give(a)
	q.give(b)
	q.give(b)
	if len(q.uses) != 0 || q.sum != 0 {
		t.Errorf("clients without questions are remembered: %v, %d", q.uses, q.sum)
	}

	f := newForwarder("/nonexistent", nil)
	f.quota = newQuota(0, 0)
	query := new(dns.Msg).SetQuestion("example.com.", dns.TypeA)
	if reply := f.ask(t.Context(), a, query); reply.Rcode != dns.RcodeServerFailure || reply.Id != query.Id {
		t.Errorf("a question beyond the bounds is answered by %v", reply)
	}
}

// Nothing that one client puts into a query decides what another gets.
func TestClientsDoNotPoisonEachOther(t *testing.T) {
	server := resolver(t, func(w dns.ResponseWriter, q *dns.Msg) {
		reply := new(dns.Msg).SetReply(q)
		switch {
		case q.Question[0].Qclass != dns.ClassINET:
			reply.Rcode = dns.RcodeNotImplemented
		case q.RecursionDesired:
			reply.Answer = []dns.RR{record(t, q.Question[0].Name+" 60 IN A 192.0.2.1")}
			if q.CheckingDisabled {
				reply.Answer = []dns.RR{record(t, q.Question[0].Name+" 60 IN A 203.0.113.66")}
			}
		}
		_ = w.WriteMsg(reply)
	})
	a, b := netip.MustParseAddr("10.244.0.5"), netip.MustParseAddr("10.244.0.6")
	for what, change := range map[string]func(*dns.Msg){
		"another class":       func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS },
		"no recursion":        func(m *dns.Msg) { m.RecursionDesired = false },
		"unchecked":           func(m *dns.Msg) { m.CheckingDisabled = true },
		"authenticated data":  func(m *dns.Msg) { m.AuthenticatedData = true },
		"other EDNS options":  func(m *dns.Msg) { m.SetEdns0(512, false) },
		"letters of its own":  func(m *dns.Msg) { m.Question[0].Name = "API.example.COM." },
		"no such thing known": func(*dns.Msg) {},
	} {
		f := newForwarder("/nonexistent", nil)
		f.asked = func() []string { return []string{server} }
		evil := new(dns.Msg).SetQuestion("api.example.com.", dns.TypeA)
		change(evil)
		f.ask(t.Context(), a, evil)
		reply := f.ask(t.Context(), b, new(dns.Msg).SetQuestion("api.example.com.", dns.TypeA))
		if reply.Rcode != dns.RcodeSuccess || len(reply.Answer) != 1 || reply.Answer[0].(*dns.A).A.String() != "192.0.2.1" {
			t.Errorf("after a query with %s, another client gets %v", what, reply)
		}
	}
}

func TestFailuresAreNotRemembered(t *testing.T) {
	f := newForwarder("/nonexistent", nil)
	f.remember(question{name: "example.com.", qtype: dns.TypeA}, new(dns.Msg).SetRcode(new(dns.Msg), dns.RcodeNotImplemented))
	if len(f.cache) != 0 {
		t.Error("a refusal is remembered")
	}
}

func TestLargeAnswersAreNotRemembered(t *testing.T) {
	f := newForwarder("/nonexistent", nil)
	reply := new(dns.Msg).SetQuestion("example.com.", dns.TypeTXT)
	for range 30 {
		reply.Answer = append(reply.Answer, record(t, `example.com. 60 IN TXT "`+strings.Repeat("x", 200)+`"`))
	}
	f.remember(question{name: "example.com.", qtype: dns.TypeTXT}, reply)
	if len(f.cache) != 0 {
		t.Errorf("an answer of %d bytes is remembered", reply.Len())
	}
	reply.Answer = reply.Answer[:1]
	f.remember(question{name: "example.com.", qtype: dns.TypeTXT}, reply)
	if len(f.cache) != 1 {
		t.Error("a small answer is not remembered")
	}
}
