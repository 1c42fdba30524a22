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

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/flagvalue"
	"github.com/coracle-io/coracle/internal/health"
	"github.com/coracle-io/coracle/internal/httpserver"
	"github.com/coracle-io/coracle/internal/logging"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Serving is the HTTPS server of a component other than the API server. It serves
// /healthz, /livez and /readyz to all clients, and /metrics, /statusz, /flagz,
// /debug/pprof/ and /debug/flags/v to clients that the API server authorizes.
type Serving struct {
	BindAddress  string
	Port         int // 0 means no server
	CertFile     string
	KeyFile      string
	ClientCAFile string
	// AlwaysAllowPaths are served without asking the API server.
	AlwaysAllowPaths []string
	Profiling        bool
	// Checks are further health checks of the component.
	Checks []health.Check
	// Ready are further checks of /readyz alone.
	Ready []health.Check
	// Pages are more pages by path, such as /configz.
	Pages map[string]http.Handler

	// GetCertificate returns the serving certificate. If it is nil, CertFile is
	// used or, without that, a self-signed certificate.
	GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// ClientCA verifies client certificates. If it is nil, ClientCAFile is used
	// or, without that, the authority that the API server publishes.
	ClientCA x509request.VerifyOptionFunc
}

// NewServing returns upstream's defaults for a port.
func NewServing(port int) Serving {
	return Serving{
		BindAddress: "0.0.0.0", Port: port, Profiling: true,
		AlwaysAllowPaths: []string{"/healthz", "/readyz", "/livez"},
	}
}

// ProfilingUsage is the usage of --profiling.
const ProfilingUsage = "serve profiles at /debug/pprof/ to users who may get that path"

// AddFlags binds the flags to fs, except for --profiling, which the configuration
// of some components has.
func (s *Serving) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&s.BindAddress, "bind-address", s.BindAddress, "address of /healthz and /metrics")
	fs.IntVar(&s.Port, "secure-port", s.Port, "port of /healthz and /metrics; 0 is none")
	fs.StringVar(&s.CertFile, "tls-cert-file", s.CertFile, "certificate to serve with (default: one that the component signs itself)")
	fs.StringVar(&s.KeyFile, "tls-private-key-file", s.KeyFile, "key of --tls-cert-file")
	fs.StringVar(&s.ClientCAFile, "client-ca-file", s.ClientCAFile, "authority of client certificates (default: the one in the ConfigMap kube-system/extension-apiserver-authentication)")
	fs.StringSliceVar(&s.AlwaysAllowPaths, "authorization-always-allow-paths", s.AlwaysAllowPaths, "paths that need no authorization")
	flagvalue.Is(fs, flagvalue.Address, "bind-address")
	flagvalue.Is(fs, flagvalue.File, "tls-cert-file", "tls-private-key-file", "client-ca-file")
}

// Run serves until ctx ends. own is the component's client, flags are the flags
// it was started with, and c are its metrics.
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
	httpserver.AdvertiseClientCAs(config, verified(access.clients))
	server := httpserver.New(ctx, access.guard(s.handlers(ctx, component, flags, c)), config)
	return Together(ctx, access.run, func(ctx context.Context) error {
		stop := context.AfterFunc(ctx, func() { _ = server.Close() })
		defer stop()
		if err := server.ServeTLS(httpserver.NewListener(listener), "", ""); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
}

func (s *Serving) handlers(ctx context.Context, component string, flags FlagValues, c *Counts) http.Handler {
	handlers := map[string]http.Handler{"/metrics": c.Handler(), "/metrics/slis": c.checks.Handler()}
	for _, kind := range []string{"healthz", "livez", "readyz"} {
		own := slices.Concat([]health.Check{health.Ping()}, s.Checks)
		if kind == "readyz" {
			own = append(own, s.Ready...)
		}
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			checks := c.checks.Observed(kind, own)
			if kind != "livez" { // failed parts are restarted without the process
				checks = append(checks, parts(ctx)...)
			}
			health.Handler("/"+kind, checks...).ServeHTTP(w, r)
		})
		handlers["/"+kind], handlers["/"+kind+"/"] = handler, handler
	}
	maps.Copy(handlers, s.Pages)
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

// AddProfiles adds the Go runtime's profiles below /debug/pprof/, and as upstream with
// them what sets the log level. The server authenticates and authorizes requests for them
// as for other paths.
func AddProfiles(handlers map[string]http.Handler) {
	handlers[logging.LevelPath] = logging.LevelHandler()
	handlers["/debug/pprof/"] = http.HandlerFunc(pprof.Index)
	handlers["/debug/pprof/cmdline"] = http.HandlerFunc(pprof.Cmdline)
	handlers["/debug/pprof/profile"] = httpserver.Stream(http.HandlerFunc(pprof.Profile))
	handlers["/debug/pprof/symbol"] = http.HandlerFunc(pprof.Symbol)
	handlers["/debug/pprof/trace"] = httpserver.Stream(http.HandlerFunc(pprof.Trace))
}

// parts returns checks of the parts of the component that ctx belongs to.
func parts(ctx context.Context) []health.Check {
	failing := supervise.FailingParts(ctx)
	var checks []health.Check
	for _, name := range slices.Sorted(maps.Keys(failing)) {
		checks = append(checks, health.Check{Name: name, Run: func(context.Context) error { return failing[name] }})
	}
	return checks
}

// certificate returns the function for the serving certificate. It creates a
// self-signed one on the first connection.
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

// Together runs functions concurrently until one fails or ctx ends. It waits for
// all of them and returns the first error.
func Together(ctx context.Context, run ...func(context.Context) error) error {
	g, ctx := supervise.WithContext(ctx)
	for _, r := range run {
		g.Go(func() error { return r(ctx) })
	}
	return g.Wait()
}
