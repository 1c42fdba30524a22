// Package apiserver answers the Kubernetes API over HTTP. A request passes the
// stages, each in a file of its own, and then its verb:
//
//	info ─ authenticate ─ audit ─ impersonate ─ authorize ─ receive ─ inflight ─ dispatch ─┬─ verbs    get list watch create update patch delete
//	                                                                                       └─ actions  subresources, reviews and other virtual resources
//
// Each part has a type that is as wide as its work:
//
//	request     the stages            response  what has been answered
//	operation   a verb on an endpoint  output    answers in the negotiated form
//	action      an operation that is not a plain verb
//	seat        a place among the requests that are served
//
// What a verb does to objects is in the registry package, which knows no HTTP;
// pods, reviews and tokens carry out actions upon it. A stage that refuses
// returns an error, which fail turns into a metav1.Status (package status).
package apiserver

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/apiserver/audit"
	"github.com/coracle-io/coracle/internal/apiserver/componentstatus"
	"github.com/coracle-io/coracle/internal/apiserver/discovery"
	"github.com/coracle-io/coracle/internal/apiserver/fairness"
	"github.com/coracle-io/coracle/internal/apiserver/headers"
	"github.com/coracle-io/coracle/internal/apiserver/health"
	"github.com/coracle-io/coracle/internal/apiserver/impersonation"
	"github.com/coracle-io/coracle/internal/apiserver/intake"
	"github.com/coracle-io/coracle/internal/apiserver/registry"
	"github.com/coracle-io/coracle/internal/apiserver/reviews"
	"github.com/coracle-io/coracle/internal/apiserver/tokens"
	"github.com/coracle-io/coracle/internal/compute"
	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/httpserver"
	"github.com/coracle-io/coracle/internal/memory"
	"github.com/coracle-io/coracle/internal/metrics"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// Config is what an API server is made of. Fields without a comment that says
// otherwise are required.
type Config struct {
	Resources []*resource.Resource
	Cache     *watchcache.Cache

	Authenticator authenticator.Request
	// Credentials are the headers by which senders are known, which nothing
	// behind the authenticator sees; the usual ones are always among them.
	Credentials headers.Set
	// Tokens answers TokenReviews; nil says that no token is known.
	Tokens authenticator.Token
	// Audiences are the API server's own, for tokens that name an audience.
	Audiences  authenticator.Audiences
	Authorizer authorizer.UnconditionalAuthorizer
	// Rules answers SelfSubjectRulesReviews; nil says that rules are unknown.
	Rules authorizer.RuleResolver
	// Features are what the rules of kinds may use; nil is the defaults.
	Features *feature.Set
	// Audit records requests; nil records none.
	Audit *audit.Auditor
	// Admission changes and checks writes; nil admits everything.
	Admission admission.Interface
	// Managers tracks the ownership of fields; nil keeps what is stored.
	Managers registry.FieldManagers
	// ServiceAccountTokens issues the tokens of serviceaccounts/token; nil
	// answers that there are none.
	ServiceAccountTokens tokens.Issuer
	// Connect answers the subresources that reach into nodes and pods (log,
	// exec, attach, portforward, proxy); nil says that there are none.
	Connect Connector
	// Lifecycles take part in the writes of resources.
	Lifecycles map[schema.GroupResource]registry.Lifecycle

	// Handlers answer paths outside the API by their longest prefix that ends
	// in a slash, or the whole path: OpenAPI, token keys. Version, health and
	// metrics are there without them.
	Handlers map[string]http.Handler
	// Checks are conditions of /readyz and /healthz besides the server's own.
	Checks []health.Check
	// Steps are how far the server's start is, for /livez, too.
	Steps []health.Check
	// LivezGracePeriod is how long after New /livez takes Steps for finished.
	LivezGracePeriod time.Duration
	// Aggregated finds the servers behind APIServices; nil knows none.
	Aggregated Aggregated

	// Fairness decides whose request is served when; nil bounds the requests
	// that are served at a time by MaxInFlight and MaxMutatingInFlight,
	// long-running ones aside: 0 is upstream's default, below is no bound.
	Fairness                         *fairness.Controller
	MaxInFlight, MaxMutatingInFlight int
	// Memory refuses large requests that do not fit; nil is a guard of the
	// process's own limit.
	Memory *memory.Guard
	// RequestTimeout bounds every request that is not long-running; 0 is a minute.
	RequestTimeout time.Duration
	// MinRequestTimeout is the least that a watch without a timeout lasts; 0 is 30 minutes.
	MinRequestTimeout time.Duration
	// GoawayChance is the share of HTTP/2 requests after which the client is
	// told to connect anew; requests under way are not disturbed.
	GoawayChance float64
	// MaxStreamsPerConnection is how many requests an HTTP/2 connection
	// carries at a time; 0 is 250.
	MaxStreamsPerConnection int
	// AllowedOrigins are patterns of the origins whose scripts may ask.
	AllowedOrigins []string
	// StrictTransportSecurity are the directives of that header; none is no header.
	StrictTransportSecurity []string
	// CBOR adds CBOR to the media types that clients may send and ask for.
	CBOR bool
	// Clock is the wall clock if nil.
	Clock clock.PassiveClock
	// Components are the addresses (host:port) of the HTTPS servers that say
	// whether the other parts of the control plane are healthy, by name, for
	// the list of component statuses.
	Components map[string]string
	// Metrics counts what the server does; nil is a set of its own.
	Metrics *metrics.APIServer
	// Observe is told of every answered request; nil counts them in Metrics.
	Observe Observer
}

// Aggregated finds who answers for a group version in place of this server.
type Aggregated interface {
	// Handler returns nil for a group version that this server answers for
	// itself. The handler finds the user in the request's context.
	Handler(schema.GroupVersion) http.Handler
}

const (
	defaultMaxInFlight         = 400
	defaultMaxMutatingInFlight = 200
	defaultRequestTimeout      = time.Minute
	defaultMinRequestTimeout   = 30 * time.Minute
	defaultMaxStreams          = 250
	maxBodySize                = 3 << 20
)

// Server answers the API over its resources.
type Server struct {
	Config
	registry *registry.Registry
	change   sync.Mutex // serializes what changes the registry and discovery

	reading, mutating inFlight
	intake            *intake.Intake
	underWay          *compute.Queue // of large requests, those with seats
	processors        *compute.Queue // and those that compute
	onward            *httpserver.Onward
	discovery         *discovery.Documents
	impersonation     *impersonation.Gate
	reviews           *reviews.Reviewer
	components        componentstatus.Checks
	stop              atomic.Pointer[context.Context] // ends when the server shuts down
	leaving           atomic.Bool                     // not ready any more
}

// New makes a server. It is ready to answer when the cache is running.
func New(c Config) (*Server, error) {
	switch {
	case c.Cache == nil:
		return nil, errors.New("apiserver: no cache is configured")
	case c.Authenticator == nil || c.Authorizer == nil:
		return nil, errors.New("apiserver: an authenticator and an authorizer are needed")
	}
	if c.MaxInFlight == 0 {
		c.MaxInFlight = defaultMaxInFlight
	}
	if c.Memory == nil {
		c.Memory = memory.NewGuard(memory.ProcessLimit())
	}
	if c.MaxMutatingInFlight == 0 {
		c.MaxMutatingInFlight = defaultMaxMutatingInFlight
	}
	if c.RequestTimeout == 0 {
		c.RequestTimeout = defaultRequestTimeout
	}
	if c.MinRequestTimeout == 0 {
		c.MinRequestTimeout = defaultMinRequestTimeout
	}
	if c.MaxStreamsPerConnection == 0 {
		c.MaxStreamsPerConnection = defaultMaxStreams
	}
	c.Credentials = headers.FrontProxy().With(c.Credentials.Names, c.Credentials.Prefixes)
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Metrics == nil {
		c.Metrics = metrics.NewAPIServer(c.Features)
	}
	if c.Audit != nil {
		c.Admission = admission.WithAudit(c.Admission)
	}
	s := &Server{Config: c, intake: intake.New(intakeOfAll), onward: httpserver.NewOnward()}
	s.underWay = compute.NewQueue(largeUnderWay, largeOfTenant, 0)
	processors := max(1, runtime.GOMAXPROCS(0)/2)
	s.processors = compute.NewQueue(processors, processors+1, largeLease)
	s.reading.limit, s.mutating.limit = int64(c.MaxInFlight), int64(c.MaxMutatingInFlight)
	background := context.Background()
	s.stop.Store(&background)
	s.registry = registry.New(registry.Config{
		Resources: c.Resources, Cache: c.Cache, Authorizer: c.Authorizer, Admission: c.Admission, Managers: c.Managers,
		Lifecycles: c.Lifecycles, Features: c.Features, Clock: c.Clock, Metrics: c.Metrics.Admission,
	})
	s.reviews = &reviews.Reviewer{Tokens: c.Tokens, Audiences: c.Audiences, Authorizer: c.Authorizer, Rules: c.Rules}
	s.components = componentstatus.NewChecks(s.checkStore, c.Components)
	s.addOperations()
	s.discovery = discovery.New(c.Resources)
	s.impersonation = impersonation.NewGate(c.Authorizer, c.Features.Enabled("ConstrainedImpersonation"))
	return s, nil
}

// Handler answers requests without a listener.
func (s *Server) Handler() http.Handler { return s }

// SetResources replaces the resources that are served, for custom resources
// that come and go. Requests under way finish with what they began with. The
// stored ones must be in the cache already.
func (s *Server) SetResources(rs []*resource.Resource) {
	s.change.Lock()
	defer s.change.Unlock()
	s.registry.SetResources(rs)
	s.discovery.Set(rs)
}

// SetAPIServices replaces what discovery knows of APIServices.
func (s *Server) SetAPIServices(services []discovery.APIService) {
	s.discovery.SetAPIServices(services)
}
