// Package server answers what the API server and monitoring ask a node:
// logs, exec, attach, port-forward, pods, statistics and metrics over HTTPS
// (port 10250), and health on loopback (port 10248).
//
//	request ─► authenticate ─► authorize (nodes/log, nodes/stats, ...) ─► handler
//	exec, attach, port-forward: upgraded and proxied to the runtime's streaming server
//
// It stands for upstream's package server.
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
	"time"

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

	"github.com/coracle-io/coracle/internal/httpserver"
	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/probe"
	"github.com/coracle-io/coracle/internal/kubelet/stats"
	"github.com/coracle-io/coracle/internal/supervise"
)

// errNotFound says that there is no such container in the pod.
var errNotFound = errors.New("not found")

// Pods are those of the node, with their statuses.
type Pods interface {
	Pods() []*v1.Pod
	// Pod finds one, by its uid where that is not ""; nil if there is none.
	Pod(namespace, name string, uid types.UID) *v1.Pod
}

// Stats tells what the node and its pods use.
type Stats interface {
	Summary(ctx context.Context, onlyCPUAndMemory bool) (*statsapi.Summary, error)
	Groups(ctx context.Context) (stats.Machine, []stats.Group, error)
}

// Config is what a Server is made from.
type Config struct {
	Pods           Pods
	Runtime        internalapi.RuntimeService
	Stats          Stats
	ProbeCounts    func() map[probe.Count]int
	Healthy        func() error // returns an error while the kubelet does not do its work
	Configuration  kubeletconfig.KubeletConfiguration
	Files          files.FS
	CheckpointDir  string // of archives of containers
	NodeName       string
	Address        string
	Port           int32
	HealthzAddress string
	HealthzPort    int32 // 0: none
	GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	ClientCAs      func() *x509.CertPool // authorities of client certificates, which handshakes name; nil names none
	StreamIdle     time.Duration         // how long a stream may carry nothing in either direction; 0 is for ever
	Metrics        prometheus.Gatherer   // what the kubelet counts of its own work
	Authenticator  authenticator.Request
	Authorizer     authorizer.Authorizer
	Debugging      bool // exec, logs and the like
	Profiling      bool
	SystemLogs     string // folder of /logs/, "" for none
}

// Server is the kubelet's two HTTP servers.
type Server struct {
	config  Config
	secure  net.Listener
	healthz net.Listener
}

// Listen opens the ports, so that one that is taken is known at once.
func Listen(config Config) (*Server, error) {
	s := &Server{config: config}
	address := net.JoinHostPort(config.Address, strconv.Itoa(int(config.Port)))
	var err error
	if s.secure, err = net.Listen("tcp", address); err != nil {
		return nil, fmt.Errorf("the kubelet cannot serve on %s (--port chooses another port): %w", address, err)
	}
	if config.HealthzPort > 0 {
		address := net.JoinHostPort(config.HealthzAddress, strconv.Itoa(int(config.HealthzPort)))
		if s.healthz, err = net.Listen("tcp", address); err != nil {
			_ = s.secure.Close()
			return nil, fmt.Errorf("the kubelet cannot serve /healthz on %s (--healthz-port chooses another port): %w", address, err)
		}
	}
	return s, nil
}

// Run serves until ctx ends; streams that are open then are cut.
func (s *Server) Run(ctx context.Context) {
	secured := &tls.Config{GetCertificate: s.config.GetCertificate, ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	if s.config.ClientCAs != nil {
		httpserver.Announce(secured, s.config.ClientCAs)
	}
	secure := httpserver.New(ctx, s.guard(s.Handler()), secured)
	secure.BaseContext = func(net.Listener) context.Context { return ctx }
	health := httpserver.New(ctx, s.healthHandler(), nil)
	var serving supervise.WaitGroup
	serve := func(f func() error, address net.Addr) {
		serving.Go(ctx, func() {
			if err := f(); err != nil && !errors.Is(err, http.ErrServerClosed) {
				klog.FromContext(ctx).Error(err, "The kubelet's server ended", "address", address)
			}
		})
	}
	serve(func() error { return secure.ServeTLS(httpserver.NewMainDoor(s.secure), "", "") }, s.secure.Addr())
	if s.healthz != nil {
		serve(func() error { return health.Serve(httpserver.NewDoor(s.healthz)) }, s.healthz.Addr())
	}
	<-ctx.Done()
	_ = secure.Close()
	_ = health.Close()
	serving.Wait()
}

func (s *Server) healthHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", s.health)
	mux.HandleFunc("/healthz/{check}", s.health)
	return mux
}

// Handler is the secure server's handler without authentication.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	stream := func(pattern string, h http.HandlerFunc) { mux.Handle(pattern, httpserver.Stream(h)) }
	mux.HandleFunc("/healthz", s.health)
	mux.HandleFunc("/healthz/{check}", s.health)
	mux.HandleFunc("GET /pods", s.pods)
	mux.HandleFunc("GET /pods/{$}", s.pods)
	mux.HandleFunc("GET /metrics", s.metrics)
	mux.HandleFunc("GET /metrics/resource", s.metricsResource)
	mux.HandleFunc("GET /metrics/cadvisor", s.metricsCadvisor)
	mux.HandleFunc("GET /metrics/probes", s.metricsProbes)
	mux.HandleFunc("GET /stats/summary", s.summary)
	mux.HandleFunc("POST /stats/summary", s.summary)
	mux.HandleFunc("GET /configz", s.configz)
	if s.config.Debugging {
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
		stream("POST /checkpoint/{namespace}/{pod}/{container}", s.checkpoint)
		if s.config.SystemLogs != "" {
			mux.Handle("GET /logs/", httpserver.Stream(http.StripPrefix("/logs/", http.FileServer(systemLogs(s.config.SystemLogs)))))
		}
	}
	if s.config.Profiling {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		stream("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		stream("/debug/pprof/trace", pprof.Trace)
	}
	return mux
}

func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	if err := s.config.Healthy(); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write([]byte("ok"))
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
	shown := s.config.Configuration
	shown.TypeMeta = metav1.TypeMeta{APIVersion: kubeletconfig.SchemeGroupVersion.String(), Kind: "KubeletConfiguration"}
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

// find looks up the pod that a request's path names, or answers the request.
func (s *Server) find(w http.ResponseWriter, r *http.Request) *v1.Pod {
	namespace, name := r.PathValue("namespace"), r.PathValue("pod")
	pod := s.config.Pods.Pod(namespace, name, types.UID(r.PathValue("uid")))
	if pod == nil {
		http.Error(w, fmt.Sprintf("pod %q not found", name+"_"+namespace), http.StatusNotFound)
	}
	return pod
}
