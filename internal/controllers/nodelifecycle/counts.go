package nodelifecycle

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/coracle-io/coracle/internal/nativehistogram"
)

// counts are the controller's metrics, with upstream's names. Their label is the zone.
type counts struct {
	evictions               *prometheus.CounterVec // nodes that got a NoExecute taint
	health, size, unhealthy *prometheus.GaugeVec
	update                  prometheus.Histogram // of the health of one node
}

func newCounts() *counts {
	const subsystem = "node_collector"
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Subsystem: subsystem, Name: name, Help: "[ALPHA] " + help}, []string{"zone"})
	}
	return &counts{
		evictions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Subsystem: subsystem, Name: "evictions_total",
			Help: "[STABLE] Number of Node evictions that happened since current instance of NodeController started.",
		}, []string{"zone"}),
		update: nativehistogram.New(prometheus.HistogramOpts{
			Subsystem: subsystem, Name: "update_node_health_duration_seconds",
			Help:    "[ALPHA] Duration in seconds for NodeController to update the health of a single node.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 8),
		}),
		health:    gauge("zone_health", "Gauge measuring percentage of healthy nodes per zone."),
		size:      gauge("zone_size", "Gauge measuring number of registered Nodes per zones."),
		unhealthy: gauge("unhealthy_nodes_in_zone", "Gauge measuring number of not Ready Nodes per zones."),
	}
}

func (c *counts) collectors() []prometheus.Collector {
	return []prometheus.Collector{c.evictions, c.health, c.size, c.unhealthy, c.update}
}

// show sets the gauges of a zone, and shows its evictions from the start. A zone that
// has lost its last node has no gauges.
func (c *counts) show(name string, z *zone) {
	all := z.ready + z.notReady
	if all == 0 {
		for _, g := range []*prometheus.GaugeVec{c.health, c.size, c.unhealthy} {
			g.DeleteLabelValues(name)
		}
		return
	}
	c.evictions.WithLabelValues(name)
	c.health.WithLabelValues(name).Set(100 * float64(z.ready) / float64(all))
	c.size.WithLabelValues(name).Set(float64(all))
	c.unhealthy.WithLabelValues(name).Set(float64(z.notReady))
}
