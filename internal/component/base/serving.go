package base

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/pprof"
	"slices"
	"strconv"
	"sync"

	"github.com/spf13/pflag"
	x509request "k8s.io/apiserver/pkg/authentication/request/x509"
	certutil "k8s.io/client-go/util/cert"

	"github.com/coracle-io/coracle/internal/apiserver/health"
	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/httpserver"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Serving is the HTTPS server of a component that is none itself: /healthz,
// /livez and /readyz for everybody, /metrics, /statusz, /flagz and
// /debug/pprof/ for whom the API server lets read those paths.
type Serving struct {
	BindAddress  string
	Port         int // 0 is none
	CertFile     string
	KeyFile      string
	ClientCAFile string
	// AlwaysAllowPaths are served without asking the API server.
	AlwaysAllowPaths []string
	Profiling        bool

	// GetCertificate serves; nil is CertFile, or else a certificate that the
	// component signs itself.
	GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// ClientCA verifies client certificates; nil is ClientCAFile, or else the
	// authority that the API server publishes.
	ClientCA x509request.VerifyOptionFunc
}

func NewServing(port int) Serving {
	return Serving{
		BindAddress: "0.0.0.0", Port: port, Profiling: true,
		AlwaysAllowPaths: []string{"/healthz", "/readyz", "/livez"},
	}
}

// AddFlags binds the flags.
func (s *Serving) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&s.BindAddress, "bind-address", s.BindAddress, "address of /healthz and /metrics")
	fs.IntVar(&s.Port, "secure-port", s.Port, "port of /healthz and /metrics; 0 is none")
	fs.StringVar(&s.CertFile, "tls-cert-file", s.CertFile, "certificate to serve with (default: one that the component signs itself)")
	fs.StringVar(&s.KeyFile, "tls-private-key-file", s.KeyFile, "key of --tls-cert-file")
	fs.StringVar(&s.ClientCAFile, "client-ca-file", s.ClientCAFile, "authority of client certificates (default: that which the API server publishes)")
	fs.StringSliceVar(&s.AlwaysAllowPaths, "authorization-always-allow-paths", s.AlwaysAllowPaths, "paths that everybody may read")
	fs.BoolVar(&s.Profiling, "profiling", s.Profiling, "serve profiles at /debug/pprof/ to whoever may read that path")
}

// Run serves until ctx ends. own is the component's identity, flags are what
// it was started with, c is what it counts.
func (s *Serving) Run(ctx context.Context, component string, own *client.Client, flags FlagValues, c *Counts) error {
	if s.Port == 0 {
		<-ctx.Done()
		return nil
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(s.BindAddress, strconv.Itoa(s.Port)))
	if err != nil {
		return fmt.Errorf("port %d of the %s is taken: stop what listens there, or choose another with --secure-port (%w)", s.Port, component, err)
	}
	defer func() { _ = listener.Close() }()
	certificate, err := s.certificate()
	if err != nil {
		return err
	}
	access, err := s.newAccess(ctx, own)
	if err != nil {
		return err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certificate, ClientAuth: tls.RequestClientCert, NextProtos: []string{"h2", "http/1.1"}}
	httpserver.Announce(config, verified(access.clients))
	server := httpserver.New(ctx, access.guard(s.handlers(ctx, component, flags, c)), config)
	return Together(ctx, access.run, func(ctx context.Context) error {
		stop := context.AfterFunc(ctx, func() { _ = server.Close() })
		defer stop()
		if err := server.ServeTLS(httpserver.NewDoor(listener), "", ""); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
}

func (s *Serving) handlers(ctx context.Context, component string, flags FlagValues, c *Counts) http.Handler {
	handlers := map[string]http.Handler{"/metrics": c.Handler(), "/metrics/slis": c.checks.Handler()}
	for _, kind := range []string{"healthz", "livez", "readyz"} {
		handlers["/"+kind] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c.checks.Observe(kind, "ping", nil)
			checks := []health.Check{health.Ping()}
			if kind != "livez" { // a part that fails is started again as often as the whole would be
				checks = append(checks, parts(ctx)...)
			}
			health.Handler("/"+kind, checks...).ServeHTTP(w, r)
		})
	}
	if s.Profiling {
		AddProfiles(handlers)
	}
	AddZPages(handlers, component, flags, nil)
	mux := http.NewServeMux()
	for path, handler := range handlers {
		mux.Handle(path, handler)
	}
	return mux
}

// AddProfiles adds the Go runtime's profiles below /debug/pprof/. The paths
// pass authentication and authorization as all others do.
func AddProfiles(handlers map[string]http.Handler) {
	handlers["/debug/pprof/"] = http.HandlerFunc(pprof.Index)
	handlers["/debug/pprof/cmdline"] = http.HandlerFunc(pprof.Cmdline)
	handlers["/debug/pprof/profile"] = httpserver.Stream(http.HandlerFunc(pprof.Profile))
	handlers["/debug/pprof/symbol"] = http.HandlerFunc(pprof.Symbol)
	handlers["/debug/pprof/trace"] = httpserver.Stream(http.HandlerFunc(pprof.Trace))
}

// parts are checks of the parts of the component that ctx belongs to.
func parts(ctx context.Context) []health.Check {
	failing := supervise.Failing(ctx)
	var checks []health.Check
	for _, name := range slices.Sorted(maps.Keys(failing)) {
		checks = append(checks, health.Check{Name: name, Run: func(context.Context) error { return failing[name] }})
	}
	return checks
}

// certificate is what to serve with. One of the component's own is made when
// the first client asks.
func (s *Serving) certificate() (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	if s.GetCertificate != nil && s.CertFile == "" {
		return s.GetCertificate, nil
	}
	if s.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(s.CertFile, s.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("--tls-cert-file: %w", err)
		}
		return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &pair, nil }, nil
	}
	own := sync.OnceValues(func() (*tls.Certificate, error) {
		cert, key, err := certutil.GenerateSelfSignedCertKey("localhost", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
		if err != nil {
			return nil, err
		}
		pair, err := tls.X509KeyPair(cert, key)
		return &pair, err
	})
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return own() }, nil
}

// Together runs functions until one fails or ctx ends, and waits for all.
func Together(ctx context.Context, run ...func(context.Context) error) error {
	g, ctx := supervise.Together(ctx)
	for _, r := range run {
		g.Go(func() error { return r(ctx) })
	}
	return g.Wait()
}
