package supervise

import (
	"context"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics collects the panics and restarts of all components of a group, or of
// one component and its parts.
type metrics struct {
	group            *Group
	only             string // the name of one component; "" is all
	panics, restarts *prometheus.Desc
}

// Metrics returns the metrics of all components of the group.
func (g *Group) Metrics() prometheus.Collector { return newMetrics(g, "") }

// Metrics returns the metrics of the component that ctx belongs to and of its
// parts.
func Metrics(ctx context.Context) prometheus.Collector {
	if s := scopeOf(ctx); s != nil && s.member != nil {
		return newMetrics(s.member.group, s.member.state.Name)
	}
	return newMetrics(NewGroup(Options{}), "")
}

func newMetrics(g *Group, only string) metrics {
	return metrics{
		group: g, only: only,
		panics: prometheus.NewDesc("coracle_component_panics_total",
			"[ALPHA] Number of panics in the component, by which it ended or gave up one piece of work.", []string{"component"}, nil),
		restarts: prometheus.NewDesc("coracle_component_restarts_total",
			"[ALPHA] Number of times the component was started again after it had failed.", []string{"component"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (c metrics) Describe(out chan<- *prometheus.Desc) { out <- c.panics; out <- c.restarts }

// Collect implements prometheus.Collector.
func (c metrics) Collect(out chan<- prometheus.Metric) {
	status, _ := c.group.Status()
	for _, m := range status.Components {
		if c.only != "" && m.Name != c.only && !strings.HasPrefix(m.Name, c.only+"/") {
			continue
		}
		out <- prometheus.MustNewConstMetric(c.panics, prometheus.CounterValue, float64(m.Panics), m.Name)
		out <- prometheus.MustNewConstMetric(c.restarts, prometheus.CounterValue, float64(m.Restarts), m.Name)
	}
}
