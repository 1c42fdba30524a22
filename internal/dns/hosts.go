package dns

import (
	"net/netip"
	"strings"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/miekg/dns"
)

// host is an endpoint as names see it.
type host struct {
	name      string
	addresses []netip.Addr
	ports     []hostPort
}

type hostPort struct {
	name     string
	protocol string // in lower case
	number   int32
}

// hosts are the ready endpoints of a Service.
func (r *records) hosts(service *v1.Service) []host {
	var list []host
	for _, slice := range r.view.slices(service.Namespace, service.Name) {
		ports := portsOf(slice)
		for i := range slice.Endpoints {
			endpoint := &slice.Endpoints[i]
			ready := endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready
			if !ready && !service.Spec.PublishNotReadyAddresses {
				continue
			}
			for _, s := range endpoint.Addresses {
				if a, err := netip.ParseAddr(s); err == nil {
					list = append(list, host{name: hostName(endpoint, a), addresses: []netip.Addr{a}, ports: ports})
				}
			}
		}
	}
	return list
}

// hostName is the endpoint's own, or one made of its address.
func hostName(endpoint *discoveryv1.Endpoint, a netip.Addr) string {
	if endpoint.Hostname != nil && *endpoint.Hostname != "" {
		return strings.ToLower(*endpoint.Hostname)
	}
	return strings.NewReplacer(".", "-", ":", "-").Replace(a.String())
}

func portsOf(slice *discoveryv1.EndpointSlice) []hostPort {
	var ports []hostPort
	for _, p := range slice.Ports {
		if p.Port == nil {
			continue
		}
		port := hostPort{number: *p.Port, protocol: "tcp"}
		if p.Name != nil {
			port.name = *p.Name
		}
		if p.Protocol != nil {
			port.protocol = strings.ToLower(string(*p.Protocol))
		}
		ports = append(ports, port)
	}
	return ports
}

func clusterIPs(service *v1.Service) []netip.Addr {
	list := service.Spec.ClusterIPs
	if len(list) == 0 {
		list = []string{service.Spec.ClusterIP}
	}
	var ips []netip.Addr
	for _, s := range list {
		if a, err := netip.ParseAddr(s); err == nil {
			ips = append(ips, a)
		}
	}
	return ips
}

// reverse answers PTR queries (sections 2.3.3 and 2.4.3) for addresses of
// Services and endpoints; ours is false for every other name.
func (r *records) reverse(name string, qtype uint16) (found result, ours bool) {
	a, ok := reverseAddress(name)
	if !ok {
		return result{}, false
	}
	var targets []string
	for _, service := range r.view.servicesAt(a) {
		targets = append(targets, service.Name+"."+service.Namespace+".svc."+r.zone)
	}
	if len(targets) == 0 {
		targets = r.endpointNames(a)
	}
	if len(targets) == 0 {
		return result{}, false
	}
	if qtype == dns.TypePTR || qtype == dns.TypeANY {
		for _, target := range targets {
			found.answer = append(found.answer, &dns.PTR{Hdr: header(name, dns.TypePTR), Ptr: target})
		}
	}
	return found, true
}

// endpointNames are the names that an address has in headless Services, or
// in any by a host name of its own.
func (r *records) endpointNames(a netip.Addr) []string {
	var names []string
	for _, slice := range r.view.slicesAt(a) {
		serviceName := slice.Labels[discoveryv1.LabelServiceName]
		service := r.view.service(slice.Namespace, serviceName)
		if service == nil {
			continue
		}
		for i := range slice.Endpoints {
			endpoint := &slice.Endpoints[i]
			named := endpoint.Hostname != nil && *endpoint.Hostname != ""
			if !named && service.Spec.ClusterIP != v1.ClusterIPNone {
				continue
			}
			for _, s := range endpoint.Addresses {
				if b, err := netip.ParseAddr(s); err == nil && a == b {
					names = append(names, hostName(endpoint, a)+"."+serviceName+"."+slice.Namespace+".svc."+r.zone)
				}
			}
		}
	}
	return names
}

// reverseAddress parses names below in-addr.arpa (RFC 1035) and ip6.arpa
// (RFC 3596) that stand for one address.
func reverseAddress(name string) (netip.Addr, bool) {
	if rest, ok := strings.CutSuffix(name, ".in-addr.arpa."); ok {
		parts := strings.Split(rest, ".")
		if len(parts) != 4 {
			return netip.Addr{}, false
		}
		a, err := netip.ParseAddr(parts[3] + "." + parts[2] + "." + parts[1] + "." + parts[0])
		return a, err == nil
	}
	rest, ok := strings.CutSuffix(name, ".ip6.arpa.")
	digits := strings.Split(rest, ".")
	if !ok || len(digits) != 32 {
		return netip.Addr{}, false
	}
	var b strings.Builder
	for i := 31; i >= 0; i-- {
		if len(digits[i]) != 1 {
			return netip.Addr{}, false
		}
		b.WriteString(digits[i])
		if i%4 == 0 && i > 0 {
			b.WriteByte(':')
		}
	}
	a, err := netip.ParseAddr(b.String())
	return a, err == nil
}
