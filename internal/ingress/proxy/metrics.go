package proxy

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the metrics of a proxy. They are a prometheus.Collector. Their number
// depends on the routes, and on nothing that a client sends.
type Metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	retries  prometheus.Counter
	refused  *prometheus.CounterVec
	open     prometheus.Gauge
}

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
	var namespace, name string
	if x.route != nil {
		namespace, name = x.route.Namespace, x.route.Name
		m.duration.WithLabelValues(namespace, name).Observe(took.Seconds())
	}
	m.requests.WithLabelValues(namespace, name, methodName(method), codeName(x.status)).Inc()
}

// codeName returns a status, "other" for one that no standard has: backends can send any.
func codeName(code int) string {
	if http.StatusText(code) == "" && code != statusClientGone {
		return "other"
	}
	return strconv.Itoa(code)
}

// methodName returns a method, "other" for one that no standard has.
func methodName(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return method
	}
	return "other"
}

// forget drops the series of an Ingress that is gone.
func (m *Metrics) forget(namespace, name string) {
	of := prometheus.Labels{"namespace": namespace, "ingress": name}
	m.requests.DeletePartialMatch(of)
	m.duration.DeletePartialMatch(of)
}
