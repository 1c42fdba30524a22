// Package collector exports metrics of a watch cache to Prometheus.
package collector

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/coracle-io/coracle/internal/watchcache"
)

// Cache exports the counters of a watch cache for each resource. It implements
// prometheus.Collector.
type Cache struct{ *watchcache.Cache }

// perResource describes a metric with the labels group and resource, and further ones.
func perResource(name, help string, further ...string) *prometheus.Desc {
	return prometheus.NewDesc("apiserver_"+name, help, append([]string{"group", "resource"}, further...), nil)
}

// descriptions are the metrics of a Cache.
type descriptions struct {
	initEvents, received, dispatched, initializations, revision, storeReceived, decodeErrors, checks *prometheus.Desc
}

func describe() descriptions {
	return descriptions{
		initEvents:      perResource("init_events_total", "[ALPHA] Counter of init events processed in watch cache broken by resource type."),
		received:        perResource("watch_cache_events_received_total", "[ALPHA] Counter of events received in watch cache broken by resource type."),
		dispatched:      perResource("watch_cache_events_dispatched_total", "[ALPHA] Counter of events dispatched in watch cache broken by resource type."),
		initializations: perResource("watch_cache_initializations_total", "[ALPHA] Counter of watch cache initializations broken by resource type."),
		revision:        perResource("watch_cache_resource_version", "[ALPHA] Current resource version of watch cache broken by resource type. This is truncated to the 15 least significant digits."),
		storeReceived:   perResource("storage_events_received_total", "[BETA] Number of etcd events received split by kind."),
		decodeErrors:    perResource("storage_decode_errors_total", "[ALPHA] Number of stored object decode errors split by object type"),
		checks:          perResource("storage_consistency_checks_total", "[ALPHA] Counter for status of consistency checks between etcd and watch cache", "status"),
	}
}

// Describe implements prometheus.Collector.
func (Cache) Describe(out chan<- *prometheus.Desc) {
	d := describe()
	for _, desc := range []*prometheus.Desc{d.initEvents, d.received, d.dispatched, d.initializations, d.revision, d.storeReceived, d.decodeErrors, d.checks} {
		out <- desc
	}
}

// Collect implements prometheus.Collector.
func (c Cache) Collect(out chan<- prometheus.Metric) {
	d := describe()
	for _, k := range c.Kinds() {
		r, s := k.Resource(), k.Stats()
		send := func(desc *prometheus.Desc, kind prometheus.ValueType, value float64, further ...string) {
			out <- prometheus.MustNewConstMetric(desc, kind, value, append([]string{r.Group, r.Plural}, further...)...)
		}
		send(d.initEvents, prometheus.CounterValue, float64(s.Initial))
		send(d.received, prometheus.CounterValue, float64(s.Events))
		send(d.dispatched, prometheus.CounterValue, float64(s.Events))
		send(d.initializations, prometheus.CounterValue, float64(s.Initializations))
		send(d.revision, prometheus.GaugeValue, float64(c.Revision()%1e15))
		send(d.storeReceived, prometheus.CounterValue, float64(s.Events))
		if s.Undecodable > 0 {
			send(d.decodeErrors, prometheus.CounterValue, float64(s.Undecodable))
		}
		for status, n := range map[string]int64{"success": s.Compared.Same, "failure": s.Compared.Different, "error": s.Compared.Failed} {
			if n > 0 {
				send(d.checks, prometheus.CounterValue, float64(n), status)
			}
		}
	}
}
