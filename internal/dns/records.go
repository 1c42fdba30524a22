package dns

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"
	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// ttl of all records of the cluster, in seconds: short, for they change.
const ttl = 5

// view is what the records are made of. Its objects are never changed.
type view interface {
	service(namespace, name string) *v1.Service
	slices(namespace, service string) []*discoveryv1.EndpointSlice
	namespace(name string) bool
	servicesAt(address netip.Addr) []*v1.Service
	slicesAt(address netip.Addr) []*discoveryv1.EndpointSlice
}

// records answers for the cluster's zone and its reverse zones.
type records struct {
	zone string
	view view
}

// result is an answer without its DNS header. No error and no record means
// that the name exists with other types only.
type result struct {
	rcode  int
	answer []dns.RR
	extra  []dns.RR
	// external is the name that an ExternalName leads to.
	external string
}

var nxdomain = result{rcode: dns.RcodeNameError}

// lookup answers for a name in the zone, in lower case:
//
//	SERVICE.NAMESPACE.svc.ZONE                 section 2.3.1, 2.4.1, 2.5
//	_PORT._PROTOCOL.SERVICE.NAMESPACE.svc.ZONE section 2.3.2, 2.4.2
//	ENDPOINT.SERVICE.NAMESPACE.svc.ZONE        section 2.4.1
//	A-B-C-D.NAMESPACE.pod.ZONE                 pod IP records
//	dns-version.ZONE                           section 2.2
func (r *records) lookup(name string, qtype uint16) result {
	if name == r.zone {
		return r.apex(qtype)
	}
	labels := dns.SplitDomainName(strings.TrimSuffix(name, r.zone))
	slices.Reverse(labels)
	switch {
	case len(labels) == 1 && labels[0] == "dns-version":
		if qtype != dns.TypeTXT {
			return result{}
		}
		return result{answer: []dns.RR{&dns.TXT{Hdr: header(name, dns.TypeTXT), Txt: []string{"1.1.0"}}}}
	case labels[0] != "svc" && labels[0] != "pod":
		return nxdomain
	case len(labels) == 1:
		return result{}
	case !r.view.namespace(labels[1]):
		return nxdomain
	case len(labels) == 2:
		return result{}
	case labels[0] == "pod":
		return podAddress(name, labels[2:], qtype)
	}
	service := r.view.service(labels[1], labels[2])
	if service == nil {
		return nxdomain
	}
	if service.Spec.Type == v1.ServiceTypeExternalName {
		if len(labels) > 3 {
			return nxdomain
		}
		target := dns.CanonicalName(service.Spec.ExternalName)
		return result{external: target, answer: []dns.RR{&dns.CNAME{Hdr: header(name, dns.TypeCNAME), Target: target}}}
	}
	return r.service(name, labels[3:], service, qtype)
}

// service answers for a Service's name (no rest), its ports or its endpoints.
func (r *records) service(name string, rest []string, service *v1.Service, qtype uint16) result {
	headless := service.Spec.ClusterIP == v1.ClusterIPNone
	hosts := r.hosts(service)
	if headless && len(hosts) == 0 {
		return nxdomain
	}
	switch {
	case len(rest) == 0 && qtype == dns.TypeSRV:
		return r.servicePorts(name, service, hosts, "", "")
	case len(rest) == 0 && headless:
		return addressesOf(name, hosts, qtype)
	case len(rest) == 0:
		return addressesOf(name, []host{{addresses: clusterIPs(service)}}, qtype)
	case len(rest) == 1 && strings.HasPrefix(rest[0], "_"):
		if !slices.ContainsFunc(service.Spec.Ports, func(p v1.ServicePort) bool { return "_"+strings.ToLower(string(p.Protocol)) == rest[0] }) {
			return nxdomain
		}
		return result{}
	case len(rest) == 1:
		named := slices.DeleteFunc(hosts, func(h host) bool { return h.name != rest[0] })
		if len(named) == 0 {
			return nxdomain
		}
		return addressesOf(name, named, qtype)
	case len(rest) == 2 && strings.HasPrefix(rest[0], "_") && strings.HasPrefix(rest[1], "_"):
		found := r.servicePorts(name, service, hosts, rest[1][1:], rest[0][1:])
		if found.rcode == dns.RcodeSuccess && qtype != dns.TypeSRV {
			return result{}
		}
		return found
	}
	return nxdomain
}

// servicePorts are the SRV records of the named ports, or of one of them.
func (r *records) servicePorts(name string, service *v1.Service, hosts []host, port, protocol string) result {
	var found result
	suffix := "." + service.Name + "." + service.Namespace + ".svc." + r.zone
	add := func(number int32, target string, addresses []netip.Addr) {
		found.answer = append(found.answer, &dns.SRV{Hdr: header(name, dns.TypeSRV), Port: uint16(number), Weight: 100, Target: target})
		for _, a := range addresses {
			found.extra = append(found.extra, addressRecord(target, a))
		}
	}
	if service.Spec.ClusterIP != v1.ClusterIPNone {
		for _, p := range service.Spec.Ports {
			if port == "" || port == p.Name && protocol == strings.ToLower(string(p.Protocol)) {
				add(p.Port, suffix[1:], clusterIPs(service))
			}
		}
	} else {
		for _, h := range hosts {
			for _, p := range h.ports {
				if port == "" || port == p.name && protocol == p.protocol {
					add(p.number, h.name+suffix, h.addresses)
				}
			}
		}
	}
	if len(found.answer) == 0 && port != "" {
		return nxdomain
	}
	return found
}

// podAddress answers a pod's name, which says its own address.
func podAddress(name string, rest []string, qtype uint16) result {
	if len(rest) != 1 {
		return nxdomain
	}
	a, err := netip.ParseAddr(strings.ReplaceAll(rest[0], "-", "."))
	if err != nil {
		a, err = netip.ParseAddr(strings.ReplaceAll(rest[0], "-", ":"))
	}
	if err != nil {
		return nxdomain
	}
	return addressesOf(name, []host{{addresses: []netip.Addr{a}}}, qtype)
}

// addressesOf are the A or AAAA records of hosts, in an order that changes
// from query to query.
func addressesOf(name string, hosts []host, qtype uint16) result {
	var found result
	for _, h := range hosts {
		for _, a := range h.addresses {
			if qtype == dns.TypeANY || qtype == dns.TypeA && a.Is4() || qtype == dns.TypeAAAA && a.Is6() {
				found.answer = append(found.answer, addressRecord(name, a))
			}
		}
	}
	rand.Shuffle(len(found.answer), func(i, j int) {
		found.answer[i], found.answer[j] = found.answer[j], found.answer[i]
	})
	return found
}

func addressRecord(name string, a netip.Addr) dns.RR {
	if a.Is4() {
		return &dns.A{Hdr: header(name, dns.TypeA), A: a.AsSlice()}
	}
	return &dns.AAAA{Hdr: header(name, dns.TypeAAAA), AAAA: a.AsSlice()}
}

func header(name string, kind uint16) dns.RR_Header {
	return dns.RR_Header{Name: name, Rrtype: kind, Class: dns.ClassINET, Ttl: ttl}
}

func (r *records) apex(qtype uint16) result {
	switch qtype {
	case dns.TypeSOA:
		return result{answer: []dns.RR{r.soa()}}
	case dns.TypeNS:
		return result{answer: []dns.RR{&dns.NS{Hdr: header(r.zone, dns.TypeNS), Ns: "ns.dns." + r.zone}}}
	}
	return result{}
}

// soa goes with every negative answer; its minimum is how long that holds.
func (r *records) soa() dns.RR {
	return &dns.SOA{
		Hdr: header(r.zone, dns.TypeSOA), Ns: "ns.dns." + r.zone, Mbox: "hostmaster." + r.zone,
		Serial: 1, Refresh: 7200, Retry: 1800, Expire: 86400, Minttl: ttl,
	}
}
