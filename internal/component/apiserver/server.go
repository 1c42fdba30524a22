// Package apiserver turns kube-apiserver's command line into a running API
// server: alone in a process over an external etcd, or inside a cluster that
// shares one process.
package apiserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	k8saudit "k8s.io/apiserver/pkg/audit"
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
	"github.com/coracle-io/coracle/internal/apiserver/crd"
	"github.com/coracle-io/coracle/internal/apiserver/fairness"
	apihealth "github.com/coracle-io/coracle/internal/apiserver/health"
	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/apiserver/openapi"
	"github.com/coracle-io/coracle/internal/apiserver/services"
	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/component/base"
	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/memory"
	"github.com/coracle-io/coracle/internal/metrics"
	"github.com/coracle-io/coracle/internal/pki"
	"github.com/coracle-io/coracle/internal/resource/all"
	"github.com/coracle-io/coracle/internal/resource/preview"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/store/encrypt"
	"github.com/coracle-io/coracle/internal/store/etcd"
	"github.com/coracle-io/coracle/internal/store/prefixed"
	"github.com/coracle-io/coracle/internal/supervise"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// Server is an API server over a store and a directory of certificates.
type Server struct {
	flags *Flags
	keys  *pki.Directory
	store store.Store
	// encryption is the part of store that --encryption-provider-config asks
	// for, or nil.
	encryption *encrypt.Store
	cache      *watchcache.Cache
	// clientCA and frontProxyCA are published for aggregated API servers.
	clientCA, frontProxyCA trusted
	frontProxy             *authn.FrontProxy
	tokenUses              *serviceaccount.Uses
	services               *services.Allocator
	custom                 *crd.Server
	aggregated             *aggregator.Server
	own                    *ownAddresses
	// auditBackend is where the events of requests go, or nil.
	auditBackend k8saudit.Backend
	// follow reads configurations again when their files change.
	follow   []followed
	managers *apply.Managers
	fairness *fairness.Controller // nil if it is turned off
	// turnedOn and turnedOff are what --runtime-config changes of the versions
	// that are served.
	turnedOn, turnedOff []schema.GroupVersion
	metrics             *metrics.APIServer
	server              *apiserver.Server
	tls                 *tls.Config
	// Provider hands out clients of this server that need no socket.
	Provider *client.InProcess
	startup  *startup
	ready    chan struct{}
}

// Run runs the API server of a process of its own.
func Run(ctx context.Context, f *Flags) error {
	if err := f.Validate(); err != nil {
		return err
	}
	if len(f.EtcdServers) == 0 {
		return errors.New("the API server alone needs --etcd-servers; coracle up brings an etcd of its own")
	}
	external, err := etcd.Dial(f.etcd(), klog.FromContext(ctx))
	if err != nil {
		return fmt.Errorf("--etcd-servers: %w", err)
	}
	defer func() { _ = external.Close() }()
	keys, err := pki.Open(f.CertDir, clock.RealClock{})
	if err != nil {
		return fmt.Errorf("--cert-dir: %w", err)
	}
	// What admission needs lasts as long as requests are served.
	lasting, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	s, err := New(lasting, f, external, keys)
	if err != nil {
		return err
	}
	listener, err := f.Listen()
	if err != nil {
		return err
	}
	node, err := base.HostName("")
	if err != nil {
		return err
	}
	if err := f.KeepKubeconfigs(ctx, keys, node); err != nil {
		return fmt.Errorf("--cert-dir: %w", err)
	}
	return base.Together(ctx, keys.Run, func(ctx context.Context) error { return s.Run(ctx, listener) })
}

func (f *Flags) etcd() etcd.Endpoints {
	return etcd.Endpoints{URLs: f.EtcdServers, CAFile: f.EtcdCAFile, CertFile: f.EtcdCertFile, KeyFile: f.EtcdKeyFile}
}

// Dial opens the store of --etcd-servers.
func (f *Flags) Dial(ctx context.Context) (*etcd.External, error) {
	return etcd.Dial(f.etcd(), klog.FromContext(ctx))
}

// Listen opens the secure port.
func (f *Flags) Listen() (net.Listener, error) {
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: f.BindAddress, Port: f.SecurePort})
	if err != nil {
		return nil, fmt.Errorf("port %d is taken: stop what listens there, or choose another with --secure-port (%w)", f.SecurePort, err)
	}
	return l, nil
}

// New builds an API server; Run must follow. What users' webhooks and
// policies start lives until ctx ends.
func New(ctx context.Context, f *Flags, s store.Store, keys *pki.Directory) (*Server, error) {
	gates, err := feature.Parse(f.FeatureGates)
	if err != nil {
		return nil, err
	}
	for _, warning := range gates.Warnings() {
		klog.FromContext(ctx).Info(warning)
	}
	if err := setLibraryFeatures(gates); err != nil {
		return nil, err
	}
	usual := all.All()
	resources, err := preview.Serve(usual, f.RuntimeConfig, gates)
	if err != nil {
		return nil, err
	}
	a := &Server{flags: f, keys: keys, store: prefixed.New(s, f.Storage.Prefix), ready: make(chan struct{})}
	a.turnedOn, a.turnedOff = preview.Changed(usual, resources)
	if f.EncryptionConfig != "" {
		encrypted, err := f.encrypted(ctx, a.store, resources)
		if err != nil {
			return nil, err
		}
		a.store, a.encryption = encrypted, encrypted
	}
	a.metrics = metrics.NewAPIServer(gates)
	a.store = newMeasured(a.store, a.metrics.Store, resources)
	a.cache = watchcache.New(a.store, resources)
	a.cache.LimitHistory(memory.ProcessLimit() / historyShare)
	a.startup = newStartup(a.cache.Synced())
	a.metrics.MustRegister(caches{a.cache}, newStorageSize(s))
	source := objects.Cache{Cache: a.cache}
	refresh := func(ctx context.Context) error {
		_, err := a.cache.Fresh(ctx)
		return err
	}
	tokens, err := f.ServiceAccounts.options(keys)
	if err != nil {
		return nil, err
	}
	a.tokenUses = serviceaccount.NewUses()
	tokens.Objects, tokens.Refresh, tokens.Uses, tokens.Counts = source, refresh, a.tokenUses, a.metrics.Tokens
	audiences := authenticator.Audiences(tokens.Audiences)
	if a.clientCA, err = a.trust("client-ca-file", f.ClientCAFile, keys.Cluster()); err != nil {
		return nil, err
	}
	if a.frontProxyCA, err = a.trust("requestheader-client-ca-file", f.FrontProxy.ClientCAFile, keys.FrontProxy()); err != nil {
		return nil, err
	}
	a.frontProxy = f.FrontProxy.trusting(a.frontProxyCA)
	credentials := authn.Config{
		ClientCA: a.clientCA.verify, FrontProxy: a.frontProxy,
		ServiceAccounts: &tokens, BootstrapTokens: f.BootstrapTokens, TokenFile: f.TokenAuthFile,
		CertificateLeft: a.metrics.Access.Certificate,
		Anonymous:       f.anonymous(), Audiences: audiences, Objects: source, Clock: clock.RealClock{},
	}
	if err := a.addIssuers(ctx, &credentials, audiences); err != nil {
		return nil, err
	}
	authenticators, err := authn.New(credentials)
	if err != nil {
		return nil, err
	}
	authorizer, err := a.newAuthorizer(source)
	if err != nil {
		return nil, err
	}
	podSecurity, err := f.podSecurity()
	if err != nil {
		return nil, err
	}
	chain, err := admission.New(&admission.Config{
		Enable: f.EnableAdmission, Disable: f.DisableAdmission, Objects: source, Refresh: refresh,
		Authorizer: authorizer, RBAC: authorizer.RBAC, Clock: clock.RealClock{}, QuotaUpdater: admission.CacheQuotas{Cache: a.cache},
		Metrics: a.metrics.Admission, PodSecurity: podSecurity, Features: gates,
		Extensions: admission.Extensions(ctx, source, a.metrics.Admission, func() (*admission.Access, error) { return a.admissionAccess(authorizer) }),
	})
	if err != nil {
		return nil, err
	}
	documents, err := openapi.New()
	if err != nil {
		return nil, err
	}
	if err := documents.TurnOn(a.turnedOn); err != nil {
		return nil, err
	}
	documents.TurnOff(a.turnedOff, preview.Unserved(usual, resources))
	a.custom = crd.New(crd.Config{
		BuiltIn: resources, Cache: a.cache, Documents: documents, Services: a.webhookServices, Clock: clock.RealClock{},
	})
	a.managers = apply.New(a.custom.SchemasOr(documents.Schemas))
	issuer := serviceaccount.NewIssuer(tokens)
	handlers, err := a.handlers(issuer, documents, gates)
	if err != nil {
		return nil, err
	}
	a.own = newOwnAddresses(source)
	if a.services, err = f.newAllocator(a.store, a.cache, resources); err != nil {
		return nil, err
	}
	connector, err := f.newConnector(keys, source, a.own.has)
	if err != nil {
		return nil, err
	}
	if a.aggregated, err = a.newAggregator(resources, documents); err != nil {
		return nil, err
	}
	a.metrics.MustRegister(a.aggregated)
	auditor, err := a.newAuditor()
	if err != nil {
		return nil, err
	}
	a.fairness = a.newFairness()
	if a.server, err = apiserver.New(apiserver.Config{
		Resources: resources, Cache: a.cache,
		Authenticator: authenticators.Request, Credentials: a.frontProxy.Headers(), Tokens: authenticators.Token, Audiences: audiences,
		Authorizer: authorizer, Rules: authorizer, Audit: auditor, Admission: chain,
		Managers: a.managers, ServiceAccountTokens: issuer, Handlers: handlers,
		Services: a.services, Connect: connector, Aggregated: a.aggregated,
		Fairness: a.fairness, MaxInFlight: inFlight(f.MaxRequestsInFlight), MaxMutatingInFlight: inFlight(f.MaxMutatingInFlight), RequestTimeout: f.RequestTimeout, GoawayChance: f.GoawayChance,
		MinRequestTimeout: time.Duration(f.Requests.MinTimeout) * time.Second, MaxStreamsPerConnection: f.Requests.MaxStreams,
		LivezGracePeriod: f.Requests.LivezGrace, AllowedOrigins: f.Requests.Origins, StrictTransportSecurity: f.Requests.HSTS,
		CBOR: gates.Enabled("CBORServingAndStorage"), Features: gates, Checks: a.checks(), Steps: a.startup.checks(a.fairness != nil), Metrics: a.metrics,
		Components: f.Components,
	}); err != nil {
		return nil, err
	}
	if a.tls, err = a.servingConfig(); err != nil {
		return nil, err
	}
	a.Provider, err = client.NewInProcess(a.server.Handler(), a.cache, apirequest.WithUser)
	return a, err
}

// checks are the conditions of this server being ready besides those of every
// API server.
func (a *Server) checks() []apihealth.Check {
	if a.encryption == nil {
		return nil
	}
	return []apihealth.Check{{Name: encrypt.KMS, Run: a.encryption.Check}}
}

// Show lets /metrics show what else is counted in the process.
func (a *Server) Show(c prometheus.Collector) error { return a.metrics.Register(c) }

// Ready is closed once /readyz says ok.
func (a *Server) Ready() <-chan struct{} { return a.ready }

// Handler answers requests without a socket.
func (a *Server) Handler() http.Handler { return a.server.Handler() }

// Run fills the cache, makes the default objects and serves until
// --shutdown-delay-duration after ctx ends. What only keeps something in
// order beside the requests fails and restarts on its own.
func (a *Server) Run(ctx context.Context, listener net.Listener) error {
	ctx, end := outlasting(ctx, a.flags.Requests.ShutdownDelay, a.server.Leave)
	defer end()
	defer func() { _ = listener.Close() }()
	stopAudit, err := a.startAudit()
	if err != nil {
		return err
	}
	defer stopAudit()
	a.own.listen(listener.Addr())
	return supervise.Run(ctx, func(ctx context.Context) error {
		supervise.Go(ctx, func() { supervise.Fail(ctx, a.cache.Run(ctx)) })
		supervise.Go(ctx, func() { supervise.Fail(ctx, a.Provider.Run(ctx)) })
		for _, file := range a.follow {
			keep(ctx, file.flag, file.run)
		}
		if a.flags.Storage.CompactionInterval > 0 {
			keep(ctx, "compaction", func(ctx context.Context) error {
				store.Compaction(ctx, a.store, a.flags.Storage.CompactionInterval)
				return nil
			})
		}
		if a.encryption != nil {
			keep(ctx, "encryption", a.encryption.Run)
		}
		return a.serve(ctx, listener)
	})
}

// keep keeps a part of the API server running beside the others.
func keep(ctx context.Context, part string, run func(context.Context) error) {
	supervise.Go(ctx, func() { supervise.Keep(ctx, part, run) })
}

// serve takes the steps of the start one after the other, and then serves
// until ctx ends.
func (a *Server) serve(ctx context.Context, listener net.Listener) error {
	select {
	case <-ctx.Done():
		return nil
	case <-a.cache.Synced():
	}
	if err := a.untilDefaults(ctx); err != nil {
		return err
	}
	a.startup.defaults.Finish()
	keepFlowSchemas := a.followFlowSchemas()
	a.startup.classified.Finish()
	keep(ctx, "services", func(ctx context.Context) error { return a.services.Run(ctx, a.startup.repaired.Finish) })
	keep(ctx, "self-service", a.keepSelfService)
	keep(ctx, "system-objects", a.keepSystem)
	keep(ctx, "token-uses", a.noteTokenUses)
	keep(ctx, "custom-resources", func(ctx context.Context) error {
		return a.custom.Run(ctx, served{a.server, a.aggregated}, a.managers, a.startup.defined.Finish)
	})
	select {
	case <-ctx.Done():
		return nil
	case <-a.startup.defined.Finished():
	}
	keep(ctx, "aggregator", func(ctx context.Context) error { return a.aggregated.Run(ctx, a.server, a.startup.registered.Finish) })
	keep(ctx, "flow-schemas", keepFlowSchemas)
	supervise.Go(ctx, func() {
		if a.startup.wait(ctx) == nil {
			close(a.ready)
		}
	})
	// A listener that fails is opened again at the same address.
	supervise.Keep(ctx, "https", func(ctx context.Context) (err error) {
		l := listener
		if listener = nil; l == nil {
			if l, err = a.flags.Listen(); err != nil {
				return err
			}
		}
		defer func() { _ = l.Close() }()
		return a.server.Run(ctx, l, a.tls)
	})
	return nil
}
