package proxy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/order"
)

// otherProxy is the label of Services of another proxy.
const otherProxy = "service.kubernetes.io/service-proxy-name"

// proxied reports whether this proxy handles a Service. It does not handle
// headless Services, also those that have an address and say with the label
// service.kubernetes.io/headless that they are, external names, and Services of another
// proxy (label service.kubernetes.io/service-proxy-name).
func proxied(service *v1.Service) bool {
	if service.Spec.Type == v1.ServiceTypeExternalName || service.Spec.ClusterIP == "" || service.Spec.ClusterIP == v1.ClusterIPNone {
		return false
	}
	return isProxied(service.Labels)
}

// isProxied reports whether the labels of a Service or a slice leave it to this proxy.
func isProxied(labels map[string]string) bool {
	_, headless := labels[v1.IsHeadlessService]
	_, other := labels[otherProxy]
	return !headless && !other
}

// serviceRules computes the rules of a Service from its slices.
func serviceRules(service *v1.Service, slicesOf []*discoveryv1.EndpointSlice, node Node) map[PortName]*ServicePort {
	rules := map[PortName]*ServicePort{}
	if !proxied(service) {
		return rules
	}
	byPort := endpointPorts(slicesOf)
	for _, ip := range clusterIPs(service) {
		family, outside := familyOf(ip), outsideOf(service, ip.Is4())
		for i := range service.Spec.Ports {
			port := &service.Spec.Ports[i]
			name := PortName{
				NamespacedName: types.NamespacedName{Namespace: service.Namespace, Name: service.Name},
				Port:           port.Name, Protocol: protocolOf(port.Protocol), Family: family,
			}
			p := frontendsOf(service, port, ip)
			p.External, p.LoadBalancer, p.SourceRanges = outside.external, outside.loadBalancer, outside.sourceRanges
			candidates := endpointsOf(byPort[portKey{port.Name, protocolOf(port.Protocol)}], family)
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

// outside is how a Service is reached from outside the cluster, in one family. All of
// its ports share it.
type outside struct {
	external, loadBalancer []netip.Addr
	sourceRanges           []netip.Prefix
}

func outsideOf(service *v1.Service, is4 bool) (o outside) {
	spec := &service.Spec
	most := max(1, mostFrontends/max(1, len(spec.Ports)))
	for _, s := range spec.ExternalIPs {
		if a, err := parseAddress(s); err == nil && a.Is4() == is4 && len(o.external) < most {
			o.external = append(o.external, a)
		}
	}
	if spec.Type != v1.ServiceTypeLoadBalancer {
		return o
	}
	for _, ingress := range service.Status.LoadBalancer.Ingress {
		if ingress.IPMode != nil && *ingress.IPMode == v1.LoadBalancerIPModeProxy {
			continue
		}
		if a, err := parseAddress(ingress.IP); err == nil && a.Is4() == is4 {
			o.loadBalancer = append(o.loadBalancer, a)
		}
	}
	for _, s := range spec.LoadBalancerSourceRanges {
		if r, err := netip.ParsePrefix(strings.TrimSpace(s)); err == nil && r.Addr().Is4() == is4 && len(o.sourceRanges) < most {
			o.sourceRanges = append(o.sourceRanges, r.Masked())
		}
	}
	return o
}

// frontendsOf returns a ServicePort without endpoints and addresses outside.
func frontendsOf(service *v1.Service, port *v1.ServicePort, ip netip.Addr) *ServicePort {
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
	return p
}

func clusterIPs(service *v1.Service) []netip.Addr {
	list := service.Spec.ClusterIPs
	if len(list) == 0 {
		list = []string{service.Spec.ClusterIP}
	}
	var ips []netip.Addr
	for _, s := range list {
		if a, err := parseAddress(s); err == nil {
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

// portKey is what a port of a Service and the ports of its endpoints have in common.
type portKey struct {
	name     string
	protocol v1.Protocol
}

// endpointPort is a port of the endpoints of a slice.
type endpointPort struct {
	slice  *discoveryv1.EndpointSlice
	number uint16
}

// endpointPorts returns the ports of slices. A Service may have tens of thousands, so
// that they are not searched for each one.
func endpointPorts(slicesOf []*discoveryv1.EndpointSlice) map[portKey][]endpointPort {
	all := map[portKey][]endpointPort{}
	for _, slice := range slicesOf {
		for _, p := range slice.Ports {
			if p.Port == nil {
				continue
			}
			key := portKey{ptr.Deref(p.Name, ""), v1.ProtocolTCP}
			if p.Protocol != nil {
				key.protocol = *p.Protocol
			}
			all[key] = append(all[key], endpointPort{slice, uint16(*p.Port)})
		}
	}
	return all
}

// endpointsOf returns the endpoints of a port in a family, sorted by address,
// each address once.
func endpointsOf(ports []endpointPort, family v1.IPFamily) []candidate {
	var list []candidate
	for _, p := range ports {
		if string(p.slice.AddressType) != string(family) {
			continue
		}
		for i := range p.slice.Endpoints {
			endpoint := &p.slice.Endpoints[i]
			if len(endpoint.Addresses) == 0 {
				continue
			}
			// An API server without StrictIPCIDRValidation accepts IPv4 addresses
			// in the form of IPv6.
			a, err := parseAddress(endpoint.Addresses[0])
			if a = a.Unmap(); err == nil && familyOf(a) == family {
				list = append(list, candidate{netip.AddrPortFrom(a, p.number), endpoint})
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

// parseAddress parses an address. The name of a zone could be any text, which must not
// get into rules: with one it is no address, as for the API server.
func parseAddress(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err == nil && a.Zone() != "" {
		return netip.Addr{}, fmt.Errorf("the address %q has a zone", s)
	}
	return a, err
}

func familyOf(a netip.Addr) v1.IPFamily {
	if a.Is4() {
		return v1.IPv4Protocol
	}
	return v1.IPv6Protocol
}

func protocolOf(p v1.Protocol) v1.Protocol { return cmp.Or(p, v1.ProtocolTCP) }
