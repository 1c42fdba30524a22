package metrics

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Checks counts the results of health checks. They are exposed separately, at
// /metrics/slis (KEP-3466).
type Checks struct {
	registry *Registry
	last     *prometheus.GaugeVec
	total    *prometheus.CounterVec
}

// NewChecks returns counters without results.
func NewChecks() *Checks {
	r := &Registry{Registry: prometheus.NewRegistry()}
	return &Checks{
		registry: r,
		last:     r.gauge("kubernetes_healthcheck", stable+"This metric records the result of a single healthcheck.", "name", "type"),
		total:    r.counter("kubernetes_healthchecks_total", stable+"This metric records the results of all healthcheck.", "name", "type", "status"),
	}
}

// Observe records the result of a check. kind is healthz, livez or readyz.
func (c *Checks) Observe(kind, name string, err error) {
	value, status := 1.0, "success"
	if err != nil {
		value, status = 0, "error"
	}
	c.last.WithLabelValues(name, kind).Set(value)
	c.total.WithLabelValues(name, kind, status).Inc()
}

// Handler returns a handler that serves the results.
func (c *Checks) Handler() http.Handler {
	return promhttp.HandlerFor(c.registry.Registry, promhttp.HandlerOpts{})
}
