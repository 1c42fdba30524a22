package apiserver

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/coracle-io/coracle/internal/watchcache"
)

// objectCounts reports how many objects of each resource are stored, when
// metrics are read.
type objectCounts struct{ server *Server }

var (
	resourceObjects = prometheus.NewDesc("apiserver_resource_objects", "Number of stored objects by resource.", []string{"group", "resource"}, nil)
	storageObjects  = prometheus.NewDesc("apiserver_storage_objects", "Number of stored objects by resource.", []string{"resource"}, nil)
)

// Describe implements prometheus.Collector.
func (objectCounts) Describe(out chan<- *prometheus.Desc) {
	out <- resourceObjects
	out <- storageObjects
}

// Collect implements prometheus.Collector.
func (c objectCounts) Collect(out chan<- prometheus.Metric) {
	counted := map[*watchcache.Kind]bool{}
	for _, e := range c.server.routes.Load().kinds {
		if e.kind == nil || counted[e.kind] {
			continue
		}
		counted[e.kind] = true
		count := float64(e.kind.Snapshot().Len())
		out <- prometheus.MustNewConstMetric(resourceObjects, prometheus.GaugeValue, count, e.resource.Group, e.resource.Plural)
		out <- prometheus.MustNewConstMetric(storageObjects, prometheus.GaugeValue, count, e.resource.GroupResource().String())
	}
}
