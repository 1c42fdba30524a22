package kubelet

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics is what the kubelet counts of its own work, by upstream's names.
type metrics struct {
	podStart          prometheus.Histogram
	podWorker         *prometheus.HistogramVec // by operation_type
	relist            prometheus.Histogram
	relistInterval    prometheus.Histogram
	evictions         *prometheus.CounterVec // by eviction_signal
	startedPods       prometheus.Counter
	startedContainers *prometheus.CounterVec // by container_type
}

func newMetrics(r prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.CounterOpts { return prometheus.CounterOpts{Name: name, Help: help} }
	histogram := func(name, help string, buckets []float64) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}
	}
	m := &metrics{
		podStart: prometheus.NewHistogram(histogram("kubelet_pod_start_duration_seconds", "[ALPHA] Duration in seconds from kubelet seeing a pod for the first time to the pod starting to run",
			[]float64{0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600})),
		podWorker:      prometheus.NewHistogramVec(histogram("kubelet_pod_worker_duration_seconds", "[ALPHA] Duration in seconds to sync a single pod. Broken down by operation type: create, update, or sync", prometheus.DefBuckets), []string{"operation_type"}),
		relist:         prometheus.NewHistogram(histogram("kubelet_pleg_relist_duration_seconds", "[ALPHA] Duration in seconds for relisting pods in PLEG.", prometheus.DefBuckets)),
		relistInterval: prometheus.NewHistogram(histogram("kubelet_pleg_relist_interval_seconds", "[ALPHA] Interval in seconds between relisting in PLEG.", prometheus.DefBuckets)),
		evictions:      prometheus.NewCounterVec(counter("kubelet_evictions", "[ALPHA] Cumulative number of pod evictions by eviction signal"), []string{"eviction_signal"}),
		startedPods:    prometheus.NewCounter(counter("kubelet_started_pods_total", "[ALPHA] Cumulative number of pods started")),
		startedContainers: prometheus.NewCounterVec(counter("kubelet_started_containers_total", "[ALPHA] Cumulative number of containers started"),
			[]string{"container_type"}),
	}
	r.MustRegister(m.podStart, m.podWorker, m.relist, m.relistInterval, m.evictions, m.startedPods, m.startedContainers)
	return m
}
