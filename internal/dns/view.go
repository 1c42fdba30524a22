package dns

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Indexes of the informers.
const (
	byService = "dns-service" // EndpointSlices by namespace/service
	byAddress = "dns-address" // Services by cluster IP, EndpointSlices by endpoint address
)

// informerView implements View with the objects of informers.
type informerView struct {
	services   cache.Indexer
	slices     cache.Indexer
	namespaces cache.Indexer
	informers  []cache.SharedIndexInformer // of these, which run runs
}

// newInformerView returns a view whose informers do not run yet.
func newInformerView(ctx context.Context, c *client.Client) (*informerView, error) {
	v := &informerView{}
	reduced := func(of schema.GroupVersion, resource string) cache.SharedIndexInformer {
		informer := c.WatchReduced(of.WithResource(resource), "", fields.Everything(), reduce)
		v.informers = append(v.informers, informer)
		return informer
	}
	services, endpoints := reduced(v1.SchemeGroupVersion, "services"), reduced(discoveryv1.SchemeGroupVersion, "endpointslices")
	v.services, v.slices, v.namespaces = services.GetIndexer(), endpoints.GetIndexer(), reduced(v1.SchemeGroupVersion, "namespaces").GetIndexer()
	if err := errors.Join(
		client.Index(ctx, services, byAddress, func(obj any) ([]string, error) {
			return canonical(obj.(*v1.Service).Spec.ClusterIPs), nil
		}),
		client.Index(ctx, endpoints, byService, func(obj any) ([]string, error) {
			s := obj.(*discoveryv1.EndpointSlice)
			if name := s.Labels[discoveryv1.LabelServiceName]; name != "" {
				return []string{s.Namespace + "/" + name}, nil
			}
			return nil, nil
		}),
		client.Index(ctx, endpoints, byAddress, func(obj any) ([]string, error) {
			var ips []string
			for _, e := range obj.(*discoveryv1.EndpointSlice).Endpoints {
				ips = append(ips, canonical(e.Addresses)...)
			}
			return ips, nil
		}),
	); err != nil {
		return nil, err
	}
	return v, nil
}

// run runs the informers until ctx ends. It returns once they have the objects, or
// false if ctx ends before.
func (v *informerView) run(ctx context.Context) bool {
	var synced []cache.InformerSynced
	for _, informer := range v.informers {
		supervise.Go(ctx, func() { informer.RunWithContext(ctx) })
		synced = append(synced, informer.HasSynced)
	}
	return cache.WaitForCacheSync(ctx.Done(), synced...)
}

// reduce returns what the view uses of an object: each node keeps that of all Services,
// EndpointSlices and namespaces of the cluster. It returns other objects as they are,
// and those of the namespace in which this server announces itself.
func reduce(obj any) (any, error) {
	switch o := obj.(type) {
	case *v1.Service:
		out := &v1.Service{
			ObjectMeta: client.Identity(o),
			Spec:       v1.ServiceSpec{Type: o.Spec.Type, ExternalName: o.Spec.ExternalName, ClusterIPs: o.Spec.ClusterIPs},
		}
		for i := range o.Spec.Ports {
			p := &o.Spec.Ports[i]
			out.Spec.Ports = append(out.Spec.Ports, v1.ServicePort{Name: p.Name, Protocol: p.Protocol, Port: p.Port})
		}
		return out, nil
	case *discoveryv1.EndpointSlice:
		if o.Namespace == serviceNamespace {
			return obj, nil
		}
		out := &discoveryv1.EndpointSlice{ObjectMeta: client.Identity(o), AddressType: o.AddressType}
		if name, ok := o.Labels[discoveryv1.LabelServiceName]; ok {
			out.Labels = map[string]string{discoveryv1.LabelServiceName: name}
		}
		for _, p := range o.Ports {
			out.Ports = append(out.Ports, discoveryv1.EndpointPort{Name: p.Name, Protocol: p.Protocol, Port: p.Port})
		}
		out.Endpoints = make([]discoveryv1.Endpoint, len(o.Endpoints))
		for i := range o.Endpoints {
			e := &o.Endpoints[i]
			out.Endpoints[i] = discoveryv1.Endpoint{Addresses: e.Addresses, Hostname: e.Hostname, Conditions: discoveryv1.EndpointConditions{Ready: e.Conditions.Ready}}
		}
		return out, nil
	case *v1.Namespace:
		return &v1.Namespace{ObjectMeta: client.Identity(o)}, nil
	}
	return obj, nil
}

// canonical returns IP addresses in the form of netip, without other addresses.
func canonical(addresses []string) (out []string) {
	for _, text := range addresses {
		if ip, err := netip.ParseAddr(text); err == nil {
			out = append(out, ip.Unmap().String())
		}
	}
	return out
}

// isServer reports whether an address belongs to a DNS server of this cluster.
func (v *informerView) isServer(a netip.Addr) bool {
	slices, err := v.slices.ByIndex(byAddress, a.String())
	if err != nil {
		return false
	}
	for _, obj := range slices {
		if s := obj.(*discoveryv1.EndpointSlice); s.Namespace == serviceNamespace && s.Labels[discoveryv1.LabelServiceName] == serviceName {
			return true
		}
	}
	return false
}

// Service implements View.
func (v *informerView) Service(namespace, name string) *Service {
	obj, exists, err := v.services.GetByKey(namespace + "/" + name)
	if err != nil || !exists {
		return nil
	}
	return v.convert(obj.(*v1.Service))
}

func (v *informerView) convert(s *v1.Service) *Service {
	out := &Service{Namespace: s.Namespace, Name: s.Name}
	if s.Spec.Type == v1.ServiceTypeExternalName {
		out.ExternalName = s.Spec.ExternalName
		return out
	}
	for _, text := range s.Spec.ClusterIPs {
		if ip, err := netip.ParseAddr(text); err == nil {
			out.ClusterIPs = append(out.ClusterIPs, ip.Unmap())
		}
	}
	if len(out.ClusterIPs) > 0 {
		for _, p := range s.Spec.Ports {
			out.Ports = append(out.Ports, Port{Name: strings.ToLower(p.Name), Protocol: protocol(p.Protocol), Number: uint16(p.Port)})
		}
		return out
	}
	slices, err := v.slices.ByIndex(byService, s.Namespace+"/"+s.Name)
	if err != nil {
		return out
	}
	for _, obj := range slices {
		out.Endpoints = append(out.Endpoints, readyEndpoints(obj.(*discoveryv1.EndpointSlice))...)
	}
	return out
}

// readyEndpoints returns the ready endpoints of a slice. A Service with
// publishNotReadyAddresses has them all marked as ready.
func readyEndpoints(slice *discoveryv1.EndpointSlice) []Endpoint {
	var ports []Port
	for _, p := range slice.Ports {
		if p.Port == nil || p.Name == nil || p.Protocol == nil {
			continue
		}
		ports = append(ports, Port{Name: strings.ToLower(*p.Name), Protocol: protocol(*p.Protocol), Number: uint16(*p.Port)})
	}
	var out []Endpoint
	for _, e := range slice.Endpoints {
		if !isReady(&e) {
			continue
		}
		for _, text := range e.Addresses {
			ip, err := netip.ParseAddr(text)
			if err != nil {
				continue
			}
			endpoint := Endpoint{Address: ip.Unmap(), Ports: ports}
			if e.Hostname != nil {
				endpoint.Hostname = strings.ToLower(*e.Hostname)
			}
			out = append(out, endpoint)
		}
	}
	return out
}

func isReady(e *discoveryv1.Endpoint) bool { return e.Conditions.Ready == nil || *e.Conditions.Ready }

// hostnamesAt returns the hostnames of the ready endpoints with an address. An
// address may be in the slices of thousands of Services.
func hostnamesAt(slice *discoveryv1.EndpointSlice, ip netip.Addr) (names []string) {
	for i := range slice.Endpoints {
		e := &slice.Endpoints[i]
		if e.Hostname == nil || *e.Hostname == "" || !isReady(e) {
			continue
		}
		if slices.Contains(canonical(e.Addresses), ip.String()) {
			names = append(names, strings.ToLower(*e.Hostname))
		}
	}
	return names
}

func protocol(p v1.Protocol) string {
	if p == "" {
		return "tcp"
	}
	return strings.ToLower(string(p))
}

// HasNamespace implements View.
func (v *informerView) HasNamespace(name string) bool {
	_, exists, err := v.namespaces.GetByKey(name)
	return err == nil && exists
}

// ServiceByIP implements View.
func (v *informerView) ServiceByIP(ip netip.Addr) *Service {
	found, err := v.services.ByIndex(byAddress, ip.String())
	if err != nil || len(found) == 0 {
		return nil
	}
	return v.convert(found[0].(*v1.Service))
}

// EndpointsByIP implements View. Only an endpoint with a hostname has a PTR
// record.
func (v *informerView) EndpointsByIP(ip netip.Addr) []ServiceEndpoint {
	found, err := v.slices.ByIndex(byAddress, ip.String())
	if err != nil {
		return nil
	}
	var out []ServiceEndpoint
	for _, obj := range found {
		slice := obj.(*discoveryv1.EndpointSlice)
		hostnames := hostnamesAt(slice, ip)
		if len(hostnames) == 0 {
			continue
		}
		s := v.Service(slice.Namespace, slice.Labels[discoveryv1.LabelServiceName])
		if s == nil || !s.Headless() {
			continue
		}
		for _, name := range hostnames {
			out = append(out, ServiceEndpoint{Service: s, Endpoint: Endpoint{Address: ip, Hostname: name}})
		}
	}
	return out
}
