// Package reach finds where the API server reaches a Service of the cluster:
// the servers behind APIServices and the webhooks of admission and conversion.
package reach

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

// Services finds Services and what is behind them in the watch cache. It
// implements webhook.ServiceResolver.
type Services struct {
	services objects.Reader[*corev1.Service]
	slices   objects.Reader[*discoveryv1.EndpointSlice]
}

// New returns the Services of a source.
func New(source objects.Source) *Services {
	return &Services{
		services: objects.Of[*corev1.Service](source, objects.Services),
		slices:   objects.Of[*discoveryv1.EndpointSlice](source, objects.EndpointSlices),
	}
}

// Get returns a Service.
func (s *Services) Get(namespace, name string) (*corev1.Service, bool) {
	return s.services.Get(namespace, name)
}

// Slices returns the EndpointSlices of a Service.
func (s *Services) Slices(namespace, service string) []*discoveryv1.EndpointSlice {
	var all []*discoveryv1.EndpointSlice
	for slice := range s.slices.All(namespace) {
		if slice.Labels[discoveryv1.LabelServiceName] == service {
			all = append(all, slice)
		}
	}
	return all
}

// ResolveEndpoint implements webhook.ServiceResolver: a random ready endpoint,
// so that it works where no proxy serves cluster IPs, or the name of an
// external Service. It must be asked anew for each request.
func (s *Services) ResolveEndpoint(namespace, name string, port int32) (*url.URL, error) {
	service, ok := s.services.Get(namespace, name)
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
	host, err := streamproxy.RandomEndpoint(name, s.Slices(namespace, name), service.Spec.Ports[i].Name, family, nil)
	if err != nil {
		return nil, err
	}
	return &url.URL{Scheme: "https", Host: host}, nil
}
