// Package apiserver serves the Kubernetes API over HTTP. A request passes the
// stages, each in a file of its own (request.go calls them), and then its verb:
//
//	info ─ audited ─ authenticate ─ impersonate ─┬─ with a body:     authorize ─ body ─ inflight ─┬─ dispatch ─┬─ verbs    get list watch create update patch delete
//	                                             └─ without a body:  inflight ─ authorize ────────┘            └─ actions  subresources, reviews and other virtual resources
//
// A body is read only for a user who may make the request, and before the
// request takes a seat, so that slow senders hold no seats (ADR 0042).
//
// Each part has a type of its own:
//
//	request     the stages                          response  the answer so far
//	operation   a verb, as for all resources        input   decodes the body and the options
//	action      what one resource does instead      output  answers in the negotiated media type
//	holdings    memory, slots, a seat               seat    a place among the requests in flight
//
// Package registry implements the verbs on objects and knows no HTTP. Packages
// pods, reviews and tokens implement actions. A stage that refuses a request
// returns an error, which fail turns into a metav1.Status (package status).
package apiserver

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/coracle-io/coracle/internal/apiserver/audit"
	"github.com/coracle-io/coracle/internal/apiserver/bodylimit"
	"github.com/coracle-io/coracle/internal/apiserver/componentstatus"
	"github.com/coracle-io/coracle/internal/apiserver/discovery"
	"github.com/coracle-io/coracle/internal/apiserver/fairness"
	"github.com/coracle-io/coracle/internal/apiserver/headers"
	"github.com/coracle-io/coracle/internal/apiserver/impersonation"
	"github.com/coracle-io/coracle/internal/apiserver/registry"
	"github.com/coracle-io/coracle/internal/apiserver/reviews"
	"github.com/coracle-io/coracle/internal/apiserver/tokens"
	"github.com/coracle-io/coracle/internal/compute"
	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/health"
	"github.com/coracle-io/coracle/internal/httpserver"
	"github.com/coracle-io/coracle/internal/memory"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// Config is the configuration of an API server, grouped by the parts that use
// it. Fields are required unless their comment says what their zero value
// means.
type Config struct {
	// Resources are served until SetResources is called.
	Resources []*resource.Resource
	// Registry holds what all requests share. The whole server uses its
	// authorizer, feature gates, clock and metrics.
	Registry registry.Config
	Access   AccessConfig
	Handlers HandlerConfig
	Health   HealthConfig
	Limits   LimitConfig
	HTTP     HTTPConfig
	// Memory refuses large requests that do not fit; nil guards the process's
	// own limit.
	Memory *memory.Budget
	// Observe is called for every answered request; nil counts them in the
	// metrics.
	Observe Observer
	// Tracer makes a span of every authenticated request; nil makes none.
	Tracer trace.Tracer
}

// AccessConfig configures authentication, the answers about rights and the audit
// log.
type AccessConfig struct {
	Authenticator authenticator.Request
	// Credentials are the headers that authenticate clients. They are removed
	// after authentication. Authorization and the headers of a front proxy are
	// always removed.
	Credentials headers.Set
	// Tokens answers TokenReviews; if nil, no token is valid.
	Tokens authenticator.Token
	// Audiences are the API server's own, for tokens that name an audience.
	Audiences authenticator.Audiences
	// Rules answers SelfSubjectRulesReviews; if nil, rules are unknown.
	Rules authorizer.RuleResolver
	// Audit records requests; nil records none.
	Audit *audit.Auditor
	// ServiceAccountTokens issues the tokens of serviceaccounts/token; if nil,
	// that subresource does not exist.
	ServiceAccountTokens tokens.Issuer
}

// HandlerConfig says what answers requests that are not about stored objects.
type HandlerConfig struct {
	// Connect serves the subresources that reach into nodes and pods (log,
	// exec, attach, portforward, proxy); nil refuses them.
	Connect Connector
	// Aggregated finds the servers behind APIServices; nil knows none.
	Aggregated Aggregated
	// NodeAndPodMetrics answers the group metrics.k8s.io; nil refuses it.
	NodeAndPodMetrics Metrics
	// Paths are the handlers of paths outside the API, such as OpenAPI and token
	// keys. A key that ends in a slash is a prefix; the longest one wins. The
	// server adds version, health and metrics.
	Paths map[string]http.Handler
}

// HealthConfig says what makes the server live and ready.
type HealthConfig struct {
	// Checks are conditions of /readyz and /healthz besides the server's own.
	Checks []health.Check
	// Steps are the steps of the server's start, for /livez, too.
	Steps []health.Check
	// LivezGracePeriod is how long after New /livez assumes that Steps are
	// finished.
	LivezGracePeriod time.Duration
	// Components are the addresses (host:port) of the health endpoints of other
	// components by name, for the list of component statuses.
	Components map[string]string
}

// LimitConfig bounds the requests in number and time. A number that is 0 is no
// bound.
type LimitConfig struct {
	// PriorityAndFairness divides the sum of MaxInFlight and MaxMutatingInFlight,
	// which must not be 0 then, among priority levels. Otherwise each bounds the
	// requests of its kind that are served at a time, except long-running ones.
	PriorityAndFairness bool
	MaxInFlight         int // reading requests
	MaxMutatingInFlight int
	// RequestTimeout bounds every request that is not long-running. It must be
	// positive.
	RequestTimeout time.Duration
	// MinRequestTimeout is the least number of seconds that a watch without a
	// timeout of its own lasts. It lasts at most twice as long.
	MinRequestTimeout int
	// ShutdownGrace is how long requests in flight may take to finish when the
	// server ends.
	ShutdownGrace time.Duration
}

// defaultShutdownGrace leaves other parts time to end after the requests: the
// supervisor gives the control plane six seconds.
const defaultShutdownGrace = 4 * time.Second

// DefaultLimits returns upstream's defaults, and a grace for the shutdown.
func DefaultLimits() LimitConfig {
	return LimitConfig{PriorityAndFairness: true, MaxInFlight: 400, MaxMutatingInFlight: 200, RequestTimeout: time.Minute, MinRequestTimeout: 1800, ShutdownGrace: defaultShutdownGrace}
}

// seats returns how many requests are served at a time with priority and fairness.
func (c *LimitConfig) seats() int { return c.MaxInFlight + c.MaxMutatingInFlight }

// HTTPConfig says how the server speaks HTTP.
type HTTPConfig struct {
	// GoawayChance is the share of HTTP/2 requests after which the client is
	// asked to connect again. Requests in flight continue.
	GoawayChance float64
	// MaxStreamsPerConnection is how many requests an HTTP/2 connection
	// carries at a time; 0 is 250.
	MaxStreamsPerConnection int
	// AllowedOrigins are patterns of origins for CORS.
	AllowedOrigins []string
	// StrictTransportSecurity are the directives of that header; none omits it.
	StrictTransportSecurity []string
}

// Aggregated finds the aggregated API servers of group versions.
type Aggregated interface {
	// Handler returns what proxies to the aggregated server, or nil if this
	// server serves the group version. The handler expects the user in the
	// request's context.
	Handler(schema.GroupVersion) http.Handler
}

// Metrics has what nodes and pods use, by kind: NodeMetrics or PodMetrics.
type Metrics interface {
	List(kind, namespace string, options *internalversion.ListOptions) []*watchcache.Entry
	// Get returns false if there are no metrics of the object.
	Get(kind, namespace, name string) (*watchcache.Entry, bool)
}

const (
	defaultMaxStreams = 250
	maxBodySize       = 3 << 20
)

// Server answers the API over its resources.
type Server struct {
	registry *registry.Registry
	access   AccessConfig
	handlers HandlerConfig // with the paths that the server adds
	limits   LimitConfig
	http     HTTPConfig
	observe  Observer
	tracer   trace.Tracer // nil without tracing
	cbor     bool         // CBOR is among the media types of requests and answers
	updateMu sync.Mutex   // serializes what changes the registry and discovery

	fairness          *fairness.Controller // nil without priority and fairness
	reading, mutating inFlight
	memory            *memory.Budget
	bodies            *bodylimit.Limiter
	largeRequests     *compute.Queue // of large requests, those with seats
	processors        *compute.Queue // and those that compute
	onward            *httpserver.ProxyLimiter
	discovery         *discovery.Documents
	impersonation     *impersonation.Impersonator
	reviews           *reviews.Reviewer
	components        componentstatus.Checks
	stop              atomic.Pointer[context.Context] // ends when the server shuts down
	leaving           atomic.Bool                     // not ready any more
}

// New makes a server. It is ready to answer when the cache is running.
func New(c Config) (*Server, error) {
	switch {
	case c.Registry.Cache == nil:
		return nil, errors.New("apiserver: no cache is configured")
	case c.Access.Authenticator == nil || c.Registry.Authorizer == nil:
		return nil, errors.New("apiserver: an authenticator and an authorizer are needed")
	case c.Limits.RequestTimeout <= 0:
		return nil, errors.New("apiserver: a timeout of requests is needed")
	case c.Limits.PriorityAndFairness && c.Limits.seats() == 0:
		return nil, errors.New("apiserver: priority and fairness has no requests in flight to divide")
	}
	c.HTTP.MaxStreamsPerConnection = cmp.Or(c.HTTP.MaxStreamsPerConnection, defaultMaxStreams)
	c.Access.Credentials = headers.FrontProxy().With(c.Access.Credentials.Names, c.Access.Credentials.Prefixes)
	if c.Access.Audit != nil {
		c.Registry.Admission = admission.WithAudit(c.Registry.Admission)
	}
	if c.Memory == nil {
		c.Memory = memory.NewBudget(memory.ProcessLimit())
	}
	s := &Server{
		registry: registry.New(c.Registry, c.Resources), access: c.Access, handlers: c.Handlers, limits: c.Limits, http: c.HTTP, observe: c.Observe, tracer: c.Tracer,
		cbor: c.Registry.Features.Enabled(feature.CBORServingAndStorage), memory: c.Memory,
		bodies: bodylimit.New(bodiesTotal), onward: httpserver.NewProxyLimiter(),
		discovery: discovery.New(c.Resources, c.Registry.Features.Enabled(feature.StorageVersionHash)),
	}
	if s.observe == nil {
		s.observe = s.count
	}
	s.largeRequests = compute.NewQueue(largeUnderWay, largeOfTenant, 0)
	processors := max(1, runtime.GOMAXPROCS(0)/2)
	s.processors = compute.NewQueue(processors, processors+1, largeLease)
	if c.Limits.PriorityAndFairness {
		s.fairness = fairness.New(fairness.Config{
			Seats: c.Limits.seats(), QueueTimeout: c.Limits.RequestTimeout / 4, Clock: s.registry.Clock, Metrics: s.registry.Metrics.Fairness,
		})
	}
	s.reading.limit, s.mutating.limit = int64(c.Limits.MaxInFlight), int64(c.Limits.MaxMutatingInFlight)
	background := context.Background()
	s.stop.Store(&background)
	s.reviews = &reviews.Reviewer{Tokens: c.Access.Tokens, Audiences: c.Access.Audiences, Authorizer: c.Registry.Authorizer, Rules: c.Access.Rules}
	s.components = componentstatus.NewChecks(s.checkStore, c.Health.Components)
	s.impersonation = impersonation.NewImpersonator(c.Registry.Authorizer, c.Registry.Features.Enabled(feature.ConstrainedImpersonation))
	s.addOperationHandlers(&c.Health)
	return s, nil
}

// Fairness returns the controller of priority and fairness, or nil without it. It
// is for the caller to run and to configure.
func (s *Server) Fairness() *fairness.Controller { return s.fairness }

// Handler serves requests without a listener.
func (s *Server) Handler() http.Handler { return s }

// SetResources replaces the served resources, for custom resources that are
// added or removed. Requests in flight finish with the old ones. Stored resources
// must be in the cache already.
func (s *Server) SetResources(rs []*resource.Resource) {
	s.updateMu.Lock()
	defer s.updateMu.Unlock()
	s.registry.SetResources(rs)
	s.discovery.Set(rs)
}

// SetAPIServices replaces the APIServices that discovery lists.
func (s *Server) SetAPIServices(services []discovery.APIService) {
	s.discovery.SetAPIServices(services)
}
