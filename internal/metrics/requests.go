// Package metrics counts what the API server does, under upstream's names, for
// Prometheus.
package metrics

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Request is what is counted of one answered API request.
type Request struct {
	Verb                          string // of the API: get, list, create, ...
	Group, Version                string
	Resource, Subresource         string
	Namespaced, Named, IsResource bool
	DryRun                        bool
	Code                          int
}

// Requests counts API requests. Its methods may be called from any goroutine.
type Requests struct {
	registry *prometheus.Registry
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	size     *prometheus.HistogramVec
	series   sync.Map // Request to *series: finding a series by its labels costs more than counting
}

// series are the metrics of requests that are alike.
type series struct {
	total    prometheus.Counter
	duration prometheus.Observer
	size     prometheus.Observer // nil for requests that are not about resources
}

// NewRequests returns metrics that count requests; inFlight, if not nil, is
// asked how many reading and changing requests are being served.
func NewRequests(inFlight func() (reading, mutating int64)) *Requests {
	labels := []string{"verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component"}
	m := &Requests{
		registry: prometheus.NewRegistry(),
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_request_total",
			Help: "API requests by verb, resource, scope and HTTP response code.",
		}, append(labels[:len(labels):len(labels)], "code")),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "apiserver_request_duration_seconds",
			Help:    "Response latency in seconds by verb, resource and scope.",
			Buckets: []float64{0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60},
		}, labels),
		size: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "apiserver_response_sizes",
			Help:    "Response size in bytes by verb, resource and scope.",
			Buckets: prometheus.ExponentialBuckets(1000, 10, 7),
		}, []string{"verb", "group", "version", "resource", "subresource", "scope", "component"}),
	}
	m.registry.MustRegister(m.total, m.duration, m.size, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if inFlight != nil {
		m.registry.MustRegister(inFlightGauge("mutating", func() float64 { _, n := inFlight(); return float64(n) }),
			inFlightGauge("readOnly", func() float64 { n, _ := inFlight(); return float64(n) }))
	}
	return m
}

func inFlightGauge(kind string, value func() float64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "apiserver_current_inflight_requests",
		Help:        "Requests being served, by kind.",
		ConstLabels: prometheus.Labels{"request_kind": kind},
	}, value)
}

// Register adds further metrics to what Handler serves.
func (m *Requests) Register(c ...prometheus.Collector) { m.registry.MustRegister(c...) }

// Handler serves the metrics.
func (m *Requests) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// Observe counts one request.
func (m *Requests) Observe(r Request, latency time.Duration, size int) {
	r.Verb = metricVerb(r.Verb)
	found, ok := m.series.Load(r)
	if !ok {
		found, _ = m.series.LoadOrStore(r, m.newSeries(r))
	}
	s := found.(*series)
	s.total.Inc()
	s.duration.Observe(latency.Seconds())
	if s.size != nil {
		s.size.Observe(float64(size))
	}
}

func (m *Requests) newSeries(r Request) *series {
	verb, scope, dryRun := r.Verb, r.scope(), ""
	if r.DryRun {
		dryRun = "All"
	}
	labels := []string{verb, dryRun, r.Group, r.Version, r.Resource, r.Subresource, scope, "apiserver"}
	s := &series{
		total:    m.total.WithLabelValues(append(labels, strconv.Itoa(r.Code))...),
		duration: m.duration.WithLabelValues(labels...),
	}
	if r.IsResource {
		s.size = m.size.WithLabelValues(verb, r.Group, r.Version, r.Resource, r.Subresource, scope, "apiserver")
	}
	return s
}

// metricVerb is how upstream's metrics name a verb.
func metricVerb(verb string) string {
	switch verb {
	case "create":
		return "POST"
	case "update":
		return "PUT"
	case "get", "list", "watch", "patch", "delete", "deletecollection", "post", "put", "head", "options":
		return strings.ToUpper(verb)
	case "proxy":
		return "CONNECT"
	}
	return "other"
}

func (r Request) scope() string {
	switch {
	case !r.IsResource:
		return ""
	case r.Named || r.Verb == "POST":
		return "resource"
	case r.Namespaced:
		return "namespace"
	}
	return "cluster"
}
