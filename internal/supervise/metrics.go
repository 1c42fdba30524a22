package supervise

import (
	"context"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// counts shows how often components panicked and were started again, as
// Prometheus metrics: all of a group, or one with its parts.
type counts struct {
	group            *Group
	only             string // "" is all
	panics, restarts *prometheus.Desc
}

// Counts returns the metrics of all components of the group.
func (g *Group) Counts() prometheus.Collector { return newCounts(g, "") }

// Counts returns the metrics of the component that ctx belongs to and of its
// parts.
func Counts(ctx context.Context) prometheus.Collector {
	if s := scopeOf(ctx); s != nil && s.member != nil {
		return newCounts(s.member.group, s.member.state.Name)
	}
	return newCounts(NewGroup(Options{}), "")
}

func newCounts(g *Group, only string) counts {
	return counts{
		group: g, only: only,
		panics: prometheus.NewDesc("coracle_component_panics_total",
			"[ALPHA] Number of panics in the component, by which it ended or gave up one piece of work.", []string{"component"}, nil),
		restarts: prometheus.NewDesc("coracle_component_restarts_total",
			"[ALPHA] Number of times the component was started again after it had failed.", []string{"component"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (c counts) Describe(out chan<- *prometheus.Desc) { out <- c.panics; out <- c.restarts }

// Collect implements prometheus.Collector.
func (c counts) Collect(out chan<- prometheus.Metric) {
	status, _ := c.group.Status()
	for _, m := range status.Components {
		if c.only != "" && m.Name != c.only && !strings.HasPrefix(m.Name, c.only+"/") {
			continue
		}
		out <- prometheus.MustNewConstMetric(c.panics, prometheus.CounterValue, float64(m.Panics), m.Name)
		out <- prometheus.MustNewConstMetric(c.restarts, prometheus.CounterValue, float64(m.Restarts), m.Name)
	}
}
