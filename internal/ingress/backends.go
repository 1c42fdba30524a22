package ingress

import (
	"fmt"
	"net/netip"
	"strconv"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/ingress/table"
)

// maxEndpoints bounds the endpoints of one backend.
const maxEndpoints = 1000

// backendKey identifies a backend. Routes to the same one share it.
type backendKey struct {
	namespace, service string
	port               networkingv1.ServiceBackendPort
	grpc               bool // whether clients speak gRPC: then endpoints do, unless the port says otherwise
}

// backend is a backend, with why it has no endpoints, or lacks some, if that is not for
// lack of pods.
type backend struct {
	*table.Backend
	problem *problem
	refused bool // whether there is no such backend
}

// backend returns the backend of a rule.
func (c *compiler) backend(namespace string, of *networkingv1.IngressBackend) *backend {
	if of.Service == nil {
		name := "of an unknown kind"
		if of.Resource != nil {
			name = of.Resource.Kind + " " + of.Resource.Name
		}
		return &backend{Backend: &table.Backend{Name: name}, problem: &problem{unsupportedBackend, fmt.Sprintf("backend %s: only Services are supported", name)}, refused: true}
	}
	return c.shared(backendKey{namespace: namespace, service: of.Service.Name, port: of.Service.Port})
}

// backends are the backends of a table that are Services, by Service.
type backends map[serviceName]map[backendKey]*backend

// shared returns the backend of a key, which all routes to it share.
func (c *compiler) shared(key backendKey) *backend {
	service := serviceName{key.namespace, key.service}
	if c.backends[service] == nil {
		c.backends[service] = map[backendKey]*backend{}
	}
	if c.backends[service][key] == nil {
		c.backends[service][key] = c.serviceBackend(key)
	}
	return c.backends[service][key]
}

// refresh gives the backends of some Services the endpoints that a source has now. It
// returns false if they differ by more than that, and a new table is needed.
func (b backends) refresh(s source, services map[serviceName]bool) bool {
	c := &compiler{source: s}
	for service := range services {
		for key, former := range b[service] {
			now := c.serviceBackend(key)
			if !now.sameButEndpoints(former) {
				return false
			}
			former.SetEndpoints(now.Endpoints())
		}
	}
	return true
}

// sameButEndpoints reports whether two backends differ at most by their endpoints.
func (b *backend) sameButEndpoints(o *backend) bool {
	if b.problem == nil || o.problem == nil {
		return b.problem == o.problem && b.refused == o.refused && b.Protocol == o.Protocol
	}
	return *b.problem == *o.problem && b.refused == o.refused && b.Protocol == o.Protocol
}

// gatewayBackend is gateway.Source.Backend.
func (c *compiler) gatewayBackend(namespace, service string, port int32, grpc bool) (_ *table.Backend, reason, message string) {
	b := c.shared(backendKey{namespace, service, networkingv1.ServiceBackendPort{Number: port}, grpc})
	if b.problem == nil {
		return b.Backend, "", ""
	}
	if b.refused {
		return nil, b.problem.reason, b.problem.message
	}
	return b.Backend, b.problem.reason, b.problem.message
}

func (c *compiler) serviceBackend(key backendKey) *backend {
	port := key.port.Name
	if port == "" {
		port = strconv.Itoa(int(key.port.Number))
	}
	b := &backend{Backend: &table.Backend{Name: key.namespace + "/" + key.service + ":" + port, Protocol: table.HTTP1}}
	refuse := func(reason, format string, args ...any) *backend {
		b.refused, b.problem = true, &problem{reason, fmt.Sprintf("Service %s: ", key.service) + fmt.Sprintf(format, args...)}
		return b
	}
	s := c.service(key.namespace, key.service)
	if s == nil {
		return refuse(backendNotFound, "there is none of that name")
	}
	// The name could be that of anything which this node reaches and the user does not.
	if s.Spec.Type == v1.ServiceTypeExternalName {
		return refuse(unsupportedBackend, "a Service of type ExternalName is no backend")
	}
	of := servicePort(s, key.port)
	if of == nil {
		return refuse(backendNotFound, "it has no TCP port %s", port)
	}
	switch protocol := ptr.Deref(of.AppProtocol, ""); protocol {
	case "":
		if key.grpc {
			b.Protocol = table.H2C
		}
	case "http", "kubernetes.io/ws":
	case "kubernetes.io/h2c", "grpc":
		b.Protocol = table.H2C
	default:
		return refuse(unsupportedBackend, "appProtocol %q of port %s: want http, kubernetes.io/ws, kubernetes.io/h2c or none", protocol, port)
	}
	endpoints, foreign := endpointsOf(c.slices(key.namespace, key.service), of.Name, func(a netip.Addr) bool { return c.isPod(key.namespace, a) })
	b.SetEndpoints(endpoints)
	if foreign.IsValid() {
		refuse(unsupportedBackend, "its endpoint %s is no pod of the namespace, and gets no requests", foreign)
		b.refused = false // others may get some
	}
	return b
}

// servicePort returns the TCP port of a Service that a rule names, or nil.
func servicePort(s *v1.Service, want networkingv1.ServiceBackendPort) *v1.ServicePort {
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		if p.Protocol != "" && p.Protocol != v1.ProtocolTCP {
			continue
		}
		if want.Name != "" && p.Name == want.Name || want.Name == "" && p.Port == want.Number {
			return p
		}
	}
	return nil
}

// endpointsOf returns the endpoints of a port of a Service that take requests: the
// ready ones, or, if there are none, those that terminate and still serve, as
// kube-proxy does. It returns those of IPv4 if there are any. All of them are addresses
// of pods. foreign is the least other one, invalid if there is none; the address of a pod
// that is not known yet, or not any more, is none.
func endpointsOf(slices []*discoveryv1.EndpointSlice, port string, isPod func(netip.Addr) bool) (all []netip.AddrPort, foreign netip.Addr) {
	for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		var ready, serving []netip.AddrPort
		seen := map[netip.AddrPort]bool{} // an endpoint may be in two slices while it moves
		for _, slice := range slices {
			number := portNumber(slice, port)
			if slice.AddressType != family || number == 0 {
				continue
			}
			for i := range slice.Endpoints {
				e := &slice.Endpoints[i]
				at, ok := endpointAddress(e, number)
				if !ok || seen[at] {
					continue
				}
				if !isPod(at.Addr()) {
					if !refersToPod(e) && (!foreign.IsValid() || at.Addr().Less(foreign)) {
						foreign = at.Addr()
					}
					continue
				}
				switch {
				case ptr.Deref(e.Conditions.Ready, true):
					ready, seen[at] = append(ready, at), true
				case ptr.Deref(e.Conditions.Serving, false) && ptr.Deref(e.Conditions.Terminating, false):
					serving, seen[at] = append(serving, at), true
				}
			}
		}
		if len(ready) == 0 {
			ready = serving
		}
		if len(ready) > 0 {
			return ready[:min(len(ready), maxEndpoints)], foreign
		}
	}
	return nil, foreign
}

// refersToPod reports whether an endpoint says that it is a pod, as those of controllers
// do.
func refersToPod(e *discoveryv1.Endpoint) bool {
	return e.TargetRef != nil && e.TargetRef.Kind == "Pod"
}

// portNumber returns the number of a port in a slice, 0 if it has none.
func portNumber(slice *discoveryv1.EndpointSlice, name string) uint16 {
	for _, p := range slice.Ports {
		if ptr.Deref(p.Name, "") == name && ptr.Deref(p.Protocol, v1.ProtocolTCP) == v1.ProtocolTCP {
			return uint16(ptr.Deref(p.Port, 0))
		}
	}
	return 0
}

// endpointAddress returns where an endpoint is. It may be no address of the machine
// itself that others do not reach, as loopback.
func endpointAddress(e *discoveryv1.Endpoint, port uint16) (netip.AddrPort, bool) {
	if len(e.Addresses) == 0 {
		return netip.AddrPort{}, false
	}
	a, err := netip.ParseAddr(e.Addresses[0]) // further ones have no meaning
	if err != nil || !a.Unmap().IsGlobalUnicast() || a.Zone() != "" {
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(a.Unmap(), port), true
}
