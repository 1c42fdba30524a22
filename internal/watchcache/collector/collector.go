// Package collector shows Prometheus what a watch cache has been told.
package collector

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/coracle-io/coracle/internal/watchcache"
)

// Cache shows what a watch cache has been told of each resource. It implements
// prometheus.Collector.
type Cache struct{ *watchcache.Cache }

func perResource(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("apiserver_"+name, help, []string{"group", "resource"}, nil)
}

var (
	cacheInitEvents = perResource("init_events_total", "[ALPHA] Counter of init events processed in watch cache broken by resource type.")
	cacheReceived   = perResource("watch_cache_events_received_total", "[ALPHA] Counter of events received in watch cache broken by resource type.")
	cacheDispatched = perResource("watch_cache_events_dispatched_total", "[ALPHA] Counter of events dispatched in watch cache broken by resource type.")
	cacheFills      = perResource("watch_cache_initializations_total", "[ALPHA] Counter of watch cache initializations broken by resource type.")
	cacheRevision   = perResource("watch_cache_resource_version", "[ALPHA] Current resource version of watch cache broken by resource type. This is truncated to the 15 least significant digits.")
	storeReceived   = perResource("storage_events_received_total", "[BETA] Number of etcd events received split by kind.")
	storeUnreadable = perResource("storage_decode_errors_total", "[ALPHA] Number of stored object decode errors split by object type")
)

// Describe implements prometheus.Collector.
func (Cache) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{cacheInitEvents, cacheReceived, cacheDispatched, cacheFills, cacheRevision, storeReceived, storeUnreadable} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c Cache) Collect(out chan<- prometheus.Metric) {
	for _, k := range c.Kinds() {
		r, s := k.Resource(), k.Stats()
		send := func(d *prometheus.Desc, kind prometheus.ValueType, value float64) {
			out <- prometheus.MustNewConstMetric(d, kind, value, r.Group, r.Plural)
		}
		send(cacheInitEvents, prometheus.CounterValue, float64(s.Initial))
		send(cacheReceived, prometheus.CounterValue, float64(s.Events))
		send(cacheDispatched, prometheus.CounterValue, float64(s.Events))
		send(cacheFills, prometheus.CounterValue, float64(s.Fills))
		send(cacheRevision, prometheus.GaugeValue, float64(c.Revision()%1e15))
		send(storeReceived, prometheus.CounterValue, float64(s.Events))
		if s.Undecodable > 0 {
			send(storeUnreadable, prometheus.CounterValue, float64(s.Undecodable))
		}
	}
}
