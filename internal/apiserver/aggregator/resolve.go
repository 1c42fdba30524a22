package aggregator

import (
	"context"
	"net/url"

	discoveryv1 "k8s.io/api/discovery/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/supervise"
	"github.com/coracle-io/coracle/internal/watchcache"
)

const defaultPort = 443

func port(ref *apiregistrationv1.ServiceReference) int32 { return ptr.Deref(ref.Port, defaultPort) }

// resolve returns the URL of an endpoint of a Service.
func (s *Server) resolve(ref *apiregistrationv1.ServiceReference) (*url.URL, error) {
	return s.services.ResolveEndpoint(ref.Namespace, ref.Name, port(ref))
}

// watchServices checks a backend when its Service or one of the Service's
// EndpointSlices changes, until ctx ends.
func (s *Server) watchServices(ctx context.Context) {
	s.watchKind(ctx, objects.Services, func(o resource.Object) string { return o.GetName() })
	s.watchKind(ctx, objects.EndpointSlices, func(o resource.Object) string { return o.GetLabels()[discoveryv1.LabelServiceName] })
}

func (s *Server) watchKind(ctx context.Context, path string, nameOf func(resource.Object) string) {
	kind := s.Cache.At(path)
	if kind == nil {
		return
	}
	s.wait.Go(ctx, func() {
		supervise.FailOnPanic(ctx, func() {
			for ctx.Err() == nil {
				cursor, err := kind.Watch(kind.Snapshot().Revision)
				for err == nil {
					var events []*watchcache.Event
					events, _, err = cursor.Next(ctx, nil)
					for _, e := range events {
						s.checkBackends(e.Entry.Namespace, nameOf(e.Entry.Object))
					}
				}
				for _, b := range *s.table.Load() {
					b.checkSoon() // missed events may concern them
				}
			}
		})
	})
}

// checkBackends checks the backends of a Service.
func (s *Server) checkBackends(namespace, name string) {
	for _, b := range *s.table.Load() {
		if b.spec.Service.Namespace == namespace && b.spec.Service.Name == name {
			b.checkSoon()
		}
	}
}
