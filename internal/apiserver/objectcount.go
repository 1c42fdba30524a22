package apiserver

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/coracle-io/coracle/internal/apiserver/registry"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// objectCounts is a prometheus.Collector of the number of stored objects by
// resource.
type objectCounts struct{ registry *registry.Registry }

var (
	resourceObjects = prometheus.NewDesc("apiserver_resource_objects", "[ALPHA] Number of stored objects by resource.", []string{"group", "resource"}, nil)
	storageObjects  = prometheus.NewDesc("apiserver_storage_objects", "[STABLE] (Deprecated since 1.34.0) Number of stored objects by resource; apiserver_resource_objects has the group in a label.", []string{"resource"}, nil)
)

// Describe implements prometheus.Collector.
func (objectCounts) Describe(out chan<- *prometheus.Desc) {
	out <- resourceObjects
	out <- storageObjects
}

// Collect implements prometheus.Collector.
func (c objectCounts) Collect(out chan<- prometheus.Metric) {
	counted := map[*watchcache.Kind]bool{}
	c.registry.Routes().All(func(e *registry.Endpoint) {
		if e.Kind == nil || counted[e.Kind] {
			return
		}
		counted[e.Kind] = true
		count := float64(e.Kind.Snapshot().Len())
		out <- prometheus.MustNewConstMetric(resourceObjects, prometheus.GaugeValue, count, e.Resource.Group, e.Resource.Plural)
		out <- prometheus.MustNewConstMetric(storageObjects, prometheus.GaugeValue, count, e.Resource.GroupResource().String())
	})
}
