package dns

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"
)

// Service is the part of a Service that the zone needs.
type Service struct {
	Namespace, Name string
	ExternalName    string       // of type ExternalName
	ClusterIPs      []netip.Addr // empty if the Service is headless
	Ports           []Port
	Endpoints       []Endpoint // the ready endpoints of a headless Service
}

// Headless reports whether the Service's name resolves to its endpoints.
func (s *Service) Headless() bool { return s.ExternalName == "" && len(s.ClusterIPs) == 0 }

// Port is a named port; Protocol is tcp, udp or sctp.
type Port struct {
	Name, Protocol string
	Number         uint16
}

// Endpoint is one address of a headless Service.
type Endpoint struct {
	Address  netip.Addr
	Hostname string // if empty, the name is made from Address
	Ports    []Port
}

func (e Endpoint) label() string {
	if e.Hostname != "" {
		return e.Hostname
	}
	return strings.NewReplacer(".", "-", ":", "-").Replace(e.Address.StringExpanded())
}

// View provides the zone's data. It is read on every query and may be used by
// several goroutines.
type View interface {
	// Service returns nil if there is none.
	Service(namespace, name string) *Service
	HasNamespace(name string) bool
	// ServiceByIP returns the Service with a cluster IP, or nil.
	ServiceByIP(ip netip.Addr) *Service
	// EndpointsByIP returns the endpoints of headless Services with an address.
	EndpointsByIP(ip netip.Addr) []ServiceEndpoint
}

// ServiceEndpoint is an endpoint with its Service.
type ServiceEndpoint struct {
	Service  *Service
	Endpoint Endpoint
}

// Zone answers queries for a cluster domain by the Kubernetes DNS specification
// 1.1 (github.com/kubernetes/dns, docs/specification.md):
//
//	SERVICE.NAMESPACE.svc.ZONE                 A, AAAA, CNAME
//	_PORT._PROTOCOL.SERVICE.NAMESPACE.svc.ZONE SRV
//	HOSTNAME.SERVICE.NAMESPACE.svc.ZONE        A, AAAA of a headless Service's endpoint
//	1-2-3-4.NAMESPACE.pod.ZONE                 A
//	4.3.2.1.in-addr.arpa                       PTR
//	dns-version.ZONE                           TXT
type Zone struct {
	Domain string // with the final dot
	TTL    uint32 // seconds
	View   View
}

const schemaVersion = "1.1.0"

// Answer fills in the reply to a question. It returns false if the zone is not
// responsible for the name.
func (z *Zone) Answer(reply *dns.Msg, q dns.Question) bool {
	name := strings.ToLower(q.Name)
	if ip, ok := reverse(name); ok {
		return z.answerPTR(reply, q, ip)
	}
	if name != z.Domain && !strings.HasSuffix(name, "."+z.Domain) {
		return false
	}
	reply.Authoritative = true
	labels := dns.SplitDomainName(strings.TrimSuffix(name, z.Domain))
	if exists := z.answer(reply, q, labels); !exists {
		reply.Rcode = dns.RcodeNameError
	}
	if len(reply.Answer) == 0 {
		reply.Ns = append(reply.Ns, z.soa())
	}
	// An endpoint may be in several slices, each with some of its ports.
	reply.Answer, reply.Extra = dns.Dedup(reply.Answer, nil), dns.Dedup(reply.Extra, nil)
	return true
}

// answer adds the records of a name, and reports whether the name exists, with
// or without records of the type.
func (z *Zone) answer(reply *dns.Msg, q dns.Question, labels []string) bool {
	n := len(labels)
	if n == 0 {
		if q.Qtype == dns.TypeSOA {
			reply.Answer = append(reply.Answer, z.soa())
		}
		return true
	}
	switch labels[n-1] {
	case "dns-version":
		if n == 1 && q.Qtype == dns.TypeTXT {
			reply.Answer = append(reply.Answer, &dns.TXT{Hdr: z.header(q.Name, dns.TypeTXT), Txt: []string{schemaVersion}})
		}
		return n == 1
	case "pod":
		return z.answerPod(reply, q, labels[:n-1])
	case "svc":
		return z.answerService(reply, q, labels[:n-1])
	}
	return false
}

func (z *Zone) answerPod(reply *dns.Msg, q dns.Question, labels []string) bool {
	switch len(labels) {
	case 0:
		return true
	case 1:
		return z.View.HasNamespace(labels[0])
	case 2:
		if !z.View.HasNamespace(labels[1]) {
			return false
		}
		ip, err := netip.ParseAddr(strings.ReplaceAll(labels[0], "-", "."))
		if err != nil {
			if ip, err = netip.ParseAddr(strings.ReplaceAll(labels[0], "-", ":")); err != nil {
				return false
			}
		}
		z.addAddresses(reply, q, []netip.Addr{ip})
		return true
	}
	return false
}

func (z *Zone) answerService(reply *dns.Msg, q dns.Question, labels []string) bool {
	n := len(labels)
	if n == 0 {
		return true
	}
	namespace := labels[n-1]
	if n == 1 {
		return z.View.HasNamespace(namespace)
	}
	s := z.View.Service(namespace, labels[n-2])
	if s == nil {
		return false
	}
	switch rest := labels[:n-2]; {
	case len(rest) == 0:
		return z.answerName(reply, q, s)
	case len(rest) == 2 && strings.HasPrefix(rest[0], "_") && strings.HasPrefix(rest[1], "_"):
		name, protocol := rest[0][1:], rest[1][1:]
		return z.answerSRV(reply, q, s, func(p Port) bool { return p.Name == name && p.Protocol == protocol && p.Name != "" })
	case len(rest) == 1 && strings.HasPrefix(rest[0], "_"):
		return hasProtocol(s, rest[0][1:])
	case len(rest) == 1 && s.Headless():
		return z.answerEndpoint(reply, q, s, rest[0])
	}
	return false
}

func (z *Zone) answerName(reply *dns.Msg, q dns.Question, s *Service) bool {
	if s.ExternalName != "" {
		target := dns.Fqdn(s.ExternalName)
		if ip, err := netip.ParseAddr(s.ExternalName); err == nil {
			z.addAddresses(reply, q, []netip.Addr{ip})
			return true
		}
		reply.Answer = append(reply.Answer, &dns.CNAME{Hdr: z.header(q.Name, dns.TypeCNAME), Target: target})
		return true
	}
	addresses := s.ClusterIPs
	if s.Headless() {
		if len(s.Endpoints) == 0 {
			return false
		}
		for _, e := range s.Endpoints {
			addresses = append(addresses, e.Address)
		}
	}
	if q.Qtype == dns.TypeSRV {
		z.answerSRV(reply, q, s, func(p Port) bool { return p.Name != "" })
		return true
	}
	z.addAddresses(reply, q, addresses)
	return true
}

func (z *Zone) answerEndpoint(reply *dns.Msg, q dns.Question, s *Service, label string) bool {
	found := false
	for _, e := range s.Endpoints {
		if e.label() == label {
			found = true
			z.addAddresses(reply, q, []netip.Addr{e.Address})
		}
	}
	return found
}

// answerSRV adds the SRV records of the ports that match, and the addresses of their
// targets. It reports whether there is such a port.
func (z *Zone) answerSRV(reply *dns.Msg, q dns.Question, s *Service, match func(Port) bool) bool {
	found := false
	wanted := q.Qtype == dns.TypeSRV || q.Qtype == dns.TypeANY
	// add returns false if nothing is to be added any more.
	add := func(number uint16, target string, addresses ...netip.Addr) bool {
		found = true
		if !wanted || full(reply.Answer) {
			return false
		}
		reply.Answer = append(reply.Answer, &dns.SRV{Hdr: z.header(q.Name, dns.TypeSRV), Weight: 100, Port: number, Target: target})
		for _, ip := range addresses {
			reply.Extra = append(reply.Extra, z.address(target, ip))
		}
		return true
	}
	base := s.Name + "." + s.Namespace + ".svc." + z.Domain
	if !s.Headless() {
		for _, p := range s.Ports {
			if match(p) && !add(p.Number, base, s.ClusterIPs...) {
				break
			}
		}
		return found
	}
	for _, e := range s.Endpoints {
		target := e.label() + "." + base
		for _, p := range e.Ports {
			if match(p) && !add(p.Number, target, e.Address) {
				return true
			}
		}
	}
	return found
}

// hasProtocol reports whether a port of a Service, or of the endpoints of a headless
// one, has the protocol.
func hasProtocol(s *Service, protocol string) bool {
	has := func(p Port) bool { return p.Protocol == protocol }
	return slices.ContainsFunc(s.Ports, has) ||
		slices.ContainsFunc(s.Endpoints, func(e Endpoint) bool { return slices.ContainsFunc(e.Ports, has) })
}

// maxRecords is more than the records of one name that a message has room for: it
// has 64 KiB, and the shortest record takes 16 bytes. A Service has as many records
// as the product of its ports and endpoints.
const maxRecords = dns.MaxMsgSize/16 + 1

// full reports whether no message has room for more records.
func full(records []dns.RR) bool { return len(records) >= maxRecords }

func (z *Zone) answerPTR(reply *dns.Msg, q dns.Question, ip netip.Addr) bool {
	var targets []string
	if s := z.View.ServiceByIP(ip); s != nil {
		targets = append(targets, s.Name+"."+s.Namespace+".svc."+z.Domain)
	}
	for _, n := range z.View.EndpointsByIP(ip) {
		targets = append(targets, n.Endpoint.label()+"."+n.Service.Name+"."+n.Service.Namespace+".svc."+z.Domain)
	}
	if len(targets) == 0 {
		return false
	}
	reply.Authoritative = true
	if q.Qtype == dns.TypePTR || q.Qtype == dns.TypeANY {
		for _, t := range targets[:min(len(targets), maxRecords)] {
			reply.Answer = append(reply.Answer, &dns.PTR{Hdr: z.header(q.Name, dns.TypePTR), Ptr: t})
		}
	}
	return true
}

// addAddresses adds the addresses of the type that is asked for.
func (z *Zone) addAddresses(reply *dns.Msg, q dns.Question, addresses []netip.Addr) {
	for _, ip := range addresses {
		if full(reply.Answer) {
			return
		}
		wanted := dns.TypeAAAA
		if ip.Is4() {
			wanted = dns.TypeA
		}
		if q.Qtype == wanted || q.Qtype == dns.TypeANY {
			reply.Answer = append(reply.Answer, z.address(q.Name, ip))
		}
	}
}

func (z *Zone) address(name string, ip netip.Addr) dns.RR {
	if ip.Is4() {
		return &dns.A{Hdr: z.header(name, dns.TypeA), A: ip.AsSlice()}
	}
	return &dns.AAAA{Hdr: z.header(name, dns.TypeAAAA), AAAA: ip.AsSlice()}
}

func (z *Zone) header(name string, rrtype uint16) dns.RR_Header {
	return dns.RR_Header{Name: name, Rrtype: rrtype, Class: dns.ClassINET, Ttl: z.TTL}
}

func (z *Zone) soa() dns.RR {
	return &dns.SOA{
		Hdr: z.header(z.Domain, dns.TypeSOA), Ns: "ns.dns." + z.Domain, Mbox: "hostmaster." + z.Domain,
		Serial: 1, Refresh: 7200, Retry: 1800, Expire: 86400, Minttl: z.TTL,
	}
}

// reverse parses an address from a name below in-addr.arpa or ip6.arpa.
func reverse(name string) (netip.Addr, bool) {
	if rest, ok := strings.CutSuffix(name, ".in-addr.arpa."); ok {
		parts := strings.Split(rest, ".")
		slices.Reverse(parts)
		ip, err := netip.ParseAddr(strings.Join(parts, "."))
		return ip, err == nil && ip.Is4()
	}
	if rest, ok := strings.CutSuffix(name, ".ip6.arpa."); ok {
		nibbles := strings.Split(rest, ".")
		if len(nibbles) != 32 {
			return netip.Addr{}, false
		}
		slices.Reverse(nibbles)
		var text strings.Builder
		for i, n := range nibbles {
			if i > 0 && i%4 == 0 {
				text.WriteByte(':')
			}
			text.WriteString(n)
		}
		ip, err := netip.ParseAddr(text.String())
		return ip, err == nil
	}
	return netip.Addr{}, false
}
