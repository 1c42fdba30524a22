package dns

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coracle-io/coracle/internal/costtest"
)

// fakeView is a View of a few objects.
type fakeView struct {
	namespaces []string
	services   []*Service
}

func (v fakeView) Service(namespace, name string) *Service {
	for _, s := range v.services {
		if s.Namespace == namespace && s.Name == name {
			return s
		}
	}
	return nil
}

func (v fakeView) HasNamespace(name string) bool { return slices.Contains(v.namespaces, name) }

func (v fakeView) ServiceByIP(ip netip.Addr) *Service {
	for _, s := range v.services {
		if slices.Contains(s.ClusterIPs, ip) {
			return s
		}
	}
	return nil
}

func (v fakeView) EndpointsByIP(ip netip.Addr) []ServiceEndpoint {
	var out []ServiceEndpoint
	for _, s := range v.services {
		for _, e := range s.Endpoints {
			if e.Address == ip && e.Hostname != "" {
				out = append(out, ServiceEndpoint{s, e})
			}
		}
	}
	return out
}

func TestZoneFollowsTheSpecification(t *testing.T) {
	http := []Port{{"http", "tcp", 80}}
	view := fakeView{
		namespaces: []string{"default"},
		services: []*Service{
			{Namespace: "default", Name: "web", ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.20"), netip.MustParseAddr("fd00::20")}, Ports: http},
			{Namespace: "default", Name: "db", Endpoints: []Endpoint{
				{netip.MustParseAddr("10.244.0.5"), "db-0", []Port{{"sql", "tcp", 5432}}},
				{netip.MustParseAddr("10.244.0.6"), "", []Port{{"sql", "tcp", 5432}}},
			}},
			{Namespace: "default", Name: "empty"},
			{Namespace: "default", Name: "out", ExternalName: "example.com"},
		},
	}
	zone := &Zone{Domain: "cluster.local.", TTL: 5, View: view}
	const nxdomain, nodata, foreign = "NXDOMAIN", "no data", "not ours"
	for _, test := range []struct {
		name  string
		qtype uint16
		want  string // sorted, the part of each record after its type
	}{
		{"web.default.svc.cluster.local.", dns.TypeA, "10.96.0.20"},
		{"WEB.default.svc.CLUSTER.local.", dns.TypeA, "10.96.0.20"},
		{"web.default.svc.cluster.local.", dns.TypeAAAA, "fd00::20"},
		{"web.default.svc.cluster.local.", dns.TypeMX, nodata},
		{"_http._tcp.web.default.svc.cluster.local.", dns.TypeSRV, "0 100 80 web.default.svc.cluster.local."},
		{"_http._udp.web.default.svc.cluster.local.", dns.TypeSRV, nxdomain},
		{"x.web.default.svc.cluster.local.", dns.TypeA, nxdomain},
		{"db.default.svc.cluster.local.", dns.TypeA, "10.244.0.5 | 10.244.0.6"},
		{"db-0.db.default.svc.cluster.local.", dns.TypeA, "10.244.0.5"},
		{"10-244-0-6.db.default.svc.cluster.local.", dns.TypeA, "10.244.0.6"},
		{"db-7.db.default.svc.cluster.local.", dns.TypeA, nxdomain},
		{
			"_sql._tcp.db.default.svc.cluster.local.", dns.TypeSRV,
			"0 100 5432 10-244-0-6.db.default.svc.cluster.local. | 0 100 5432 db-0.db.default.svc.cluster.local.",
		},
		{"empty.default.svc.cluster.local.", dns.TypeA, nxdomain},
		{"out.default.svc.cluster.local.", dns.TypeA, "example.com."},
		{"10-244-0-9.default.pod.cluster.local.", dns.TypeA, "10.244.0.9"},
		{"nonsense.default.pod.cluster.local.", dns.TypeA, nxdomain},
		{"10-244-0-9.missing.pod.cluster.local.", dns.TypeA, nxdomain},
		{"missing.default.svc.cluster.local.", dns.TypeA, nxdomain},
		{"web.missing.svc.cluster.local.", dns.TypeA, nxdomain},
		{"default.svc.cluster.local.", dns.TypeA, nodata},
		{"svc.cluster.local.", dns.TypeA, nodata},
		{"cluster.local.", dns.TypeA, nodata},
		{"dns-version.cluster.local.", dns.TypeTXT, `"1.1.0"`},
		{"20.0.96.10.in-addr.arpa.", dns.TypePTR, "web.default.svc.cluster.local."},
		{"5.0.244.10.in-addr.arpa.", dns.TypePTR, "db-0.db.default.svc.cluster.local."},
		{"1.1.1.1.in-addr.arpa.", dns.TypePTR, foreign},
		{"example.com.", dns.TypeA, foreign},
	} {
		query := new(dns.Msg).SetQuestion(test.name, test.qtype)
		reply := new(dns.Msg).SetReply(query)
		got := foreign
		if zone.Answer(reply, query.Question[0]) {
			var records []string
			for _, rr := range reply.Answer {
				records = append(records, strings.TrimPrefix(rr.String(), rr.Header().String()))
			}
			slices.Sort(records)
			switch {
			case reply.Rcode == dns.RcodeNameError:
				got = nxdomain
			case len(records) == 0:
				got = nodata
			default:
				got = strings.Join(records, " | ")
			}
			if (got == nxdomain || got == nodata) != (len(reply.Ns) == 1) {
				t.Errorf("%s %s: a negative answer, and only that, carries the SOA", dns.TypeToString[test.qtype], test.name)
			}
		}
		if got != test.want {
			t.Errorf("%s %s\ngot  %s\nwant %s", dns.TypeToString[test.qtype], test.name, got, test.want)
		}
	}
}

func BenchmarkAnswer(b *testing.B) {
	zone := &Zone{Domain: "cluster.local.", TTL: 5, View: fakeView{services: []*Service{
		{Namespace: "default", Name: "web", ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.20")}},
	}}}
	query := new(dns.Msg).SetQuestion("web.default.svc.cluster.local.", dns.TypeA)
	for b.Loop() {
		zone.Answer(new(dns.Msg).SetReply(query), query.Question[0])
	}
}

// TestEndpointInSeveralSlices checks that an answer has each record once (RFC
// 2181, section 5) if the ports of an endpoint are in two slices.
func TestEndpointInSeveralSlices(t *testing.T) {
	address := netip.MustParseAddr("10.244.0.5")
	zone := &Zone{Domain: "cluster.local.", TTL: 5, View: fakeView{namespaces: []string{"default"}, services: []*Service{{
		Namespace: "default", Name: "db", Endpoints: []Endpoint{{address, "db-0", []Port{{"sql", "tcp", 5432}}}, {address, "db-0", []Port{{"metrics", "tcp", 9090}}}},
	}}}}
	for _, c := range []struct {
		name          string
		qtype         uint16
		answer, extra int
	}{
		{"db.default.svc.cluster.local.", dns.TypeA, 1, 0},
		{"db-0.db.default.svc.cluster.local.", dns.TypeA, 1, 0},
		{"db.default.svc.cluster.local.", dns.TypeSRV, 2, 1},
		{"_sql._tcp.db.default.svc.cluster.local.", dns.TypeSRV, 1, 1},
	} {
		query := new(dns.Msg).SetQuestion(c.name, c.qtype)
		reply := new(dns.Msg).SetReply(query)
		if !zone.Answer(reply, query.Question[0]) || len(reply.Answer) != c.answer || len(reply.Extra) != c.extra {
			t.Errorf("%s %s: answer %v, additional %v", c.name, dns.TypeToString[c.qtype], reply.Answer, reply.Extra)
		}
	}
}

// A Service of a tenant may have tens of thousands of ports, and each of its
// endpoints has them all. An answer costs no more than what a message has room for.
func TestManyPortsAndEndpoints(t *testing.T) {
	const many = 20_000
	var ports []Port
	for i := range many {
		ports = append(ports, Port{Name: fmt.Sprint("p", i), Protocol: "tcp", Number: uint16(i + 1)})
	}
	db := &Service{Namespace: "default", Name: "db"}
	for i := range 200 {
		db.Endpoints = append(db.Endpoints, Endpoint{Address: netip.AddrFrom4([4]byte{10, 244, 1, byte(i)}), Ports: ports})
	}
	web := &Service{Namespace: "default", Name: "web", ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.20")}, Ports: ports}
	zone := &Zone{Domain: "cluster.local.", TTL: 5, View: fakeView{namespaces: []string{"default"}, services: []*Service{db, web}}}
	for _, name := range []string{"db.default.svc.cluster.local.", "web.default.svc.cluster.local.", "_udp.db.default.svc.cluster.local."} {
		query := new(dns.Msg).SetQuestion(name, dns.TypeSRV)
		reply := new(dns.Msg).SetReply(query)
		cost := costtest.Of(t, func() {
			zone.Answer(reply, query.Question[0])
			reply.Truncate(dns.MaxMsgSize)
		})
		if len(reply.Answer) > 0 && !reply.Truncated {
			t.Errorf("%s: the answer is cut off, and does not say so", name)
		}
		if cost.Bytes > 16<<20 || cost.Processor > 5*time.Second {
			t.Errorf("%s: an answer costs %d bytes and %v of processor time", name, cost.Bytes, cost.Processor)
		}
	}
}
