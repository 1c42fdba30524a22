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
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/apiserver"
	"github.com/coracle-io/coracle/internal/apiserver/admission"
	"github.com/coracle-io/coracle/internal/apiserver/fairness"
	apihealth "github.com/coracle-io/coracle/internal/apiserver/health"
	"github.com/coracle-io/coracle/internal/apiserver/services"
	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/component/base"
	"github.com/coracle-io/coracle/internal/metrics"
	"github.com/coracle-io/coracle/internal/pki"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/store/encrypt"
	"github.com/coracle-io/coracle/internal/store/etcd"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Server is an API server over a store and a directory of certificates. New
// builds it stage by stage; each stage uses what those before it made.
type Server struct {
	flags *Flags
	keys  *pki.Directory

	apis       apis
	storage    storage
	identity   identity
	admission  *admission.Chain
	extensions extensions

	// Provider hands out clients of this server that need no socket.
	Provider *client.InProcess

	services *services.Allocator
	own      *ownAddresses
	fairness *fairness.Controller // nil if it is turned off
	// auditBackend is where the events of requests go, or nil.
	auditBackend k8saudit.Backend
	metrics      *metrics.APIServer
	server       *apiserver.Server
	tls          *tls.Config
	// follow reads configurations again when their files change.
	follow  []followed
	startup *startup
	ready   chan struct{}
}

// Run runs the API server of a process of its own.
func Run(ctx context.Context, f *Flags) error {
	if err := f.Validate(); err != nil {
		return err
	}
	if err := f.setProcess(); err != nil {
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
		return fmt.Errorf("port %d is taken: stop what listens there, or choose another with --secure-port (%w)", f.SecurePort, err)
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
	return net.ListenTCP("tcp", &net.TCPAddr{IP: f.BindAddress, Port: f.SecurePort})
}

// New builds an API server; Run must follow. What users' webhooks and policies
// start lives until ctx ends.
func New(ctx context.Context, f *Flags, s store.Store, keys *pki.Directory) (*Server, error) {
	a := &Server{flags: f, keys: keys, ready: make(chan struct{})}
	if err := a.chooseAPIs(ctx); err != nil {
		return nil, err
	}
	a.metrics = metrics.NewAPIServer(a.apis.features)
	for _, build := range []func() error{
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

// checks are the conditions of this server being ready besides those of every
// API server.
func (a *Server) checks() []apihealth.Check {
	if a.storage.encryption == nil {
		return nil
	}
	return []apihealth.Check{{Name: encrypt.KMS, Run: a.storage.encryption.Check}}
}

// Show lets /metrics show what else is counted in the process.
func (a *Server) Show(c prometheus.Collector) error { return a.metrics.Register(c) }

// Ready is closed once /readyz says ok.
func (a *Server) Ready() <-chan struct{} { return a.ready }

// Handler answers requests without a socket.
func (a *Server) Handler() http.Handler { return a.server.Handler() }

// Run fills the cache, makes the default objects and serves until
// --shutdown-delay-duration after ctx ends; without a listener, only requests to
// Handler and by Provider. What only keeps something in order beside the
// requests fails and restarts on its own.
func (a *Server) Run(ctx context.Context, listener net.Listener) error {
	ctx, end := outlasting(ctx, a.flags.Requests.ShutdownDelay, a.server.Leave)
	defer end()
	if listener != nil {
		defer func() { _ = listener.Close() }()
		a.own.listen(listener.Addr())
	}
	stopAudit, err := a.startAudit()
	if err != nil {
		return err
	}
	defer stopAudit()
	// What requests need lasts until those under way have been answered.
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

// begin starts what works beside the requests, until ctx ends.
func (a *Server) begin(ctx context.Context) {
	supervise.Go(ctx, func() { supervise.Fail(ctx, a.storage.cache.Run(ctx)) })
	supervise.Go(ctx, func() { supervise.Fail(ctx, a.Provider.Run(ctx)) })
	for _, file := range a.follow {
		keep(ctx, file.flag, file.run)
	}
	if a.flags.Storage.CompactionInterval > 0 {
		keep(ctx, "compaction", func(ctx context.Context) error {
			store.Compaction(ctx, a.storage.store, a.flags.Storage.CompactionInterval)
			return nil
		})
	}
	if a.storage.encryption != nil {
		keep(ctx, "encryption", a.storage.encryption.Run)
	}
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
	case <-a.storage.cache.Synced():
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
	keep(ctx, "flow-schemas", keepFlowSchemas)
	supervise.Go(ctx, func() {
		if a.startup.wait(ctx) == nil {
			close(a.ready)
		}
	})
	if listener == nil {
		return a.server.Run(ctx, nil, nil)
	}
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
