package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/coracle-io/coracle/internal/feature"
)

// gates shows which features are on. It looks when it is asked: the features of
// a process do not change, and few ask.
type gates struct{ features *feature.Set }

var gateInfo = prometheus.NewDesc("kubernetes_feature_enabled",
	beta+"This metric records the data about the stage and enablement of a k8s feature.", []string{"name", "stage"}, nil)

// Describe implements prometheus.Collector.
func (gates) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- gateInfo }

// Collect implements prometheus.Collector.
func (g gates) Collect(collected chan<- prometheus.Metric) {
	for _, gate := range g.features.Gates() {
		on := 0.0
		if gate.On {
			on = 1
		}
		collected <- prometheus.MustNewConstMetric(gateInfo, prometheus.GaugeValue, on, gate.Name, string(gate.Stage))
	}
}
