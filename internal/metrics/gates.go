package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/coracle-io/coracle/internal/feature"
)

// gates exposes which features are on. It is computed when it is scraped,
// because the features of a process do not change.
type gates struct{ features *feature.Set }

var gateInfo = prometheus.NewDesc("kubernetes_feature_enabled",
	beta+"This metric records the data about the stage and enablement of a k8s feature.", []string{"name", "stage"}, nil)

// Describe implements prometheus.Collector.
func (gates) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- gateInfo }

// Collect implements prometheus.Collector.
func (g gates) Collect(collected chan<- prometheus.Metric) {
	for _, state := range g.features.States() {
		on := 0.0
		if state.On {
			on = 1
		}
		collected <- prometheus.MustNewConstMetric(gateInfo, prometheus.GaugeValue, on, string(state.Gate), string(state.Stage))
	}
}
