package metrics

import (
	"context"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/coracle-io/coracle/internal/health"
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

// Observed wraps checks so that their results are recorded for an endpoint (healthz,
// livez or readyz).
func (c *Checks) Observed(kind string, checks []health.Check) []health.Check {
	all := make([]health.Check, len(checks))
	for i, check := range checks {
		all[i] = health.Check{Name: check.Name, Outside: check.Outside, Run: func(ctx context.Context) error {
			err := check.Run(ctx)
			c.Observe(kind, check.Name, err)
			return err
		}}
	}
	return all
}

// Handler returns a handler that serves the results.
func (c *Checks) Handler() http.Handler {
	return promhttp.HandlerFor(c.registry.Registry, promhttp.HandlerOpts{})
}
