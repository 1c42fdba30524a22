package devicetainteviction

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/coracle-io/coracle/internal/nativehistogram"
)

// counts are the controller's metrics, by upstream's names.
type counts struct {
	deletions prometheus.Counter
	latency   prometheus.Histogram
}

func newCounts() *counts {
	return &counts{
		deletions: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "device_taint_eviction_controller_pod_deletions_total",
			Help: "[ALPHA] Total number of Pods deleted by DeviceTaintEvictionController since its start.",
		}),
		latency: nativehistogram.New(prometheus.HistogramOpts{
			Name:    "device_taint_eviction_controller_pod_deletion_duration_seconds",
			Help:    "[ALPHA] Latency, in seconds, between the time when a device taint effect has been activated and a Pod's deletion via DeviceTaintEvictionController.",
			Buckets: []float64{0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 30, 60, 120, 180, 240},
		}),
	}
}
