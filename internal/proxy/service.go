package proxy

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/order"
)

// proxied reports whether this proxy handles a Service. It does not handle
// headless Services, external names, and Services of another proxy (label
// service.kubernetes.io/service-proxy-name).
func proxied(service *v1.Service) bool {
	if service.Spec.Type == v1.ServiceTypeExternalName || service.Spec.ClusterIP == "" || service.Spec.ClusterIP == v1.ClusterIPNone {
		return false
	}
	_, other := service.Labels["service.kubernetes.io/service-proxy-name"]
	return !other
}

// serviceRules computes the rules of a Service from its slices.
func serviceRules(service *v1.Service, slicesOf []*discoveryv1.EndpointSlice, node Node) map[PortName]*ServicePort {
	rules := map[PortName]*ServicePort{}
	if !proxied(service) {
		return rules
	}
	for _, ip := range clusterIPs(service) {
		family := familyOf(ip)
		for i := range service.Spec.Ports {
			port := &service.Spec.Ports[i]
			name := PortName{
				NamespacedName: types.NamespacedName{Namespace: service.Namespace, Name: service.Name},
				Port:           port.Name, Protocol: protocolOf(port.Protocol), Family: family,
			}
			p := frontends(service, port, ip)
			candidates := endpointsOf(slicesOf, port, family)
			p.Cluster = addresses(clusterEndpoints(candidates, node))
			if p.InternalLocal || p.ExternalLocal {
				p.Local = addresses(localEndpoints(candidates, node))
			}
			if p.HealthCheckNodePort != 0 {
				p.ReadyLocal = addresses(ready(onNode(candidates, node.Name)))
			}
			rules[name] = p
		}
	}
	return rules
}

// mostFrontends bounds how many elements the external addresses of a Service become
// in one family, and how many rules its source ranges: each of its ports has them
// all, and an object has room for thousands of each. Addresses beyond it lead
// nowhere, and clients beyond it are refused.
const mostFrontends = 10_000

// frontends returns a ServicePort without endpoints.
func frontends(service *v1.Service, port *v1.ServicePort, ip netip.Addr) *ServicePort {
	spec := &service.Spec
	p := &ServicePort{
		ClusterIP:     ip,
		Port:          uint16(port.Port),
		NodePort:      uint16(port.NodePort),
		InternalLocal: spec.InternalTrafficPolicy != nil && *spec.InternalTrafficPolicy == v1.ServiceInternalTrafficPolicyLocal,
	}
	external := p.NodePort != 0 || len(spec.ExternalIPs) > 0 || spec.Type == v1.ServiceTypeLoadBalancer
	p.ExternalLocal = external && spec.ExternalTrafficPolicy == v1.ServiceExternalTrafficPolicyLocal
	if p.ExternalLocal && spec.Type == v1.ServiceTypeLoadBalancer {
		p.HealthCheckNodePort = uint16(spec.HealthCheckNodePort)
	}
	if spec.SessionAffinity == v1.ServiceAffinityClientIP {
		seconds := v1.DefaultClientIPServiceAffinitySeconds
		if c := spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
			seconds = *c.ClientIP.TimeoutSeconds
		}
		p.Affinity = time.Duration(seconds) * time.Second
	}
	most := max(1, mostFrontends/len(spec.Ports))
	for _, s := range spec.ExternalIPs {
		if a, err := netip.ParseAddr(s); err == nil && a.Is4() == ip.Is4() && len(p.External) < most {
			p.External = append(p.External, a)
		}
	}
	if spec.Type != v1.ServiceTypeLoadBalancer {
		return p
	}
	for _, ingress := range service.Status.LoadBalancer.Ingress {
		if ingress.IPMode != nil && *ingress.IPMode == v1.LoadBalancerIPModeProxy {
			continue
		}
		if a, err := netip.ParseAddr(ingress.IP); err == nil && a.Is4() == ip.Is4() {
			p.LoadBalancer = append(p.LoadBalancer, a)
		}
	}
	for _, s := range spec.LoadBalancerSourceRanges {
		if r, err := netip.ParsePrefix(strings.TrimSpace(s)); err == nil && r.Addr().Is4() == ip.Is4() && len(p.SourceRanges) < most {
			p.SourceRanges = append(p.SourceRanges, r.Masked())
		}
	}
	return p
}

func clusterIPs(service *v1.Service) []netip.Addr {
	list := service.Spec.ClusterIPs
	if len(list) == 0 {
		list = []string{service.Spec.ClusterIP}
	}
	var ips []netip.Addr
	for _, s := range list {
		if a, err := netip.ParseAddr(s); err == nil {
			ips = append(ips, a.Unmap())
		}
	}
	return ips
}

// candidate is an address of an endpoint for one Service port.
type candidate struct {
	address  netip.AddrPort
	endpoint *discoveryv1.Endpoint
}

// endpointsOf returns the endpoints of a port in a family, sorted by address,
// each address once.
func endpointsOf(slicesOf []*discoveryv1.EndpointSlice, port *v1.ServicePort, family v1.IPFamily) []candidate {
	var list []candidate
	for _, slice := range slicesOf {
		if string(slice.AddressType) != string(family) {
			continue
		}
		for _, p := range slice.Ports {
			if p.Port == nil || p.Name == nil && port.Name != "" || p.Name != nil && *p.Name != port.Name ||
				p.Protocol != nil && *p.Protocol != protocolOf(port.Protocol) {
				continue
			}
			for i := range slice.Endpoints {
				endpoint := &slice.Endpoints[i]
				if len(endpoint.Addresses) == 0 {
					continue
				}
				// An API server without StrictIPCIDRValidation accepts IPv4 addresses
				// in the form of IPv6.
				a, err := netip.ParseAddr(endpoint.Addresses[0])
				if a = a.Unmap(); err == nil && familyOf(a) == family {
					list = append(list, candidate{netip.AddrPortFrom(a, uint16(*p.Port)), endpoint})
				}
			}
		}
	}
	// Of several endpoints with one address, a ready one counts: while slices
	// are rearranged, an endpoint may be in two of them.
	slices.SortStableFunc(list, func(a, b candidate) int {
		return cmp.Or(a.address.Compare(b.address), order.FalseFirst(isReady(b.endpoint), isReady(a.endpoint)))
	})
	return slices.CompactFunc(list, func(a, b candidate) bool { return a.address == b.address })
}

func addresses(list []candidate) []netip.AddrPort {
	var result []netip.AddrPort
	for _, c := range list {
		result = append(result, c.address)
	}
	return result
}

func familyOf(a netip.Addr) v1.IPFamily {
	if a.Is4() {
		return v1.IPv4Protocol
	}
	return v1.IPv6Protocol
}

func protocolOf(p v1.Protocol) v1.Protocol { return cmp.Or(p, v1.ProtocolTCP) }
