// Package registry carries out what clients ask of API objects. It is the
// place of upstream's generic registry (k8s.io/apiserver/pkg/registry) and is
// free of HTTP: the request path above it reads bodies and sends answers, and
// parts of the server use it for writes of their own.
//
//	Request.Create ────────────────┐
//	Request.Update, Patch, Scale ──┼─ field managers ─ admission mutates ─ BeforeCreate,
//	   └ GuaranteedUpdate          │  BeforeUpdate ─ admission validates ─► watchcache ─► store
//	Request.Delete ─ admission ─ beforeDelete ─ mark or delete ────────────►
//	Request.Get, List ◄─ snapshot ◄──────────────────────────────────────── watchcache
//
// A Registry holds what all requests share. A Request is one call: who asks,
// for what, upon which endpoint, that is a resource in one of its versions.
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

// Config is what a registry is made of. Fields without a comment that says
// otherwise are required.
type Config struct {
	Resources []*resource.Resource
	Cache     *watchcache.Cache
	// Authorizer decides on rights that follow from what an object says.
	Authorizer authorizer.UnconditionalAuthorizer
	// Admission changes and checks writes; nil admits everything.
	Admission admission.Interface
	// Managers tracks the ownership of fields; nil keeps what is stored.
	Managers FieldManagers
	// Lifecycles take part in the writes of resources.
	Lifecycles map[schema.GroupResource]Lifecycle
	// Features are what the rules of kinds may use; nil is the defaults.
	Features *feature.Set
	Clock    clock.PassiveClock
	// Metrics measures admission.
	Metrics *metrics.Admission
}

// Registry is what the requests of a server share. It may be used by many
// goroutines.
type Registry struct {
	Config
	slots  codec.Slots
	routes atomic.Pointer[Routes]
	change sync.Mutex // serializes the writers of routes
	// webhooks are the kinds that make admission ask others.
	webhooks []*watchcache.Kind
}

// New makes a registry of the configuration's resources. It serves when the
// cache is running.
func New(c Config) *Registry {
	g := &Registry{Config: c}
	g.routes.Store((&Routes{}).replaced(g, c.Resources))
	for _, path := range []string{objects.MutatingWebhooks, objects.ValidatingWebhooks} {
		if kind := c.Cache.At(path); kind != nil {
			g.webhooks = append(g.webhooks, kind)
		}
	}
	return g
}

// Routes are the endpoints that are served now.
func (g *Registry) Routes() *Routes { return g.routes.Load() }

// SetResources replaces the resources that are served. Requests under way
// finish with what they began with. The stored ones must be in the cache already.
func (g *Registry) SetResources(rs []*resource.Resource) {
	g.change.Lock()
	defer g.change.Unlock()
	g.routes.Store(g.routes.Load().replaced(g, rs))
}

// Request is one call upon an endpoint. It is for one goroutine.
type Request struct {
	Registry    *Registry
	Endpoint    *Endpoint
	Subresource *resource.Subresource // nil for the object itself

	Context context.Context // ends with the request's deadline
	// Info says what is asked for, and about which object or collection.
	Info apirequest.RequestInfo
	User user.Info
	// UserAgent names the field manager of writes that do not give one.
	UserAgent string
	// Now is when the request began.
	Now time.Time
	// Warnings takes what the client should be told besides the answer; nil
	// drops it.
	Warnings warning.Recorder
	// WebhookLatency is how long users' webhooks took, once admission has
	// begun; nil if there are none.
	WebhookLatency *apirequest.LatencyTrackers
}

// Namespace is the one of the object that the request names. For a Namespace
// the path names itself as the namespace of what is below it, which counts
// for authorization, but the object has none.
func (q *Request) Namespace() string {
	if !q.Endpoint.Resource.Namespaced {
		return ""
	}
	return q.Info.Namespace
}

// warn tells the client something besides the answer.
func (q *Request) warn(text string) {
	if q.Warnings != nil {
		q.Warnings.AddWarning("", text)
	}
}
