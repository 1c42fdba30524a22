package applyloop

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coracle-io/coracle/internal/nativehistogram"
)

// Names are the name and the help of each of the Metrics.
type Names struct {
	Duration, DurationHelp       string
	LastApplied, LastAppliedHelp string
	Failures, FailuresHelp       string
}

// Metrics measure how rules are applied. They are a prometheus.Collector.
type Metrics struct {
	duration    prometheus.Histogram
	lastApplied prometheus.Gauge
	failures    prometheus.Counter
}

// NewMetrics returns metrics of these names.
func NewMetrics(n Names) *Metrics {
	return &Metrics{
		duration:    nativehistogram.New(prometheus.HistogramOpts{Name: n.Duration, Help: n.DurationHelp, Buckets: prometheus.ExponentialBuckets(0.001, 2, 15)}),
		lastApplied: prometheus.NewGauge(prometheus.GaugeOpts{Name: n.LastApplied, Help: n.LastAppliedHelp}),
		failures:    prometheus.NewCounter(prometheus.CounterOpts{Name: n.Failures, Help: n.FailuresHelp}),
	}
}

// Record records the end of an attempt to apply rules that took a while.
func (m *Metrics) Record(took time.Duration, err error) {
	if err != nil {
		m.failures.Inc()
		return
	}
	m.duration.Observe(took.Seconds())
	m.lastApplied.SetToCurrentTime()
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	for _, c := range []prometheus.Collector{m.duration, m.lastApplied, m.failures} {
		c.Describe(to)
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	for _, c := range []prometheus.Collector{m.duration, m.lastApplied, m.failures} {
		c.Collect(to)
	}
}
