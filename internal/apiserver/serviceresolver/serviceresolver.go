// Package serviceresolver resolves Services of the cluster to addresses that
// the API server can reach. The aggregator uses it for the servers behind
// APIServices, and webhook clients use it for admission and conversion webhooks.
package serviceresolver

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	streamproxy "k8s.io/apiserver/pkg/util/proxy"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
)

// Resolver reads Services and their EndpointSlices from the watch cache. It
// implements webhook.ServiceResolver.
type Resolver struct {
	services objects.Reader[*corev1.Service]
	slices   objects.Reader[*discoveryv1.EndpointSlice]
}

// New returns a Resolver that reads from source.
func New(source objects.Source) *Resolver {
	return &Resolver{
		services: objects.Of[*corev1.Service](source, objects.Services),
		slices:   objects.Of[*discoveryv1.EndpointSlice](source, objects.EndpointSlices),
	}
}

// Get returns a Service, and whether it exists.
func (r *Resolver) Get(namespace, name string) (*corev1.Service, bool) {
	return r.services.Get(namespace, name)
}

// Slices returns the EndpointSlices of a Service.
func (r *Resolver) Slices(namespace, service string) []*discoveryv1.EndpointSlice {
	var all []*discoveryv1.EndpointSlice
	for slice := range r.slices.All(namespace) {
		if slice.Labels[discoveryv1.LabelServiceName] == service {
			all = append(all, slice)
		}
	}
	return all
}

// ResolveEndpoint implements webhook.ServiceResolver. It returns the address of
// a random ready endpoint, so that it works on machines where no proxy serves
// cluster IPs. For a Service of type ExternalName it returns the external name.
// Endpoints change, so callers must resolve again for each request.
func (r *Resolver) ResolveEndpoint(namespace, name string, port int32) (*url.URL, error) {
	service, ok := r.services.Get(namespace, name)
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "services"}, name)
	}
	if service.Spec.Type == corev1.ServiceTypeExternalName {
		return &url.URL{Scheme: "https", Host: net.JoinHostPort(service.Spec.ExternalName, strconv.Itoa(int(port)))}, nil
	}
	i := slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == port })
	if i < 0 {
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("no service port %d found for service %q", port, name))
	}
	family := corev1.IPFamilyUnknown
	if len(service.Spec.IPFamilies) > 0 {
		family = service.Spec.IPFamilies[0]
	}
	host, err := streamproxy.RandomEndpoint(name, r.Slices(namespace, name), service.Spec.Ports[i].Name, family, nil)
	if err != nil {
		return nil, err
	}
	return &url.URL{Scheme: "https", Host: host}, nil
}
