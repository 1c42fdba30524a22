package server

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coracle-io/coracle/internal/nativehistogram"
)

// Requests measures the requests to the secure server under upstream's names.
type Requests struct {
	total    *prometheus.CounterVec
	inFlight *prometheus.GaugeVec
	duration *prometheus.HistogramVec
}

// NewRequests returns Requests that show themselves in a registry.
func NewRequests(r prometheus.Registerer) *Requests {
	labels := []string{"method", "path", "server_type", "long_running"}
	m := &Requests{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_http_requests_total",
			Help: "[ALPHA] Number of the http requests received since the server started"}, labels),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "kubelet_http_inflight_requests", Help: "[ALPHA] Number of the inflight http requests"}, labels),
		duration: nativehistogram.NewVec(prometheus.HistogramOpts{Name: "kubelet_http_requests_duration_seconds",
			Help: "[ALPHA] Duration in seconds to serve http requests", Buckets: prometheus.DefBuckets}, labels),
	}
	r.MustRegister(m.total, m.inFlight, m.duration)
	return m
}

// measure returns a handler whose requests are measured. m may be nil.
func (m *Requests) measure(next http.Handler) http.Handler {
	if m == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := requestPath(r.URL.Path)
		labels := []string{requestMethod(r.Method), path, "readwrite", strconv.FormatBool(longRunning(path))}
		m.total.WithLabelValues(labels...).Inc()
		inFlight := m.inFlight.WithLabelValues(labels...)
		inFlight.Inc()
		began := time.Now()
		defer func() {
			inFlight.Dec()
			m.duration.WithLabelValues(labels...).Observe(time.Since(began).Seconds())
		}()
		next.ServeHTTP(w, r)
	})
}

// requestMethod returns the label of a method: anybody can send any.
func requestMethod(method string) string {
	switch method {
	case http.MethodConnect, http.MethodDelete, http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodPatch, http.MethodPost, http.MethodPut, http.MethodTrace:
		return method
	}
	return "other"
}

// requestPath returns the label of a path: what the server has there, without its names.
func requestPath(path string) string {
	path = strings.TrimPrefix(path, "/")
	root, _, _ := strings.Cut(path, "/")
	if root == "metrics" {
		root = path
	}
	switch root {
	case "attach", "checkpoint", "configz", "containerLogs", "debug", "exec", "healthz", "logs", "metrics", "metrics/cadvisor", "metrics/probes",
		"metrics/resource", "pods", "portForward", "run", "runningpods", "stats":
		return root
	}
	return "other"
}

// longRunning reports whether requests for a path last as long as their clients want.
func longRunning(path string) bool {
	switch path {
	case "attach", "debug", "exec", "portForward":
		return true
	}
	return false
}
