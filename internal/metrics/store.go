package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Store measures requests to the store.
type Store struct {
	duration *prometheus.HistogramVec
	total    *prometheus.CounterVec
	failed   *prometheus.CounterVec
}

func newStore(r *Registry) *Store {
	return &Store{
		duration: r.histogram("etcd_request_duration_seconds", alpha+"Etcd request latency in seconds for each operation and object type.",
			[]float64{0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60}, "operation", "group", "resource"),
		total:  r.counter("etcd_requests_total", alpha+"Etcd request counts for each operation and object type.", "operation", "group", "resource"),
		failed: r.counter("etcd_request_errors_total", alpha+"Etcd failed request counts for each operation and object type.", "operation", "group", "resource"),
	}
}

// Operation measures an operation on a resource.
type Operation struct {
	duration      prometheus.Observer
	total, failed prometheus.Counter
}

// Operation returns the metrics of an operation on a resource.
func (s *Store) Operation(operation, group, resource string) *Operation {
	return &Operation{
		duration: s.duration.WithLabelValues(operation, group, resource),
		total:    s.total.WithLabelValues(operation, group, resource),
		failed:   s.failed.WithLabelValues(operation, group, resource),
	}
}

// Observe records how long an operation took, and whether it failed.
func (o *Operation) Observe(took time.Duration, err error) {
	o.duration.Observe(took.Seconds())
	o.total.Inc()
	if err != nil {
		o.failed.Inc()
	}
}
