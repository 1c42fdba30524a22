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

	"github.com/prometheus/client_golang/prometheus"
	k8saudit "k8s.io/apiserver/pkg/audit"
	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/apiserver"
	"github.com/coracle-io/coracle/internal/apiserver/admission"
	"github.com/coracle-io/coracle/internal/apiserver/metricsserver"
	"github.com/coracle-io/coracle/internal/apiserver/services"
	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/component/base"
	"github.com/coracle-io/coracle/internal/feature"
	apihealth "github.com/coracle-io/coracle/internal/health"
	"github.com/coracle-io/coracle/internal/metrics"
	"github.com/coracle-io/coracle/internal/pki"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/store/encrypt"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Server is an API server with a store and a directory of keys. New builds it in
// stages: APIs, storage, identity, admission, extensions, server. Each stage uses
// the earlier ones and its own part of Options.
type Server struct {
	options *Options
	keys    *pki.Directory

	apis       apis
	traces     traces
	storage    storage
	identity   identity
	admission  *admission.Chain
	extensions extensions

	// Provider returns in-process clients of this server.
	Provider *client.InProcess

	services          *services.Allocator
	nodeAndPodMetrics *metricsserver.Server
	own               *ownAddresses
	// auditBackend receives audit events; nil if auditing is off.
	auditBackend k8saudit.Backend
	metrics      *metrics.APIServer
	server       *apiserver.Server
	tls          *tls.Config
	// follow lists the configuration files that are reloaded when they change.
	follow  []followed
	startup *startup
	ready   chan struct{}
}

// Run runs the API server of a process of its own.
func Run(ctx context.Context, o *Options) error {
	if err := o.Validate(); err != nil {
		return err
	}
	if err := o.setProcess(); err != nil {
		return err
	}
	if len(o.Storage.Etcd.URLs) == 0 {
		return errors.New("the API server alone needs --etcd-servers; coracle up brings an etcd of its own")
	}
	external, err := o.Dial(ctx)
	if err != nil {
		return fmt.Errorf("--etcd-servers: %w", err)
	}
	defer func() { _ = external.Close() }()
	keys, err := pki.Open(o.Serving.CertDir, clock.RealClock{})
	if err != nil {
		return fmt.Errorf("--cert-dir: %w", err)
	}
	// Admission is needed as long as requests are served.
	lasting, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	s, err := New(lasting, o, external, keys)
	if err != nil {
		return err
	}
	listener, err := o.Listen()
	if err != nil {
		return fmt.Errorf("port %d is taken: stop what listens there, or choose another with --secure-port (%w)", o.Serving.Port, err)
	}
	defer func() { _ = listener.Close() }()
	node, err := base.HostName("")
	if err != nil {
		return err
	}
	if err := o.KeepKubeconfigs(ctx, keys, node); err != nil {
		return fmt.Errorf("--cert-dir: %w", err)
	}
	return base.Together(ctx, keys.Run, func(ctx context.Context) error { return s.Run(ctx, listener) })
}

// New builds an API server over a store. Callers must call Run. ctx is the life
// of what requests use: clients of webhooks, token issuers and key services, and
// the informers of policies, which start with the first policy. It must end only
// after Run has returned.
func New(ctx context.Context, o *Options, s store.Store, keys *pki.Directory) (*Server, error) {
	o.Logging.Apply(ctx)
	a := &Server{options: o, keys: keys, ready: make(chan struct{})}
	if err := a.chooseAPIs(ctx); err != nil {
		return nil, err
	}
	a.metrics = metrics.NewAPIServer(a.apis.features)
	for _, build := range []func() error{
		func() (err error) { a.traces, err = newTraces(&o.Tracing); return err },
		func() error { return a.openStorage(ctx, s) },
		func() error { return a.newIdentity(ctx) },
		func() error { return a.newAdmission(ctx) },
		a.newExtensions,
		a.newServer,
	} {
		if err := build(); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// checks returns the readiness checks that depend on flags.
func (a *Server) checks() []apihealth.Check {
	if a.storage.encryption == nil {
		return nil
	}
	return []apihealth.Check{{Name: encrypt.KMS, Run: a.storage.encryption.Check}}
}

// Show adds a collector to /metrics.
func (a *Server) Show(c prometheus.Collector) error { return a.metrics.Register(c) }

// Ready returns a channel that is closed when /readyz succeeds.
func (a *Server) Ready() <-chan struct{} { return a.ready }

// Handler serves requests without a socket.
func (a *Server) Handler() http.Handler { return a.server.Handler() }

// Run fills the cache, creates the default objects and serves until
// --shutdown-delay-duration after ctx ends. Without a listener it serves only
// requests to Handler and of Provider's clients. The controllers of the API
// server fail and restart on their own.
func (a *Server) Run(ctx context.Context, listener net.Listener) error {
	ctx, end := outlasting(ctx, a.options.Requests.ShutdownDelay, a.server.Leave)
	defer end()
	if listener != nil {
		defer func() { _ = listener.Close() }()
		a.own.listen(listener.Addr())
	}
	stopTraces, err := a.traces.start(ctx)
	if err != nil {
		return err
	}
	defer stopTraces()
	stopAudit, err := a.startAudit()
	if err != nil {
		return err
	}
	defer stopAudit()
	// Storage and clients run until the requests in flight are answered.
	lasting, endAll := context.WithCancel(context.WithoutCancel(ctx))
	defer endAll()
	return supervise.Run(lasting, func(lasting context.Context) error {
		defer endAll()
		a.begin(lasting)
		serving, end := context.WithCancel(lasting)
		defer end()
		defer context.AfterFunc(ctx, end)()
		return a.serve(serving, listener)
	})
}

// begin starts the cache, the clients and the maintenance of the store. They run
// until ctx ends.
func (a *Server) begin(ctx context.Context) {
	supervise.Go(ctx, func() { supervise.Fail(ctx, a.storage.cache.Run(ctx)) })
	supervise.Go(ctx, func() { supervise.Fail(ctx, a.Provider.Run(ctx)) })
	for _, file := range a.follow {
		keep(ctx, file.flag, file.run)
	}
	if a.options.Storage.CompactionInterval > 0 {
		keep(ctx, "compaction", func(ctx context.Context) error {
			store.Compaction(ctx, a.storage.store, a.options.Storage.CompactionInterval)
			return nil
		})
	}
	if a.storage.encryption != nil {
		keep(ctx, "encryption", a.storage.encryption.Run)
	}
}

// keep runs a part of the API server, and restarts it when it fails.
func keep(ctx context.Context, part string, run func(context.Context) error) {
	supervise.Go(ctx, func() { supervise.KeepRunning(ctx, part, run) })
}

// serve takes the steps of the start in order, and then serves until ctx ends.
func (a *Server) serve(ctx context.Context, listener net.Listener) error {
	select {
	case <-ctx.Done():
		return nil
	case <-a.storage.cache.Synced():
	}
	if err := a.untilDefaults(ctx); err != nil {
		return err
	}
	a.startup.defaults.Finish()
	keepFlowSchemas := a.followFlowSchemas()
	a.startup.classified.Finish()
	keep(ctx, "services", func(ctx context.Context) error { return a.services.Run(ctx, a.startup.repaired.Finish) })
	keep(ctx, "kubernetes-service", a.keepKubernetesService)
	keep(ctx, "system-objects", a.keepSystem)
	keep(ctx, "token-uses", a.noteTokenUses)
	if a.apis.features.Enabled(feature.CoordinatedLeaderElection) {
		keep(ctx, "lease-candidates", a.electCandidates)
	}
	keep(ctx, "custom-resources", func(ctx context.Context) error {
		return a.extensions.custom.Run(ctx, served{a.server, a.extensions.aggregated}, a.extensions.managers, a.startup.defined.Finish)
	})
	select {
	case <-ctx.Done():
		return nil
	case <-a.startup.defined.Finished():
	}
	keep(ctx, "aggregator", func(ctx context.Context) error {
		return a.extensions.aggregated.Run(ctx, a.server, a.startup.registered.Finish)
	})
	keep(ctx, "metrics-server", a.nodeAndPodMetrics.Run)
	keep(ctx, "flow-schemas", keepFlowSchemas)
	supervise.Go(ctx, func() {
		if a.startup.wait(ctx) == nil {
			close(a.ready)
		}
	})
	if listener == nil {
		return a.server.Run(ctx, nil, nil)
	}
	// If the listener fails, listen again at the same address.
	supervise.KeepRunning(ctx, "https", func(ctx context.Context) (err error) {
		l := listener
		if listener = nil; l == nil {
			if l, err = a.options.Listen(); err != nil {
				return err
			}
		}
		defer func() { _ = l.Close() }()
		return a.server.Run(ctx, l, a.tls)
	})
	return nil
}
