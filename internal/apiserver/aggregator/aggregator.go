// Package aggregator lets other API servers serve part of the API. An
// APIService (apiregistration.k8s.io/v1) names a group version and the Service
// whose server answers for it; one without a Service says that this server
// does.
//
//	APIServices ──► Server.sync ─┬─► autoregister: one for each group version of custom resources
//	                             ├─► table: group version ─► backend ─► proxy
//	                             └─► discovery, in the order of the priorities
//
//	backend, one for each APIService with a Service:
//	  check ─► Available condition ─► discovery of the server ─► its OpenAPI documents
//	    ▲ every 30 s, and when the Service, its EndpointSlices or a proxied request say so
//
// A proxied request carries who sent it in the X-Remote-* headers and is
// authenticated by the front proxy's client certificate.
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
	"github.com/coracle-io/coracle/internal/apiserver/guard"
	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/apiserver/reach"
	"github.com/coracle-io/coracle/internal/apiserver/registry"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/supervise"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// Documents takes the OpenAPI documents of aggregated servers.
type Documents interface {
	// SetV2 adds a part to the version 2 document; a nil render takes it out.
	SetV2(name string, render func() (*spec.Swagger, error))
	// SetV3 publishes a version 3 document, of which tag says what it is made
	// of; a nil render takes it out.
	SetV3(path, tag string, render func() ([]byte, error))
	// SetV3Remote publishes the documents that h answers for, by path, with
	// their URLs; no paths take them out.
	SetV3Remote(name string, urls map[string]string, h http.Handler)
}

// Discovery is told what APIServices register.
type Discovery interface {
	SetAPIServices([]discovery.APIService)
}

// Config says what an aggregator works on. Fields are required unless their
// comment says otherwise.
type Config struct {
	Cache *watchcache.Cache
	// BuiltIn are the resources that this server brings.
	BuiltIn []*resource.Resource
	// ClientCertificate authenticates this server as a front proxy.
	ClientCertificate func(*tls.CertificateRequestInfo) (*tls.Certificate, error)
	// Documents may be nil.
	Documents Documents
	// Managers records who owns the fields of a status; nil records nothing.
	Managers registry.FieldManagers
	Clock    clock.Clock
	// Unavailable counts how often an APIService became unavailable, by name
	// and reason; nil counts nowhere.
	Unavailable *prometheus.CounterVec
	// Dial connects to the servers; nil is the network.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Server proxies to the servers behind APIServices. It implements
// apiserver.Aggregated.
type Server struct {
	Config
	services *reach.Services
	table    atomic.Pointer[table]
	local    atomic.Pointer[resource.GroupVersions] // of custom resources
	builtIn  resource.GroupVersions
	wake     chan struct{} // has room for one

	// The following belong to Run's goroutine.
	kind     *watchcache.Kind
	starting bool // nothing has been registered yet
	backends map[string]*backend
	wait     supervise.WaitGroup
	watching bool
}

// table finds backends by group version. It never changes.
type table map[schema.GroupVersion]*backend

// New makes an aggregator; Run must follow.
func New(c Config) *Server {
	s := &Server{
		Config:   c,
		services: reach.New(objects.Cache{Cache: c.Cache}),
		builtIn:  resource.Served(c.BuiltIn),
		wake:     make(chan struct{}, 1),
		backends: map[string]*backend{},
	}
	s.table.Store(&table{})
	s.local.Store(&resource.GroupVersions{})
	return s
}

// SetResources tells which resources this server serves, for the APIServices
// of custom ones.
func (s *Server) SetResources(rs []*resource.Resource) {
	custom := resource.Served(rs)
	for gv := range s.builtIn {
		delete(custom, gv)
	}
	s.local.Store(&custom)
	s.again()
}

// again asks Run to look at everything once more.
func (s *Server) again() {
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

// Run follows the APIServices until ctx ends, and returns when everything
// that it started has ended. The cache must be synced, and the resources of
// the custom resource definitions be set. registered is called each time there
// is an APIService for everything that is served and all are followed.
func (s *Server) Run(ctx context.Context, d Discovery, registered func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer s.wait.Wait()
	defer cancel()
	if s.kind = s.Cache.At(objects.APIServices); s.kind == nil {
		return errors.New("apiservices are not among the resources")
	}
	s.starting = true
	s.watching = false
	clear(s.backends) // those of a run that failed have ended with it
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
			klog.FromContext(ctx).Error(err, "Reading the APIServices anew")
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

// settlingInFlight is how many statuses are written at a time.
const settlingInFlight = 64

// sync makes the backends, what is routed and what discovery says what the
// APIServices say. registered says that all are there that must be.
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
	settling := supervise.Apart(ctx)
	settling.SetLimit(settlingInFlight)
	var entries []discovery.APIService
	for name, e := range all {
		service := e.Object.(*apiregistrationv1.APIService)
		gv := schema.GroupVersion{Group: service.Spec.Group, Version: service.Spec.Version}
		entry := discovery.APIService{
			GroupVersion: gv,
			Priority:     resource.Priority{Group: service.Spec.GroupPriorityMinimum, Version: service.Spec.VersionPriority},
		}
		if service.Spec.Service == nil {
			settling.Go(func() error {
				return guard.Call(ctx, "settling APIService "+name, func() error { s.settleLocal(ctx, e); return nil })
			})
		} else {
			b := s.backends[name]
			if b == nil {
				b = s.start(ctx, service)
				s.backends[name] = b
			} else if available(service) == nil {
				b.checkSoon() // somebody wrote the status without the condition
			}
			b.available.Store(isAvailable(service))
			next[gv] = b
			entry.Remote = b.described()
		}
		entries = append(entries, entry)
	}
	s.table.Store(&next)
	d.SetAPIServices(entries)
	_ = settling.Wait() // failures are tried again
	return registered
}
