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

// resolve chooses where to reach the Service of a reference.
func (s *Server) resolve(ref *apiregistrationv1.ServiceReference) (*url.URL, error) {
	return s.services.ResolveEndpoint(ref.Namespace, ref.Name, port(ref))
}

// watchServices has a backend checked when its Service or one of that one's
// EndpointSlices changes, until ctx ends.
func (s *Server) watchServices(ctx context.Context) {
	s.follow(ctx, objects.Services, func(o resource.Object) string { return o.GetName() })
	s.follow(ctx, objects.EndpointSlices, func(o resource.Object) string { return o.GetLabels()[discoveryv1.LabelServiceName] })
}

func (s *Server) follow(ctx context.Context, path string, nameOf func(resource.Object) string) {
	kind := s.Cache.At(path)
	if kind == nil {
		return
	}
	s.wait.Go(ctx, func() {
		supervise.Guard(ctx, func() {
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
