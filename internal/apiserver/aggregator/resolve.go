package aggregator

import (
	"context"
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
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/watchcache"
)

const defaultPort = 443

func port(ref *apiregistrationv1.ServiceReference) int32 { return ptr.Deref(ref.Port, defaultPort) }

// resolve chooses where to reach a Service: a random ready endpoint, so that
// it works where no proxy serves cluster IPs, or the name of an external one.
func (s *Server) resolve(ref *apiregistrationv1.ServiceReference) (*url.URL, error) {
	service, ok := s.services.Get(ref.Namespace, ref.Name)
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "services"}, ref.Name)
	}
	if service.Spec.Type == corev1.ServiceTypeExternalName {
		return &url.URL{Scheme: "https", Host: net.JoinHostPort(service.Spec.ExternalName, strconv.Itoa(int(port(ref))))}, nil
	}
	i := slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == port(ref) })
	if i < 0 {
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("no service port %d found for service %q", port(ref), ref.Name))
	}
	family := corev1.IPFamilyUnknown
	if len(service.Spec.IPFamilies) > 0 {
		family = service.Spec.IPFamilies[0]
	}
	host, err := streamproxy.RandomEndpoint(ref.Name, s.slicesOf(ref.Namespace, ref.Name), service.Spec.Ports[i].Name, family, nil)
	if err != nil {
		return nil, err
	}
	return &url.URL{Scheme: "https", Host: host}, nil
}

func (s *Server) slicesOf(namespace, service string) []*discoveryv1.EndpointSlice {
	var all []*discoveryv1.EndpointSlice
	for slice := range s.slices.All(namespace) {
		if slice.Labels[discoveryv1.LabelServiceName] == service {
			all = append(all, slice)
		}
	}
	return all
}

// watchServices has a backend checked when its Service or one of that one's
// EndpointSlices changes, until ctx ends.
func (s *Server) watchServices(ctx context.Context) {
	s.follow(ctx, objects.Services, func(o resource.Object) string { return o.GetName() })
	s.follow(ctx, objects.EndpointSlices, func(o resource.Object) string { return o.GetLabels()[discoveryv1.LabelServiceName] })
}

func (s *Server) follow(ctx context.Context, path string, nameOf func(resource.Object) string) {
	kind := s.Cache.Kind(&resource.Resource{StoragePath: path})
	if kind == nil {
		return
	}
	s.wait.Go(func() {
		for ctx.Err() == nil {
			cursor, err := kind.Watch(kind.Snapshot().Revision)
			for err == nil {
				var events []*watchcache.Event
				events, _, err = cursor.Next(ctx, nil)
				for _, e := range events {
					s.checkService(e.Entry.Namespace, nameOf(e.Entry.Object))
				}
			}
			for _, b := range *s.table.Load() {
				b.checkSoon() // what was missed may be theirs
			}
		}
	})
}

// checkService has the backends of a Service checked.
func (s *Server) checkService(namespace, name string) {
	for _, b := range *s.table.Load() {
		if b.spec.Service.Namespace == namespace && b.spec.Service.Name == name {
			b.checkSoon()
		}
	}
}
