// Package aggregator is the aggregation layer: other API servers serve a part of
// the API. An APIService (apiregistration.k8s.io/v1) names a group version and
// the Service of the server that serves it. An APIService without a Service is
// served by this server.
//
//	APIServices ──► Server.sync ─┬─► autoregister: one for each group version of custom resources
//	                             ├─► table: group version ─► backend ─► proxy
//	                             └─► discovery, in the order of the priorities
//
//	backend, one for each APIService with a Service:
//	  check ─► Available condition ─► discovery of the server ─► its OpenAPI documents
//	    ▲ every 30 s, and after a change of the Service or its EndpointSlices, or a failed request
//
// A proxied request has its user in the X-Remote-* headers, and is
// authenticated by the client certificate of the front proxy.
package aggregator

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/apiserver/discovery"
	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/apiserver/recovery"
	"github.com/coracle-io/coracle/internal/apiserver/registry"
	"github.com/coracle-io/coracle/internal/apiserver/serviceresolver"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/supervise"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// Documents publishes the OpenAPI documents of aggregated servers.
type Documents interface {
	// SetV2 adds a part to the version 2 document. A nil render removes it.
	SetV2(name string, render func() (*spec.Swagger, error))
	// SetV3 publishes a version 3 document. tag identifies its content. A nil
	// render removes it.
	SetV3(path, tag string, render func() ([]byte, error))
	// SetV3Remote publishes the documents that h serves, with their URLs by
	// path. An empty map removes them.
	SetV3Remote(name string, urls map[string]string, h http.Handler)
}

// Discovery publishes the group versions of APIServices.
type Discovery interface {
	SetAPIServices([]discovery.APIService)
}

// Config configures a Server. Fields are required unless their comment says
// otherwise.
type Config struct {
	Cache *watchcache.Cache
	// BuiltIn are the built-in resources of this server.
	BuiltIn []*resource.Resource
	// ClientCertificate authenticates this server as a front proxy.
	ClientCertificate func(*tls.CertificateRequestInfo) (*tls.Certificate, error)
	// WithoutUIDs does not tell the servers the UIDs of users.
	WithoutUIDs bool
	// Documents publishes OpenAPI documents; it may be nil.
	Documents Documents
	// Managers tracks the field managers of statuses; nil tracks none.
	Managers registry.FieldManagers
	Clock    clock.Clock
	// Unavailable counts the transitions of APIServices to unavailable, by name
	// and reason; nil disables it.
	Unavailable *prometheus.CounterVec
	// Dial connects to the servers; nil uses the network.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Wrap wraps the round tripper of proxied requests, except upgraded ones; it
	// may be nil.
	Wrap func(http.RoundTripper) http.RoundTripper
}

// Server proxies to the servers of APIServices. It implements
// apiserver.Aggregated.
type Server struct {
	Config
	services *serviceresolver.Resolver
	table    atomic.Pointer[table]
	local    atomic.Pointer[resource.GroupVersions] // the group versions of custom resources
	builtIn  resource.GroupVersions
	wake     chan struct{} // buffered for one; see enqueue

	// Only Run's goroutine uses the following.
	kind     *watchcache.Kind
	starting bool // until the first registration
	backends map[string]*backend
	wait     supervise.WaitGroup
	watching bool
}

// table maps group versions to backends. It is immutable.
type table map[schema.GroupVersion]*backend

// New returns a Server. Run starts it.
func New(c Config) *Server {
	s := &Server{
		Config:   c,
		services: serviceresolver.New(objects.Cache{Cache: c.Cache}),
		builtIn:  resource.Served(c.BuiltIn),
		wake:     make(chan struct{}, 1),
		backends: map[string]*backend{},
	}
	s.table.Store(&table{})
	s.local.Store(&resource.GroupVersions{})
	return s
}

// SetResources sets the resources that this server serves, including custom
// ones, from which it registers APIServices.
func (s *Server) SetResources(rs []*resource.Resource) {
	custom := resource.Served(rs)
	for gv := range s.builtIn {
		delete(custom, gv)
	}
	s.local.Store(&custom)
	s.enqueue()
}

// enqueue makes Run sync once more.
func (s *Server) enqueue() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Handler implements apiserver.Aggregated.
func (s *Server) Handler(gv schema.GroupVersion) http.Handler {
	if b := (*s.table.Load())[gv]; b != nil {
		return b
	}
	return nil
}

// Run syncs the APIServices until ctx ends, and returns when all its goroutines
// have ended. Before, the cache must be synced and SetResources called for the
// custom resource definitions. Run calls registered each time after a sync for
// which every served group version has an APIService.
func (s *Server) Run(ctx context.Context, d Discovery, registered func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer s.wait.Wait()
	defer cancel()
	if s.kind = s.Cache.At(objects.APIServices); s.kind == nil {
		return errors.New("apiservices are not among the resources")
	}
	s.starting = true
	s.watching = false
	clear(s.backends) // a former, failed run has ended them
	for ctx.Err() == nil {
		cursor, err := s.kind.Watch(s.kind.Snapshot().Revision)
		if errors.Is(err, watchcache.ErrRemoved) {
			return err
		}
		for err == nil {
			if s.sync(ctx, d) {
				registered()
			}
			_, _, err = cursor.Next(ctx, s.wake)
		}
		if ctx.Err() == nil && !errors.Is(err, store.ErrCompacted) {
			klog.FromContext(ctx).Error(err, "Reading the APIServices again")
		}
	}
	return nil
}

// registered returns the APIServices by name.
func (s *Server) registered() map[string]*watchcache.Entry {
	all := map[string]*watchcache.Entry{}
	s.kind.Snapshot().Ascend("", watchcache.Position{}, func(e *watchcache.Entry) bool {
		all[e.Name] = e
		return true
	})
	return all
}

// statusWrites is how many statuses are written concurrently.
const statusWrites = 64

// sync updates the APIServices, the backends, the proxy's table and discovery.
// It reports whether every served group version has its APIService.
func (s *Server) sync(ctx context.Context, d Discovery) (registered bool) {
	all := s.registered()
	registered = s.register(ctx, all)
	for name, b := range s.backends {
		e := all[name]
		if e == nil || !b.serves(e.Object.(*apiregistrationv1.APIService)) {
			s.stop(b)
			delete(s.backends, name)
		}
	}
	next := table{}
	writes := supervise.NewTasks(ctx)
	writes.SetLimit(statusWrites)
	var entries []discovery.APIService
	for name, e := range all {
		service := e.Object.(*apiregistrationv1.APIService)
		gv := schema.GroupVersion{Group: service.Spec.Group, Version: service.Spec.Version}
		entry := discovery.APIService{
			GroupVersion: gv,
			Priority:     resource.Priority{Group: service.Spec.GroupPriorityMinimum, Version: service.Spec.VersionPriority},
		}
		if service.Spec.Service == nil {
			writes.Go(func() error {
				return recovery.Call(ctx, "reporting APIService "+name, func() error { s.reportLocal(ctx, e); return nil })
			})
		} else {
			b := s.backends[name]
			if b == nil {
				b = s.start(ctx, service)
				s.backends[name] = b
			} else if available(service) == nil {
				b.checkSoon() // a client removed the condition
			}
			b.available.Store(isAvailable(service))
			next[gv] = b
			entry.Remote = b.description()
		}
		entries = append(entries, entry)
	}
	s.table.Store(&next)
	d.SetAPIServices(entries)
	_ = writes.Wait() // failures are retried
	return registered
}
