// Package server answers what the API server and monitoring ask a node:
// logs, exec, attach, port-forward, pods, statistics and metrics over HTTPS
// (port 10250), and health on loopback (port 10248).
//
//	request ─► authenticate ─► authorize (nodes/log, nodes/stats, ...) ─► handler
//	exec, attach, port-forward: upgraded and proxied to the runtime's streaming server
//
// It corresponds to upstream's package server.
package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	internalapi "k8s.io/cri-api/pkg/apis"
	"k8s.io/klog/v2"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/health"
	"github.com/coracle-io/coracle/internal/httpserver"
	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/logs"
	"github.com/coracle-io/coracle/internal/kubelet/probe"
	"github.com/coracle-io/coracle/internal/kubelet/stats"
	"github.com/coracle-io/coracle/internal/logging"
	"github.com/coracle-io/coracle/internal/metrics"
	"github.com/coracle-io/coracle/internal/supervise"
	"github.com/coracle-io/coracle/internal/tracing"
)

// errNotFound reports that a pod has no such container.
var errNotFound = errors.New("not found")

// Pods are the pods of the node, with their statuses.
type Pods interface {
	Pods() []*v1.Pod
	// Pod returns one pod, by its UID if uid is not empty; nil if there is
	// none.
	Pod(namespace, name string, uid types.UID) *v1.Pod
}

// Stats provides the resource usage of the node and its pods.
type Stats interface {
	Summary(ctx context.Context, onlyCPUAndMemory bool) (*statsapi.Summary, error)
	Groups(ctx context.Context) (stats.Machine, []stats.Group, error)
}

// Access has the identity of the server and the rules for its clients.
// CompleteAccess sets what is nil.
type Access struct {
	// GetCertificate returns the server's certificate.
	GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// CertDirectory keeps the serving certificate that is requested or
	// self-signed; "" keeps a self-signed one in memory.
	CertDirectory string
	// ClientCAs verify client certificates, and are named in handshakes.
	ClientCAs     func() *x509.CertPool
	Authenticator authenticator.Request
	Authorizer    authorizer.Authorizer
}

// Config configures a Server.
type Config struct {
	Access
	Configuration *kubeletconfig.KubeletConfiguration // with defaults
	Features      *feature.Set                        // nil means the defaults
	Pods          Pods
	Runtime       internalapi.RuntimeService
	Stats         Stats
	ProbeCounts   func() map[probe.Count]int
	Healthy       func() error // returns an error while the kubelet does not do its work
	Checks        []health.Check
	Files         files.FS
	CheckpointDir string // of archives of containers
	NodeName      string
	Metrics       prometheus.Gatherer // what the kubelet counts of its own work
	Requests      *Requests           // nil: requests are not measured
	SystemLogs    string              // folder of /logs/, if the configuration has that page
	// LogDirectories are directories of the kubelet that /logs/ shows in SystemLogs, by
	// their names there.
	LogDirectories map[string]string
	Pages          map[string]http.Handler // more pages by path
	Traces         *tracing.Provider       // makes spans of the requests to the secure server; nil makes none
}

// Server is the kubelet's two HTTP servers.
type Server struct {
	config  Config
	tls     *tls.Config // without a certificate
	secure  net.Listener
	healthz net.Listener
	watches logs.Watches
	results *metrics.Checks // of the health checks
}

// Listen opens the ports, so that a port in use is reported at once.
func Listen(config Config) (*Server, error) {
	c := config.Configuration
	secured, err := TLS(c)
	if err != nil {
		return nil, err
	}
	s := &Server{config: config, tls: secured, results: metrics.NewChecks()}
	address := net.JoinHostPort(c.Address, strconv.Itoa(int(c.Port)))
	if s.secure, err = net.Listen("tcp", address); err != nil {
		return nil, fmt.Errorf("the kubelet cannot serve on %s (--port chooses another port): %w", address, err)
	}
	if *c.HealthzPort > 0 {
		address := net.JoinHostPort(c.HealthzBindAddress, strconv.Itoa(int(*c.HealthzPort)))
		if s.healthz, err = net.Listen("tcp", address); err != nil {
			_ = s.secure.Close()
			return nil, fmt.Errorf("the kubelet cannot serve /healthz on %s (--healthz-port chooses another port): %w", address, err)
		}
	}
	return s, nil
}

// Run serves until ctx ends. It then closes open streams.
func (s *Server) Run(ctx context.Context) {
	secured := s.tls.Clone()
	secured.GetCertificate = s.config.GetCertificate
	if s.config.ClientCAs != nil {
		httpserver.AdvertiseClientCAs(secured, s.config.ClientCAs)
	}
	secure := httpserver.New(ctx, s.config.Requests.measure(s.authorized(s.traced(s.Handler()))), secured)
	secure.BaseContext = func(net.Listener) context.Context { return ctx }
	plain := httpserver.New(ctx, s.healthHandler(), nil)
	var serving supervise.WaitGroup
	serve := func(f func() error, address net.Addr) {
		serving.Go(ctx, func() {
			if err := f(); err != nil && !errors.Is(err, http.ErrServerClosed) {
				klog.FromContext(ctx).Error(err, "The kubelet's server ended", "address", address)
			}
		})
	}
	serve(func() error { return secure.ServeTLS(httpserver.NewMainListener(s.secure), "", "") }, s.secure.Addr())
	if s.healthz != nil {
		serve(func() error { return plain.Serve(httpserver.NewListener(s.healthz)) }, s.healthz.Addr())
	}
	<-ctx.Done()
	_ = secure.Close()
	_ = plain.Close()
	serving.Wait()
}

func (s *Server) healthHandler() http.Handler {
	mux := http.NewServeMux()
	s.addHealth(mux)
	return mux
}

// addHealth serves the kubelet's checks, by upstream's names.
func (s *Server) addHealth(mux *http.ServeMux) {
	checks := append([]health.Check{health.Ping(), {Name: "log", Run: logging.Check},
		{Name: "syncloop", Run: func(context.Context) error { return s.config.Healthy() }}}, s.config.Checks...)
	h := health.Handler("/healthz", s.results.Observed("healthz", checks)...)
	mux.Handle("/healthz", h)
	mux.Handle("/healthz/{check}", h)
}

// Handler is the secure server's handler without authentication.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	s.addHealth(mux)
	mux.HandleFunc("GET /pods", s.pods)
	mux.HandleFunc("GET /pods/{$}", s.pods)
	mux.HandleFunc("GET /metrics", s.metrics)
	mux.HandleFunc("GET /metrics/resource", s.metricsResource)
	mux.HandleFunc("GET /metrics/cadvisor", s.metricsCadvisor)
	mux.HandleFunc("GET /metrics/probes", s.metricsProbes)
	mux.Handle("GET /metrics/slis", s.results.Handler())
	mux.HandleFunc("GET /stats/summary", s.summary)
	mux.HandleFunc("POST /stats/summary", s.summary)
	mux.HandleFunc("GET /configz", s.configz)
	for path, page := range s.config.Pages {
		mux.Handle("GET "+path, page)
	}
	if *s.config.Configuration.EnableDebuggingHandlers {
		s.addDebugging(mux)
	} else {
		disabled(mux, "Debug endpoints are disabled.", "/run/", "/exec/", "/attach/", "/portForward/", "/containerLogs/", "/runningpods/", "/debug/pprof/", "/logs/")
	}
	return mux
}

// disabled answers requests to paths with why they are not served.
func disabled(mux *http.ServeMux, why string, paths ...string) {
	for _, path := range paths {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, why, http.StatusMethodNotAllowed) })
	}
}

// addDebugging serves what enableDebuggingHandlers turns off: what runs in containers, the
// logs, and the log level and the profiles of the kubelet.
func (s *Server) addDebugging(mux *http.ServeMux) {
	stream := func(pattern string, h http.HandlerFunc) { mux.Handle(pattern, httpserver.Stream(h)) }
	mux.HandleFunc("GET /runningpods/", s.runningPods)
	stream("GET /containerLogs/{namespace}/{pod}/{container}", s.containerLogs)
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		stream(method+" /exec/{namespace}/{pod}/{container}", s.exec)
		stream(method+" /exec/{namespace}/{pod}/{uid}/{container}", s.exec)
		stream(method+" /attach/{namespace}/{pod}/{container}", s.attach)
		stream(method+" /attach/{namespace}/{pod}/{uid}/{container}", s.attach)
		stream(method+" /portForward/{namespace}/{pod}", s.portForward)
		stream(method+" /portForward/{namespace}/{pod}/{uid}", s.portForward)
	}
	stream("POST /run/{namespace}/{pod}/{container}", s.run)
	stream("POST /run/{namespace}/{pod}/{uid}/{container}", s.run)
	if s.config.Features.Enabled(feature.ContainerCheckpoint) {
		stream("POST /checkpoint/{namespace}/{pod}/{container}", s.checkpoint)
	}
	if *s.config.Configuration.EnableSystemLogHandler {
		mux.Handle("GET /logs/", httpserver.Stream(http.StripPrefix("/logs/", s.systemLogs())))
	} else {
		disabled(mux, "logs endpoint is disabled.", "/logs/")
	}
	if *s.config.Configuration.EnableDebugFlagsHandler {
		mux.Handle(logging.LevelPath, logging.LevelHandler())
	} else {
		disabled(mux, "flags endpoint is disabled.", logging.LevelPath)
	}
	if !*s.config.Configuration.EnableProfilingHandler {
		disabled(mux, "profiling endpoint is disabled.", "/debug/pprof/")
		return
	}
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	stream("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	stream("/debug/pprof/trace", pprof.Trace)
}

func writeJSON(w http.ResponseWriter, value any) {
	raw, err := json.Marshal(value)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(raw)
}

func podList(pods []*v1.Pod) *v1.PodList {
	list := &v1.PodList{Items: []v1.Pod{}}
	list.APIVersion, list.Kind = "v1", "PodList"
	for _, p := range pods {
		list.Items = append(list.Items, *p)
	}
	return list
}

func (s *Server) pods(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, podList(s.config.Pods.Pods()))
}

func (s *Server) runningPods(w http.ResponseWriter, r *http.Request) {
	pods, err := s.running(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	writeJSON(w, podList(pods))
}

func (s *Server) configz(w http.ResponseWriter, _ *http.Request) {
	shown := *s.config.Configuration
	shown.TypeMeta = metav1.TypeMeta{APIVersion: kubeletconfig.SchemeGroupVersion.String(), Kind: "KubeletConfiguration"}
	shown.CgroupDriver = "cgroupfs" // a kubelet whose runtime uses another ends
	writeJSON(w, map[string]any{"kubeletconfig": &shown})
}

func (s *Server) summary(w http.ResponseWriter, r *http.Request) {
	only, _ := strconv.ParseBool(r.URL.Query().Get("only_cpu_and_memory"))
	summary, err := s.config.Stats.Summary(r.Context(), only)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	writeJSON(w, summary)
}

// find returns the pod of the path of a request. If there is none, it answers
// the request and returns nil.
func (s *Server) find(w http.ResponseWriter, r *http.Request) *v1.Pod {
	namespace, name := r.PathValue("namespace"), r.PathValue("pod")
	pod := s.config.Pods.Pod(namespace, name, types.UID(r.PathValue("uid")))
	if pod == nil {
		http.Error(w, fmt.Sprintf("pod %q not found", name+"_"+namespace), http.StatusNotFound)
	}
	return pod
}
