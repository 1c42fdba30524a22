package proxy

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/httpserver"
	"github.com/coracle-io/coracle/internal/supervise"
)

// health tells whether the kernel follows the API: it does unless a change has
// waited to be applied for longer than stuckAfter.
type health struct {
	mu          sync.Mutex // guards the following
	pending     time.Time  // since when a change waits; zero is none
	lastUpdated time.Time
}

const stuckAfter = time.Minute

func newHealth() *health { return &health{} }

func (h *health) queued() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.pending.IsZero() {
		h.pending = time.Now()
	}
}

func (h *health) applied() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pending, h.lastUpdated = time.Time{}, time.Now()
}

func (h *health) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	now := time.Now()
	h.mu.Lock()
	healthy := !h.lastUpdated.IsZero() && (h.pending.IsZero() || now.Sub(h.pending) < stuckAfter)
	updated := h.lastUpdated
	if healthy && h.pending.IsZero() {
		updated = now
	}
	h.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if !healthy {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = fmt.Fprintf(w, `{"lastUpdated": %q,"currentTime": %q, "nodeEligible": true}`, updated, now)
}

// metrics has upstream's names.
type metrics struct {
	duration    prometheus.Histogram
	lastApplied prometheus.Gauge
	failed      prometheus.Counter
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubeproxy_sync_proxy_rules_duration_seconds", Help: "[ALPHA] SyncProxyRules latency in seconds",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}),
		lastApplied: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubeproxy_sync_proxy_rules_last_timestamp_seconds", Help: "[ALPHA] The last time proxy rules were successfully synced",
		}),
		failed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubeproxy_sync_proxy_rules_nftables_sync_failures_total", Help: "[ALPHA] Cumulative proxy nftables sync failures",
		}),
	}
	r.MustRegister(m.duration, m.lastApplied, m.failed)
	return m
}

// servers are the proxy's HTTP servers.
type servers struct {
	ctx context.Context
	all []*http.Server // but those of local

	mu    sync.Mutex // guards the following
	local map[uint16]*localServer
}

// listen opens the health and metrics addresses, so that a taken port is an
// error of the start.
func (p *Proxy) listen(ctx context.Context) (*servers, error) {
	s := &servers{ctx: ctx, local: map[uint16]*localServer{}}
	healthz := http.NewServeMux()
	healthz.Handle("/healthz", p.health)
	healthz.Handle("/livez", p.health)
	metrics := http.NewServeMux()
	metrics.Handle("/metrics", p.config.Metrics.Handler())
	metrics.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "ok") })
	metrics.HandleFunc("/proxyMode", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, p.config.Mode) })
	for _, server := range []struct {
		name, address string
		handler       http.Handler
	}{{"healthz", p.config.HealthzAddress, healthz}, {"metrics", p.config.MetricsAddress, metrics}} {
		if server.address == "" {
			continue
		}
		running, err := s.serve(server.address, server.handler)
		if err != nil {
			s.stop()
			return nil, fmt.Errorf("proxy's %s address %s cannot be used (choose another): %w", server.name, server.address, err)
		}
		s.all = append(s.all, running)
	}
	return s, nil
}

func (s *servers) serve(address string, handler http.Handler) (*http.Server, error) {
	listener, err := (&net.ListenConfig{}).Listen(s.ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	server := httpserver.New(s.ctx, handler, nil)
	supervise.Go(s.ctx, func() { _ = server.Serve(httpserver.NewDoor(listener)) })
	return server, nil
}

// stop closes all of them.
func (s *servers) stop() {
	for _, server := range s.all {
		_ = server.Close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.local {
		_ = l.server.Close()
	}
	clear(s.local)
}

// localServer answers a load balancer for one Service with
// externalTrafficPolicy Local.
type localServer struct {
	mu        sync.Mutex // guards the following
	name      PortName
	endpoints int
	server    *http.Server
}

func (l *localServer) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(l.endpoints))
	if l.endpoints == 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"service":             map[string]string{"namespace": l.name.Namespace, "name": l.name.Name},
		"localEndpoints":      l.endpoints,
		"serviceProxyHealthy": true,
	})
}

// localHealth serves the healthCheckNodePort of every Service that has one.
func (s *servers) localHealth(rules Rules) {
	s.mu.Lock()
	defer s.mu.Unlock()
	wanted := map[uint16]bool{}
	for name, port := range rules.Services {
		number := port.HealthCheckNodePort
		if number == 0 || wanted[number] {
			continue
		}
		wanted[number] = true
		l := s.local[number]
		if l == nil {
			l = &localServer{}
			server, err := s.serve(net.JoinHostPort("", strconv.Itoa(int(number))), l)
			if err != nil {
				klog.FromContext(s.ctx).Error(err, "Health check node port cannot be served", "service", name.NamespacedName, "port", number)
				continue
			}
			l.server = server
			s.local[number] = l
		}
		l.mu.Lock()
		l.name, l.endpoints = name, len(port.Local)
		l.mu.Unlock()
	}
	for number, l := range s.local {
		if !wanted[number] {
			_ = l.server.Close()
			delete(s.local, number)
		}
	}
}
