package apiserver

import (
	"context"
	"time"

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
	"github.com/coracle-io/coracle/internal/apiserver/crd"
	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/apiserver/openapi"
	"github.com/coracle-io/coracle/internal/apiserver/registry"
	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/memory"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/all"
	"github.com/coracle-io/coracle/internal/resource/preview"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/store/encrypt"
	"github.com/coracle-io/coracle/internal/store/measured"
	"github.com/coracle-io/coracle/internal/store/prefixed"
	"github.com/coracle-io/coracle/internal/watchcache"
	"github.com/coracle-io/coracle/internal/watchcache/collector"
)

// apis are the built-in resources that --runtime-config and --feature-gates
// leave.
type apis struct {
	features  *feature.Set
	usual     []*resource.Resource // those of no flags
	resources []*resource.Resource // those that are served
	versions  resource.GroupVersions
}

func (a *Server) chooseAPIs(ctx context.Context) error {
	features, err := feature.Parse(a.flags.FeatureGates)
	if err != nil {
		return err
	}
	for _, warning := range features.Warnings() {
		klog.FromContext(ctx).Info(warning)
	}
	usual := all.All()
	served, err := preview.Serve(usual, a.flags.RuntimeConfig, features)
	if err != nil {
		return err
	}
	a.apis = apis{features: features, usual: usual, resources: served, versions: resource.Served(served)}
	return nil
}

// byPath are the resources that are served by where they are stored.
func (a *apis) byPath() map[string]schema.GroupResource {
	resources := map[string]schema.GroupResource{}
	for _, r := range a.resources {
		resources[r.StoragePath] = r.GroupResource()
	}
	return resources
}

// storage is where objects are kept: in a store, of which a cache follows
// every change.
type storage struct {
	store store.Store
	// encryption is the part of store that --encryption-provider-config asks
	// for, or nil.
	encryption *encrypt.Store
	cache      *watchcache.Cache
}

// historyShare is the part of the process's memory that superseded objects may take.
const historyShare = 8

func (a *Server) openStorage(ctx context.Context, s store.Store) error {
	under := prefixed.New(s, a.flags.Storage.Prefix)
	if a.flags.EncryptionConfig != "" {
		encrypted, err := a.flags.encrypted(ctx, under, a.apis.byPath())
		if err != nil {
			return err
		}
		under, a.storage.encryption = encrypted, encrypted
	}
	a.storage.store = measured.New(under, a.metrics.Store, watchcache.Prefix, a.apis.byPath())
	a.storage.cache = watchcache.New(a.storage.store, a.apis.resources)
	a.storage.cache.LimitHistory(memory.ProcessLimit() / historyShare)
	a.startup = newStartup(a.storage.cache.Synced())
	a.metrics.MustRegister(collector.Cache{Cache: a.storage.cache}, measured.NewSize(s))
	return nil
}

// objects reads the cache.
func (s *storage) objects() objects.Cache { return objects.Cache{Cache: s.cache} }

// refresh waits until the cache has all that is stored.
func (s *storage) refresh(ctx context.Context) error {
	_, err := s.cache.Fresh(ctx)
	return err
}

// identity is who clients are, and what they may do.
type identity struct {
	// clientCA and frontProxyCA are published for aggregated API servers.
	clientCA, frontProxyCA trusted
	frontProxy             *authn.FrontProxy
	issuer                 *serviceaccount.Issuer // of service account tokens
	tokenUses              *serviceaccount.Uses
	audiences              authenticator.Audiences
	authenticators         *authn.Authenticators
	authorizer             *authz.Authorizer
}

func (a *Server) newIdentity(ctx context.Context) error {
	f, who := a.flags, &a.identity
	tokens, err := f.ServiceAccounts.options(a.keys)
	if err != nil {
		return err
	}
	who.tokenUses = serviceaccount.NewUses()
	tokens.Objects, tokens.Refresh, tokens.Uses, tokens.Counts = a.storage.objects(), a.storage.refresh, who.tokenUses, a.metrics.Tokens
	who.issuer = serviceaccount.NewIssuer(tokens)
	who.audiences = authenticator.Audiences(tokens.Audiences)
	if who.clientCA, err = a.trust("client-ca-file", f.ClientCAFile, a.keys.Cluster()); err != nil {
		return err
	}
	if who.frontProxyCA, err = a.trust("requestheader-client-ca-file", f.FrontProxy.ClientCAFile, a.keys.FrontProxy()); err != nil {
		return err
	}
	who.frontProxy = f.FrontProxy.trusting(who.frontProxyCA)
	credentials := authn.Config{
		ClientCA: who.clientCA.verify, FrontProxy: who.frontProxy,
		ServiceAccounts: &tokens, BootstrapTokens: f.BootstrapTokens, TokenFile: f.TokenAuthFile,
		CertificateLeft: a.metrics.Access.Certificate,
		Anonymous:       f.anonymous(), Audiences: who.audiences, Objects: a.storage.objects(), Clock: clock.RealClock{},
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
	podSecurity, err := a.flags.podSecurity()
	if err != nil {
		return err
	}
	source, authorizer := a.storage.objects(), a.identity.authorizer
	a.admission, err = admission.New(&admission.Config{
		Enable: a.flags.EnableAdmission, Disable: a.flags.DisableAdmission, Objects: source, Refresh: a.storage.refresh,
		Authorizer: authorizer, RBAC: authorizer.RBAC, Clock: clock.RealClock{}, QuotaUpdater: admission.CacheQuotas{Cache: a.storage.cache},
		Metrics: a.metrics.Admission, PodSecurity: podSecurity, Features: a.apis.features,
		Extensions: admission.Extensions(ctx, source, a.metrics.Admission, func() (*admission.Access, error) { return a.admissionAccess(authorizer) }),
	})
	return err
}

// extensions are the APIs that users add, and the documents that describe
// these and the built-in ones.
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
	turnedOn, turnedOff := preview.Changed(a.apis.usual, a.apis.resources)
	if err := documents.TurnOn(turnedOn); err != nil {
		return err
	}
	documents.TurnOff(turnedOff, preview.Unserved(a.apis.usual, a.apis.resources))
	custom := crd.New(crd.Config{
		BuiltIn: a.apis.resources, Cache: a.storage.cache, Documents: documents, Services: a.webhookServices, Clock: clock.RealClock{},
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
	f := a.flags
	if a.services, err = f.newAllocator(a.storage.store, a.storage.cache, a.apis.resources); err != nil {
		return err
	}
	connector, err := f.newConnector(a.keys, a.storage.objects(), a.own.has)
	if err != nil {
		return err
	}
	handlers, err := a.handlers(a.identity.issuer, a.extensions.documents, a.apis.features)
	if err != nil {
		return err
	}
	auditor, err := a.newAuditor()
	if err != nil {
		return err
	}
	a.fairness = a.newFairness()
	if a.server, err = apiserver.New(apiserver.Config{
		Resources: a.apis.resources, Cache: a.storage.cache, Features: a.apis.features, CBOR: a.apis.features.Enabled("CBORServingAndStorage"),
		Authenticator: a.identity.authenticators.Request, Credentials: a.identity.frontProxy.Headers(), Tokens: a.identity.authenticators.Token,
		Audiences: a.identity.audiences, ServiceAccountTokens: a.identity.issuer,
		Authorizer: a.identity.authorizer, Rules: a.identity.authorizer, Audit: auditor, Admission: a.admission,
		Managers: a.extensions.managers, Handlers: handlers, Aggregated: a.extensions.aggregated,
		Lifecycles: map[schema.GroupResource]registry.Lifecycle{{Resource: "services"}: a.services}, Connect: connector, Components: f.Components,
		Fairness: a.fairness, MaxInFlight: inFlight(f.MaxRequestsInFlight), MaxMutatingInFlight: inFlight(f.MaxMutatingInFlight),
		RequestTimeout: f.RequestTimeout, MinRequestTimeout: time.Duration(f.Requests.MinTimeout) * time.Second,
		MaxStreamsPerConnection: f.Requests.MaxStreams, GoawayChance: f.GoawayChance,
		LivezGracePeriod: f.Requests.LivezGrace, AllowedOrigins: f.Requests.Origins, StrictTransportSecurity: f.Requests.HSTS,
		Checks: a.checks(), Steps: a.startup.checks(a.fairness != nil), Metrics: a.metrics,
	}); err != nil {
		return err
	}
	if a.tls, err = a.servingConfig(); err != nil {
		return err
	}
	a.Provider, err = client.NewInProcess(a.server.Handler(), a.storage.cache, apirequest.WithUser)
	return err
}
