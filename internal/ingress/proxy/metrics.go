package proxy

import (
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// maxSeriesOfNamespace bounds the series of the requests of a namespace, but one of each
	// Ingress. Clients choose the methods, and backends the statuses: requests that would begin
	// another series count in that one.
	maxSeriesOfNamespace = 20_000
	// otherName is the method and the status of those, and of what has no name of its own.
	otherName = "other"
)

// Metrics are the metrics of a proxy. They are a prometheus.Collector.
type Metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	retries  prometheus.Counter
	refused  *prometheus.CounterVec
	open     prometheus.Gauge

	mu     sync.Mutex         // guards the following, and the series of requests and duration
	series map[owner][]series // of requests, but those of further ones
	counts map[string]int     // of these, by namespace
}

// owner is the Ingress that has the route of requests.
type owner struct{ namespace, name string }

// series is the method and the status of requests.
type series struct{ method, code string }

// NewMetrics returns metrics of requests that are still to come.
func NewMetrics() *Metrics {
	const prefix = "coracle_ingress_"
	return &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "requests_total", Help: "Requests of clients, by the Ingress that has their route, or HTTPRoute/NAME or GRPCRoute/NAME, method and status. Both names are empty without a route; 499 is a client that did not wait.",
		}, []string{"namespace", "ingress", "method", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: prefix + "request_duration_seconds", Help: "Time from the headers of a request to the end of its response, by the Ingress that has its route.",
			Buckets: []float64{0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"namespace", "ingress"}),
		retries: prometheus.NewCounter(prometheus.CounterOpts{
			Name: prefix + "retries_total", Help: "Attempts to send a request again, because an endpoint did not take it.",
		}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "refused_total", Help: "What was refused because there was no room: a connection that was closed for another one, or a request beyond the share of its namespace.",
		}, []string{"what"}),
		open: prometheus.NewGauge(prometheus.GaugeOpts{Name: prefix + "connections", Help: "Open connections of clients."}),

		series: map[owner][]series{}, counts: map[string]int{},
	}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	for _, c := range m.all() {
		c.Describe(to)
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	for _, c := range m.all() {
		c.Collect(to)
	}
}

func (m *Metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.requests, m.duration, m.retries, m.refused, m.open}
}

// record counts a request.
func (m *Metrics) record(method string, x *exchange, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var of owner
	if x.route != nil {
		of = owner{x.route.Namespace, x.route.Name}
		m.duration.WithLabelValues(of.namespace, of.name).Observe(took.Seconds())
	}
	s := m.seriesOf(of, series{methodName(method), codeName(x.status)})
	m.requests.WithLabelValues(of.namespace, of.name, s.method, s.code).Inc()
}

// seriesOf returns the series in which a request is counted. The caller must hold the mutex.
func (m *Metrics) seriesOf(of owner, s series) series {
	switch {
	case slices.Contains(m.series[of], s):
		return s
	case m.counts[of.namespace] >= maxSeriesOfNamespace:
		return series{otherName, otherName}
	}
	m.series[of] = append(m.series[of], s)
	m.counts[of.namespace]++
	return s
}

// codeName returns a status, "other" for one that no standard has: backends can send any.
func codeName(code int) string {
	if http.StatusText(code) == "" && code != statusClientGone {
		return otherName
	}
	return strconv.Itoa(code)
}

// methodName returns a method, "other" for one that no standard has.
func methodName(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return method
	}
	return otherName
}

// forget drops the series of an Ingress that is gone.
func (m *Metrics) forget(namespace, name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	of := owner{namespace, name}
	for _, s := range append(m.series[of], series{otherName, otherName}) {
		m.requests.DeleteLabelValues(namespace, name, s.method, s.code)
	}
	m.duration.DeleteLabelValues(namespace, name)
	if m.counts[namespace] -= len(m.series[of]); m.counts[namespace] == 0 {
		delete(m.counts, namespace)
	}
	delete(m.series, of)
}
