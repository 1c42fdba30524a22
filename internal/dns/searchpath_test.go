package dns

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"
)

// podSearch is the search path that the kubelet gives a pod of the namespace default, on
// a machine without search domains of its own.
func podSearch() *dns.ClientConfig {
	return &dns.ClientConfig{Search: []string{"default.svc.cluster.local", "svc.cluster.local", "cluster.local"}, Ndots: 5}
}

// lookUp looks up the addresses of both families of a name, as the resolvers of pods do:
// until one name of the search path has any. It returns the number of queries.
func lookUp(name string, ask func(*dns.Msg) *dns.Msg) (queries int) {
	for _, full := range podSearch().NameList(name) {
		found := false
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
			queries++
			reply := ask(new(dns.Msg).SetQuestion(full, qtype))
			found = found || len(reply.Answer) > 0
		}
		if found {
			break
		}
	}
	return queries
}

// TestSearchPath counts what a pod's lookup of an external name costs with the search
// path and the option ndots:5: all queries but the last two are answered by the zone, and
// no resolver sees the cluster's names. A dot at the end leaves these two, as few as if
// the server answered the first ones for the whole path.
func TestSearchPath(t *testing.T) {
	for name, want := range map[string]int{"www.example.com": 8, "www.example.com.": 2} {
		var mu sync.Mutex
		var forwarded []string
		s := counting(resolver(t, func(w dns.ResponseWriter, q *dns.Msg) {
			mu.Lock()
			forwarded = append(forwarded, strings.ToLower(q.Question[0].Name)+" "+dns.TypeToString[q.Question[0].Qtype])
			mu.Unlock()
			reply := new(dns.Msg).SetReply(q)
			if q.Question[0].Qtype == dns.TypeA {
				reply.Answer = []dns.RR{record(t, q.Question[0].Name+" 60 IN A 192.0.2.1")}
			}
			_ = w.WriteMsg(reply)
		}))
		queries := lookUp(name, func(q *dns.Msg) *dns.Msg {
			w := &writer{client: &net.UDPAddr{IP: net.IPv4(10, 244, 0, 5), Port: 5353}}
			s.resolve(t.Context(), w, q)
			if inCluster := strings.HasSuffix(q.Question[0].Name, ".cluster.local."); (w.reply.Rcode == dns.RcodeNameError) != inCluster {
				t.Errorf("%s: %s", q.Question[0].Name, dns.RcodeToString[w.reply.Rcode])
			}
			return w.reply
		})
		mu.Lock()
		if asked := []string{"www.example.com. A", "www.example.com. AAAA"}; queries != want || !slices.Equal(forwarded, asked) {
			t.Errorf("%s takes %d queries, of which a resolver gets %q; want %d, and %q", name, queries, forwarded, want, asked)
		}
		mu.Unlock()
	}
}

// TestFullNamesAreNotSearched checks that the full name of a Service or an endpoint that is
// not there does not exist, although a search for what is before the domain of its namespace
// would find another namespace's Service, or a host outside of the cluster.
func TestFullNamesAreNotSearched(t *testing.T) {
	s := counting(resolver(t, func(w dns.ResponseWriter, q *dns.Msg) {
		t.Errorf("a resolver is asked for %s", q.Question[0].Name)
		_ = w.WriteMsg(new(dns.Msg).SetReply(q))
	}))
	s.zone.View = fakeView{namespaces: []string{"default", "db"}, services: []*Service{
		{Namespace: "default", Name: "db"}, // has no endpoint yet
		{Namespace: "db", Name: "db-0", ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.66")}},
	}}
	for _, name := range []string{"web.default.svc.cluster.local.", "db.default.svc.cluster.local.", "db-0.db.default.svc.cluster.local."} {
		queries := lookUp(name, func(q *dns.Msg) *dns.Msg {
			w := &writer{client: &net.UDPAddr{IP: net.IPv4(10, 244, 0, 5), Port: 5353}}
			s.resolve(t.Context(), w, q)
			if w.reply.Rcode != dns.RcodeNameError {
				t.Errorf("%s: %v", name, w.reply)
			}
			return w.reply
		})
		if queries != 2 {
			t.Errorf("%s takes %d queries", name, queries)
		}
	}
}

// BenchmarkLookup measures a lookup of an external name whose addresses are cached, with
// the search path of a pod and without: the difference is the most that there is to gain
// from an answer for the whole path.
func BenchmarkLookup(b *testing.B) {
	s := counting(resolver(b, func(w dns.ResponseWriter, q *dns.Msg) {
		address := " 60 IN A 192.0.2.1"
		if q.Question[0].Qtype == dns.TypeAAAA {
			address = " 60 IN AAAA 2001:db8::1"
		}
		reply := new(dns.Msg).SetReply(q)
		reply.Answer = []dns.RR{record(b, q.Question[0].Name+address)}
		_ = w.WriteMsg(reply)
	}))
	own := resolver(b, func(w dns.ResponseWriter, q *dns.Msg) { s.answer(b.Context(), w, q) })
	conn, err := dns.Dial("udp", own)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	client := new(dns.Client)
	for _, c := range []struct{ path, name string }{{"searched", "www.example.com"}, {"full", "www.example.com."}} {
		b.Run(c.path, func(b *testing.B) {
			queries := 0
			for b.Loop() {
				queries += lookUp(c.name, func(q *dns.Msg) *dns.Msg {
					reply, _, err := client.ExchangeWithConn(q, conn)
					if err != nil {
						b.Fatal(err)
					}
					return reply
				})
			}
			b.ReportMetric(float64(queries)/float64(b.N), "queries/op")
		})
	}
}
