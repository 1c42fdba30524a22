package dns

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/coracle-io/coracle/internal/freeport"
	registry "github.com/coracle-io/coracle/internal/metrics"
)

// counting returns a server whose answers are counted, with a resolver.
func counting(resolvers ...string) *Server {
	s := &Server{
		config:  Config{Metrics: registry.NewRegistry(nil), Port: 10053},
		clients: testClients("10.244.0.0/16"), forward: forwarderTo(resolvers...),
		zone: &Zone{Domain: "cluster.local.", TTL: ttl, View: fakeView{namespaces: []string{"default"}, services: []*Service{
			{Namespace: "default", Name: "web", ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.20")}},
		}}},
	}
	s.counts = newCounts(s.config.Metrics, s.config.Port, s.forward.cache.entries.Len)
	s.forward.counts = s.counts
	return s
}

// shown returns the lines of the metrics whose names begin so.
func shown(t *testing.T, s *Server, prefix string) map[string]string {
	t.Helper()
	families, err := s.config.Metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), prefix) {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			value := m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			all[f.GetName()+" "+strings.Join(labels, " ")] = fmt.Sprint(value)
		}
	}
	return all
}

// The metrics have CoreDNS's names: what clients ask for, what they get and from
// where, the cache and the resolvers.
func TestQueriesAreCounted(t *testing.T) {
	server := resolver(t, func(w dns.ResponseWriter, q *dns.Msg) {
		reply := new(dns.Msg).SetReply(q)
		if strings.EqualFold(q.Question[0].Name, "www.example.com.") {
			reply.Answer = []dns.RR{record(t, q.Question[0].Name+" 60 IN A 192.0.2.1")}
		} else {
			reply.Rcode = dns.RcodeNameError
			reply.Ns = []dns.RR{record(t, "example.com. 60 IN SOA ns. mail. 1 2 3 4 60")}
		}
		_ = w.WriteMsg(reply)
	})
	s := counting(server)
	ask := func(from net.Addr, name string, qtype uint16) {
		query := new(dns.Msg).SetQuestion(name, qtype)
		query.SetEdns0(1232, true)
		s.resolve(t.Context(), &writer{client: from}, query)
	}
	pod := func(isTCP bool) net.Addr {
		if isTCP {
			return &net.TCPAddr{IP: net.IPv4(10, 244, 0, 5), Port: 5353}
		}
		return &net.UDPAddr{IP: net.IPv4(10, 244, 0, 5), Port: 5353}
	}
	ask(pod(true), "web.default.svc.cluster.local.", dns.TypeA)
	for range 3 {
		ask(pod(false), "www.example.com.", dns.TypeA)
		ask(pod(false), "none.example.com.", dns.TypeAAAA)
	}
	ask(pod(false), "www.example.com.", 65280)
	ask(&net.UDPAddr{IP: net.ParseIP("2001:db8::1"), Port: 5353}, "web.default.svc.cluster.local.", dns.TypeA)

	const in = "server=dns://:10053 "
	got := shown(t, s, "coredns_")
	for line, want := range map[string]string{
		"coredns_dns_requests_total family=1 proto=tcp " + in + "type=A view= zone=.":           "1",
		"coredns_dns_requests_total family=1 proto=udp " + in + "type=A view= zone=.":           "3",
		"coredns_dns_requests_total family=1 proto=udp " + in + "type=AAAA view= zone=.":        "3",
		"coredns_dns_requests_total family=1 proto=udp " + in + "type=other view= zone=.":       "1",
		"coredns_dns_requests_total family=2 proto=udp " + in + "type=A view= zone=.":           "1",
		"coredns_dns_responses_total plugin=kubernetes rcode=NOERROR " + in + "view= zone=.":    "1",
		"coredns_dns_responses_total plugin=forward rcode=NOERROR " + in + "view= zone=.":       "2",
		"coredns_dns_responses_total plugin=forward rcode=NXDOMAIN " + in + "view= zone=.":      "1",
		"coredns_dns_responses_total plugin=cache rcode=NOERROR " + in + "view= zone=.":         "2",
		"coredns_dns_responses_total plugin=cache rcode=NXDOMAIN " + in + "view= zone=.":        "2",
		"coredns_dns_responses_total plugin= rcode=REFUSED " + in + "view= zone=.":              "1",
		"coredns_dns_do_requests_total " + in + "view= zone=.":                                  "9",
		"coredns_dns_request_duration_seconds " + in + "view= zone=.":                           "9",
		"coredns_dns_request_size_bytes proto=tcp " + in + "view= zone=.":                       "1",
		"coredns_dns_response_size_bytes proto=udp " + in + "view= zone=.":                      "8",
		"coredns_cache_requests_total " + in + "view= zones=.":                                  "7",
		"coredns_cache_hits_total " + in + "type=success view= zones=.":                         "2",
		"coredns_cache_hits_total " + in + "type=denial view= zones=.":                          "2",
		"coredns_proxy_request_duration_seconds proxy_name=forward rcode=NOERROR to=" + server:  "2",
		"coredns_proxy_request_duration_seconds proxy_name=forward rcode=NXDOMAIN to=" + server: "1",
		"coredns_panics_total ":                         "0",
		"coredns_forward_max_concurrent_rejects_total ": "0",
	} {
		if got[line] != want {
			t.Errorf("%s is %s, want %s", line, got[line], want)
		}
	}
}

// The sizes are those of the messages, also of an answer whose names are compressed.
func TestSizesAreCounted(t *testing.T) {
	s := counting()
	big := &Service{Namespace: "default", Name: "big"}
	for i := range 100 {
		big.Endpoints = append(big.Endpoints, Endpoint{Address: netip.AddrFrom4([4]byte{10, 244, 0, byte(i)})})
	}
	s.zone.View = fakeView{namespaces: []string{"default"}, services: []*Service{big}}
	w := &writer{client: &net.UDPAddr{IP: net.IPv4(10, 244, 0, 5), Port: 5353}}
	query := new(dns.Msg).SetQuestion("big.default.svc.cluster.local.", dns.TypeA)
	query.SetEdns0(1232, false)
	s.resolve(t.Context(), w, query)
	packed, err := query.Pack()
	if err != nil {
		t.Fatal(err)
	}
	families, err := s.config.Metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			sums[f.GetName()] += m.GetHistogram().GetSampleSum()
		}
	}
	if got := sums["coredns_dns_request_size_bytes"]; got != float64(len(packed)) {
		t.Errorf("a request of %v bytes is counted, want %d", got, len(packed))
	}
	if got := sums["coredns_dns_response_size_bytes"]; got != float64(w.size) || w.size < 500 {
		t.Errorf("a response of %v bytes is counted, want %d", got, w.size)
	}
}

// BenchmarkResolve measures an answer from the zone, with and without metrics.
func BenchmarkResolve(b *testing.B) {
	for name, counted := range map[string]bool{"counted": true, "uncounted": false} {
		b.Run(name, func(b *testing.B) {
			s := counting()
			if !counted {
				s.counts, s.forward.counts = nil, nil
			}
			w := &discard{client: &net.UDPAddr{IP: net.IPv4(10, 244, 0, 5), Port: 5353}}
			query := new(dns.Msg).SetQuestion("web.default.svc.cluster.local.", dns.TypeA)
			query.SetEdns0(1232, false)
			b.ReportAllocs()
			for b.Loop() {
				s.resolve(b.Context(), w, query)
			}
		})
	}
}

// discard takes answers and forgets them.
type discard struct {
	dns.ResponseWriter
	client net.Addr
}

func (d *discard) RemoteAddr() net.Addr { return d.client }

func (*discard) Write(data []byte) (int, error) { return len(data), nil }

// A server that meets many resolvers, as a laptop does, does not keep all their names.
func TestResolversOfThePastAreBounded(t *testing.T) {
	s := counting()
	for i := range 2 * maxResolvers {
		s.counts.asked(fmt.Sprintf("192.0.2.%d:53", i), nil, 0)
	}
	got := shown(t, s, "coredns_proxy_request_duration_seconds")
	if n := got["coredns_proxy_request_duration_seconds proxy_name=forward rcode=SERVFAIL to=other"]; len(got) != maxResolvers+1 || n != strconv.Itoa(maxResolvers) {
		t.Errorf("%d series, %s of others", len(got), n)
	}
}

// A query that panics is counted.
func TestPanicsAreCounted(t *testing.T) {
	s := counting()
	s.zone.View = nil
	w := &writer{client: &net.UDPAddr{IP: net.IPv4(10, 244, 0, 5), Port: 5353}}
	s.answer(t.Context(), w, new(dns.Msg).SetQuestion("web.default.svc.cluster.local.", dns.TypeA))
	if n := shown(t, s, "coredns_panics_total")["coredns_panics_total "]; n != "1" || w.reply == nil || w.reply.Rcode != dns.RcodeServerFailure {
		t.Errorf("%s panics, answer %v", n, w.reply)
	}
}

// Metrics are served to the clients that are answered, and the connections of others
// are closed.
func TestMetricsArePages(t *testing.T) {
	s := counting()
	s.config.Addresses, s.config.MetricsPort = []string{"127.0.0.1"}, freeport.For(t)
	listeners, err := s.listenForMetrics()
	if err != nil || len(listeners) != 1 {
		t.Fatal(listeners, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.serveMetrics(ctx, listeners[0]) }()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+listeners[0].Addr().String()+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Close = true
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	page, err := io.ReadAll(answer.Body)
	_ = answer.Body.Close()
	if err != nil || !strings.Contains(string(page), "\ncoredns_dns_request_duration_seconds_count{") {
		t.Errorf("%v\n%s", err, page)
	}
	if _, err := s.listenForMetrics(); err == nil {
		t.Error("a port that is taken is no error")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// The Service has CoreDNS's port of metrics, if the server has one.
func TestMetricsAreAnnounced(t *testing.T) {
	for port, want := range map[int]int{0: 2, 9173: 3} {
		s := &Server{config: Config{Announce: []string{"10.96.0.10"}, Addresses: []string{"10.0.0.1"}, NodeName: "a", Port: 53, MetricsPort: port}}
		service, slices := s.service(), s.endpointSlices()
		if len(service.Spec.Ports) != want || len(slices) != 1 || len(slices[0].Ports) != want {
			t.Fatalf("with port %d: the Service has %v, the slices are %v", port, service.Spec.Ports, slices)
		}
		if port == 0 {
			continue
		}
		last, of := service.Spec.Ports[2], slices[0].Ports[2]
		if last.Name != "metrics" || last.Port != 9153 || last.TargetPort.IntValue() != port || *of.Name != "metrics" || *of.Port != int32(port) || service.Annotations["prometheus.io/port"] != "9153" {
			t.Errorf("the Service has %+v and %v, the slice %+v", last, service.Annotations, of)
		}
	}
}
