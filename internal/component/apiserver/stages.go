package apiserver

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/apiserver"
	"github.com/coracle-io/coracle/internal/apiserver/admission"
	"github.com/coracle-io/coracle/internal/apiserver/aggregator"
	"github.com/coracle-io/coracle/internal/apiserver/apply"
	"github.com/coracle-io/coracle/internal/apiserver/authn"
	"github.com/coracle-io/coracle/internal/apiserver/authn/serviceaccount"
	"github.com/coracle-io/coracle/internal/apiserver/authz"
	"github.com/coracle-io/coracle/internal/apiserver/bootstrap"
	"github.com/coracle-io/coracle/internal/apiserver/crd"
	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/apiserver/openapi"
	"github.com/coracle-io/coracle/internal/apiserver/registry"
	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/memory"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/all"
	"github.com/coracle-io/coracle/internal/resource/runtimeconfig"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/store/encrypt"
	"github.com/coracle-io/coracle/internal/store/measured"
	"github.com/coracle-io/coracle/internal/store/prefixed"
	"github.com/coracle-io/coracle/internal/watchcache"
	"github.com/coracle-io/coracle/internal/watchcache/collector"
)

// apis are the built-in resources that --runtime-config and --feature-gates
// select.
type apis struct {
	features  *feature.Set
	usual     []*resource.Resource // served by default
	resources []*resource.Resource // served
	versions  resource.GroupVersions
}

func (a *Server) chooseAPIs(ctx context.Context) error {
	features, err := feature.Parse(a.options.APIs.FeatureGates)
	if err != nil {
		return err
	}
	for _, warning := range features.Warnings() {
		klog.FromContext(ctx).Info(warning)
	}
	usual := all.All()
	served, err := runtimeconfig.Serve(usual, a.options.APIs.RuntimeConfig, features)
	if err != nil {
		return err
	}
	for _, r := range served {
		if r.Storage.TTL > 0 { // events
			r.Storage.TTL = a.options.Storage.EventTTL
		}
	}
	a.apis = apis{features: features, usual: usual, resources: served, versions: resource.Served(served)}
	return nil
}

// byPath returns the served resources by storage path.
func (a *apis) byPath() map[string]schema.GroupResource {
	resources := map[string]schema.GroupResource{}
	for _, r := range a.resources {
		resources[r.Storage.Path] = r.GroupResource()
	}
	return resources
}

// storage is the store of objects and the watch cache over it.
type storage struct {
	store *measured.Store
	// encryption is the layer of store that --encryption-provider-config
	// configures, or nil.
	encryption *encrypt.Store
	cache      *watchcache.Cache
}

// historyShare is the divisor of the process's memory that superseded objects
// may take.
const historyShare = 8

func (a *Server) openStorage(ctx context.Context, s store.Store) error {
	under := prefixed.New(s, a.options.Storage.Prefix)
	if a.options.Storage.EncryptionConfig != "" {
		encrypted, err := a.options.Storage.encrypted(ctx, under, a.apis.byPath())
		if err != nil {
			return err
		}
		under, a.storage.encryption = encrypted, encrypted
	}
	a.storage.store = measured.New(a.traces.store(under), a.metrics.Store, watchcache.Prefix, a.apis.byPath())
	a.storage.cache = watchcache.New(a.storage.store, a.apis.resources)
	a.storage.cache.LimitHistory(memory.ProcessLimit() / historyShare)
	a.startup = newStartup(a.storage.cache.Synced())
	a.metrics.MustRegister(collector.Cache{Cache: a.storage.cache}, measured.NewSize(s))
	return nil
}

// objects returns readers of the cache.
func (s *storage) objects() objects.Cache { return objects.Cache{Cache: s.cache} }

// refresh waits until the cache has the current revision of the store.
func (s *storage) refresh(ctx context.Context) error {
	_, err := s.cache.Fresh(ctx)
	return err
}

// identity is authentication and authorization.
type identity struct {
	// clientCA and frontProxyCA are published to aggregated API servers.
	clientCA, frontProxyCA trusted
	frontProxy             *authn.FrontProxy
	issuer                 *serviceaccount.Issuer // of service account tokens
	tokenUses              *serviceaccount.Uses
	audiences              authenticator.Audiences
	authenticators         *authn.Authenticators
	authorizer             *authz.Authorizer
}

func (a *Server) newIdentity(ctx context.Context) error {
	o, who := a.options, &a.identity
	tokens, err := o.ServiceAccounts.options(a.keys)
	if err != nil {
		return err
	}
	who.tokenUses = serviceaccount.NewUses()
	tokens.Objects, tokens.Refresh, tokens.Uses, tokens.Counts = a.storage.objects(), a.storage.refresh, who.tokenUses, a.metrics.Tokens
	tokens.OtherUIDs = !a.apis.features.Enabled(feature.TokenRequestServiceAccountUIDValidation)
	who.issuer = serviceaccount.NewIssuer(tokens)
	who.audiences = authenticator.Audiences(tokens.Audiences)
	if who.clientCA, err = a.trust("client-ca-file", o.Authentication.ClientCAFile, a.keys.Cluster()); err != nil {
		return err
	}
	if who.frontProxyCA, err = a.trust("requestheader-client-ca-file", o.FrontProxy.ClientCAFile, a.keys.FrontProxy()); err != nil {
		return err
	}
	if err := o.FrontProxy.checkAuthorities(who.clientCA.pem(), who.frontProxyCA.pem()); err != nil {
		return err
	}
	who.frontProxy = o.FrontProxy.trusting(who.frontProxyCA, a.apis.features)
	credentials := authn.Config{
		ClientCA: who.clientCA.verify, FrontProxy: who.frontProxy,
		ServiceAccounts: &tokens, BootstrapTokens: o.Authentication.BootstrapTokens, TokenFile: o.Authentication.TokenFile,
		CertificateLeft: a.metrics.Access.Certificate,
		Anonymous:       o.anonymous(), Audiences: who.audiences, Objects: a.storage.objects(), Clock: clock.RealClock{},
	}
	if err := a.addIssuers(ctx, &credentials, who.audiences); err != nil {
		return err
	}
	if who.authenticators, err = authn.New(credentials); err != nil {
		return err
	}
	who.authorizer, err = a.newAuthorizer(a.storage.objects())
	return err
}

func (a *Server) newAdmission(ctx context.Context) error {
	podSecurity, configured, err := a.options.Admission.configurations()
	if err != nil {
		return err
	}
	source, authorizer := a.storage.objects(), a.identity.authorizer
	a.admission, err = admission.New(&admission.Config{
		Enable: a.options.Admission.Enable, Disable: a.options.Admission.Disable, Objects: source, Refresh: a.storage.refresh,
		Authorizer: authorizer, RBAC: authorizer.RBAC, Clock: clock.RealClock{}, QuotaUpdater: admission.CacheQuotas{Cache: a.storage.cache},
		CreateNamespace: a.createNamespace,
		NotReadySeconds: new(a.options.Admission.NotReadySeconds), UnreachableSeconds: new(a.options.Admission.UnreachableSeconds),
		Metrics: a.metrics.Admission, PodSecurity: podSecurity, Configured: configured, Features: a.apis.features,
		Extensions: admission.Extensions(ctx, source, a.metrics.Admission, configured, func() (*admission.Access, error) { return a.admissionAccess(authorizer) }),
	})
	return err
}

// createNamespace creates a namespace unless it exists.
func (a *Server) createNamespace(ctx context.Context, name string) error {
	writer := bootstrap.CacheWriter{Cache: a.storage.cache, Clock: clock.RealClock{}}
	return writer.Create(ctx, objects.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

// extensions are custom resources, aggregated API servers, and the OpenAPI
// documents of all APIs.
type extensions struct {
	documents  *openapi.Handler
	managers   *apply.Managers
	custom     *crd.Server
	aggregated *aggregator.Server
}

func (a *Server) newExtensions() error {
	documents, err := openapi.New()
	if err != nil {
		return err
	}
	turnedOn, turnedOff := runtimeconfig.Changed(a.apis.usual, a.apis.resources)
	if err := documents.TurnOn(turnedOn); err != nil {
		return err
	}
	documents.TurnOff(turnedOff, runtimeconfig.Unserved(a.apis.usual, a.apis.resources))
	custom := crd.New(crd.Config{
		BuiltIn: a.apis.resources, Cache: a.storage.cache, Documents: documents, Services: a.webhookServices, Calls: a.traces.webhooks(), Clock: clock.RealClock{},
		Forget: func(r schema.GroupResource) {
			a.storage.store.Forget(r, func() { a.metrics.Forget(r) })
		},
	})
	a.extensions = extensions{documents: documents, custom: custom, managers: apply.New(custom.SchemasOr(documents.Schemas))}
	a.own = newOwnAddresses(a.storage.objects())
	if a.extensions.aggregated, err = a.newAggregator(a.apis.resources, documents); err != nil {
		return err
	}
	a.metrics.MustRegister(a.extensions.aggregated)
	return nil
}

func (a *Server) newServer() (err error) {
	o := a.options
	if a.services, err = o.Services.newAllocator(a.storage.store, a.storage.cache, a.apis.resources); err != nil {
		return err
	}
	connector, err := o.KubeletClient.newConnector(a.keys, a.storage.objects(), a.apis.features, a.own.has)
	if err != nil {
		return err
	}
	handlers, err := a.handlers(a.identity.issuer, a.extensions.documents, a.apis.features)
	if err != nil {
		return err
	}
	a.nodeAndPodMetrics = a.newMetricsServer(connector)
	auditor, err := a.newAuditor()
	if err != nil {
		return err
	}
	if a.server, err = apiserver.New(apiserver.Config{
		Resources: a.apis.resources,
		Registry: registry.Config{
			Cache: a.storage.cache, Authorizer: a.identity.authorizer, Admission: a.admission, Managers: a.extensions.managers,
			Lifecycles:      map[schema.GroupResource]registry.Lifecycle{{Resource: "services"}: a.services},
			AllowPrivileged: o.Admission.AllowPrivileged, GarbageCollector: o.Storage.GarbageCollector,
			Features: a.apis.features, Metrics: a.metrics,
		},
		Access: apiserver.AccessConfig{
			Authenticator: a.identity.authenticators.Request, Credentials: a.identity.frontProxy.Headers(), Tokens: a.identity.authenticators.Token,
			Audiences: a.identity.audiences, Rules: a.identity.authorizer, Audit: auditor, ServiceAccountTokens: a.identity.issuer,
		},
		Handlers: apiserver.HandlerConfig{
			Connect: connector, Aggregated: a.extensions.aggregated, NodeAndPodMetrics: a.nodeAndPodMetrics, Paths: handlers,
		},
		Health: apiserver.HealthConfig{
			Checks: a.checks(), Steps: a.startup.checks(o.Requests.Limits.PriorityAndFairness), LivezGracePeriod: o.Requests.LivezGrace, Components: o.Components,
		},
		Limits: o.Requests.Limits,
		HTTP:   o.Requests.HTTP,
		Tracer: a.traces.tracer(),
	}); err != nil {
		return err
	}
	if a.tls, err = a.servingConfig(); err != nil {
		return err
	}
	a.Provider, err = client.NewInProcess(a.server.Handler(), a.storage.cache, apirequest.WithUser)
	return err
}
