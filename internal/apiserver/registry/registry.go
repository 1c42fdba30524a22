// Package registry implements the operations on API objects. It corresponds
// to upstream's generic registry (k8s.io/apiserver/pkg/registry) and is
// independent of HTTP: the request path above it reads bodies and sends
// responses, and other parts of the server use it for their own writes.
//
//	Request.Create ────────────────┬─ field managers ─ admission mutates ─ PrepareForCreate or
//	Request.Update, Patch, Scale ──┘  PrepareUpdate ─ ValidateCreate or ValidateUpdate ─
//	   └ UpdateUnchecked              admission validates ────────────────► watchcache ─► store
//	Request.Delete ─ admission ─ BeforeDelete ─ mark or delete ───────────►
//	Request.Get, List ◄─ snapshot ◄─────────────────────────────────────── watchcache
//
// Package resource has what is done to the object: PrepareUpdate and others.
//
// A Registry holds what all requests share. A Request is one operation of a
// user on an Endpoint, which is a resource in one of its versions.
package registry

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/apiserver/codec"
	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/metrics"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// Config holds what the requests of a server share. Fields are required unless
// their comment says what their zero value means.
type Config struct {
	Cache *watchcache.Cache
	// Authorizer says what users may do. The request path asks it about the
	// request, and the registry where the answer depends on the content of an
	// object.
	Authorizer authorizer.UnconditionalAuthorizer
	// Admission mutates and validates writes; nil admits everything.
	Admission admission.Interface
	// Managers tracks the ownership of fields; nil leaves managedFields as
	// stored.
	Managers FieldManagers
	// Lifecycles take part in the writes of their resources.
	Lifecycles map[schema.GroupResource]Lifecycle
	// AllowPrivileged allows privileged containers.
	AllowPrivileged bool
	// GarbageCollector says that one runs, so that deletions may wait for it.
	GarbageCollector bool

	// Features are the feature gates; nil means the defaults.
	Features *feature.Set
	// Clock is the wall clock if nil.
	Clock clock.PassiveClock
	// Metrics counts what the server does; nil means a new set.
	Metrics *metrics.APIServer
}

// Registry holds what the requests of a server share. It is safe for
// concurrent use.
type Registry struct {
	Config
	slots  codec.Slots
	routes atomic.Pointer[Routes]
	change sync.Mutex // serializes the writers of routes
	// webhooks are the kinds of admission webhook configurations.
	webhooks []*watchcache.Kind
}

// New returns a registry that serves resources until SetResources is called. The
// cache must be running before requests are made.
func New(c Config, resources []*resource.Resource) *Registry {
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Metrics == nil {
		c.Metrics = metrics.NewAPIServer(c.Features)
	}
	g := &Registry{Config: c}
	g.routes.Store((&Routes{}).replaced(g, resources))
	for _, path := range []string{objects.MutatingWebhooks, objects.ValidatingWebhooks} {
		if kind := c.Cache.At(path); kind != nil {
			g.webhooks = append(g.webhooks, kind)
		}
	}
	return g
}

// Routes returns the endpoints that are served now.
func (g *Registry) Routes() *Routes { return g.routes.Load() }

// SetResources replaces the served resources. Requests in flight finish with
// the former ones. The cache must already have the stored resources.
func (g *Registry) SetResources(rs []*resource.Resource) {
	g.change.Lock()
	defer g.change.Unlock()
	g.routes.Store(g.routes.Load().replaced(g, rs))
}

// Request is one operation on an endpoint. It must not be used concurrently.
type Request struct {
	Registry    *Registry
	Endpoint    *Endpoint
	Subresource *resource.Subresource // nil for the object itself

	Context context.Context // ends with the request's deadline
	// Info says what is requested, and for which object or collection.
	Info apirequest.RequestInfo
	User user.Info
	// UserAgent determines the field manager of writes that give none.
	UserAgent string
	// Now is the start of the request.
	Now time.Time
	// Warnings receives warnings for the client; nil drops them.
	Warnings warning.Recorder
	// WebhookLatency is the time that webhooks took, once admission has
	// begun; nil if there are none.
	WebhookLatency *apirequest.LatencyTrackers
}

// Namespace returns the namespace of the object that the request names. For
// requests for a Namespace, authorization uses the name in the path as the
// namespace, but the object has none.
func (q *Request) Namespace() string {
	if !q.Endpoint.Resource.Namespaced {
		return ""
	}
	return q.Info.Namespace
}

// warn sends a warning to the client.
func (q *Request) warn(text string) {
	if q.Warnings != nil {
		q.Warnings.AddWarning("", text)
	}
}
