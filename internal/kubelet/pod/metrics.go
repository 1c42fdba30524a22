package pod

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics counts the work of the workers under upstream's names.
type metrics struct {
	startDuration     prometheus.Histogram
	workerDuration    *prometheus.HistogramVec // by operation_type
	startedPods       prometheus.Counter
	startedContainers *prometheus.CounterVec // by container_type
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		startDuration: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "kubelet_pod_start_duration_seconds", Help: "[ALPHA] Duration in seconds from kubelet seeing a pod for the first time to the pod starting to run",
			Buckets: []float64{0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600}}),
		workerDuration: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "kubelet_pod_worker_duration_seconds", Help: "[ALPHA] Duration in seconds to sync a single pod. Broken down by operation type: create, update, or sync",
			Buckets: prometheus.DefBuckets}, []string{"operation_type"}),
		startedPods:       prometheus.NewCounter(prometheus.CounterOpts{Name: "kubelet_started_pods_total", Help: "[ALPHA] Cumulative number of pods started"}),
		startedContainers: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_started_containers_total", Help: "[ALPHA] Cumulative number of containers started"}, []string{"container_type"}),
	}
	r.MustRegister(m.startDuration, m.workerDuration, m.startedPods, m.startedContainers)
	return m
}
