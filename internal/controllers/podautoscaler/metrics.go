package podautoscaler

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	workloads "github.com/coracle-io/coracle/internal/controller/workload"
	"github.com/coracle-io/coracle/internal/nativehistogram"
)

// counts are the controller's metrics, with upstream's names.
type counts struct {
	reconciliations, computations   *prometheus.CounterVec
	reconciliation, computationTime *prometheus.HistogramVec
	autoscalers                     prometheus.Gauge
	desired                         *prometheus.GaugeVec
	skips                           *prometheus.CounterVec
}

func newCounts() *counts {
	const subsystem = "horizontal_pod_autoscaler_controller"
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: subsystem, Name: name, Help: "[BETA] " + help}, labels)
	}
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return nativehistogram.NewVec(prometheus.HistogramOpts{
			Subsystem: subsystem, Name: name, Help: "[BETA] " + help, Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}, labels)
	}
	return &counts{
		reconciliations: counter("reconciliations_total", "Number of reconciliations of HPA controller.", "action", "error"),
		reconciliation:  histogram("reconciliation_duration_seconds", "The time(seconds) that the HPA controller takes to reconcile once.", "action", "error"),
		computations:    counter("metric_computation_total", "Number of metric computations.", "action", "error", "metric_type"),
		computationTime: histogram("metric_computation_duration_seconds", "The time(seconds) that the HPA controller takes to calculate one metric.", "action", "error", "metric_type"),
		autoscalers:     prometheus.NewGauge(prometheus.GaugeOpts{Subsystem: subsystem, Name: "num_horizontal_pod_autoscalers", Help: "[ALPHA] Current number of controlled HPA objects."}),
		desired: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Subsystem: subsystem, Name: "desired_replicas", Help: "[ALPHA] Current desired replica count for HPA objects.",
		}, []string{"namespace", "hpa_name"}),
		skips: workloads.NewSkips(subsystem, "HPA"),
	}
}

func (c *counts) collectors() []prometheus.Collector {
	return []prometheus.Collector{c.reconciliations, c.reconciliation, c.computations, c.computationTime, c.autoscalers, c.desired, c.skips}
}

// reconciled counts a reconciliation that changes the replicas.
func (c *counts) reconciled(from, to int32, err error, took time.Duration) {
	c.reconciliations.WithLabelValues(action(from, to), kindOf(err)).Inc()
	c.reconciliation.WithLabelValues(action(from, to), kindOf(err)).Observe(took.Seconds())
}

// computed counts the computation of a metric.
func (c *counts) computed(metric string, from, to int32, err error, took time.Duration) {
	c.computations.WithLabelValues(action(from, to), kindOf(err), metric).Inc()
	c.computationTime.WithLabelValues(action(from, to), kindOf(err), metric).Observe(took.Seconds())
}

func action(from, to int32) string {
	switch {
	case to > from:
		return "scale_up"
	case to < from:
		return "scale_down"
	}
	return "none"
}

// errSpec is an error that a change of the autoscaler or its target solves.
type errSpec struct{ error }

func (e *errSpec) Unwrap() error { return e.error }

func kindOf(err error) string {
	if err == nil {
		return "none"
	}
	if spec := (*errSpec)(nil); errors.As(err, &spec) {
		return "spec"
	}
	return "internal"
}
