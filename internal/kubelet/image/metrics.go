package image

import (
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coracle-io/coracle/internal/nativehistogram"
	"github.com/coracle-io/coracle/internal/sharedfile"
)

// metrics counts requests for images and measures pulls, under upstream's names.
type metrics struct {
	pulls     *prometheus.HistogramVec // by image_size_in_bytes
	requests  *prometheus.CounterVec   // by present_locally, pull_policy and pull_required
	collected *prometheus.CounterVec   // by reason
}

func newMetrics() *metrics {
	return &metrics{
		pulls: nativehistogram.NewVec(prometheus.HistogramOpts{
			Name: "kubelet_image_pull_duration_seconds", Help: "[ALPHA] Duration in seconds to pull an image.",
			Buckets: []float64{1, 5, 10, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600},
		}, []string{"image_size_in_bytes"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_image_manager_ensure_image_requests_total", Help: "[ALPHA] Number of ensure-image requests processed by the kubelet.",
		}, []string{"present_locally", "pull_policy", "pull_required"}),
		collected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_image_garbage_collected_total",
			Help: "[ALPHA] Total number of images garbage collected by the kubelet, whether through disk usage or image age.",
		}, []string{"reason"}),
	}
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.pulls, m.requests, m.collected}
}

// unknown is the value of a label that did not matter, or before an error.
const unknown = "unknown"

// sizeRange returns the label for images of a size in bytes.
func sizeRange(size uint64) string {
	const mb, gb = 1 << 20, 1 << 30
	if size == 0 {
		return "N/A"
	}
	for _, r := range []struct {
		below uint64
		label string
	}{
		{10 * mb, "0-10MB"}, {100 * mb, "10MB-100MB"}, {500 * mb, "100MB-500MB"}, {gb, "500MB-1GB"}, {5 * gb, "1GB-5GB"}, {10 * gb, "5GB-10GB"},
		{20 * gb, "10GB-20GB"}, {30 * gb, "20GB-30GB"}, {40 * gb, "30GB-40GB"}, {60 * gb, "40GB-60GB"}, {100 * gb, "60GB-100GB"},
	} {
		if size < r.below {
			return r.label
		}
	}
	return "GT100GB"
}

// newChecks returns the metric of checks of records.
func newChecks() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubelet_imagemanager_image_mustpull_checks_total",
		Help: "[ALPHA] Counter for how many times kubelet checked whether credentials need to be re-verified to access an image",
	}, []string{"result"})
}

// collectors returns the metrics of the records on the disk and of their checks.
func (r *records) collectors() []prometheus.Collector {
	count := func(name, help, directory string) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: "[ALPHA] " + help}, func() float64 {
			names, _ := r.FS.ReadDir(filepath.Join(r.Dir, directory)) // it does not exist before the first pull
			n := 0
			for _, name := range names {
				if _, unfinished := sharedfile.Unfinished(name); !unfinished {
					n++
				}
			}
			return float64(n)
		})
	}
	return []prometheus.Collector{
		r.checks,
		count("kubelet_imagemanager_ondisk_pulledrecords", "Number of ImagePulledRecords stored on disk.", pulledDir),
		count("kubelet_imagemanager_ondisk_pullintents", "Number of ImagePullIntents stored on disk.", pullingDir),
	}
}

// providerMetrics measures the programs of credential providers, under upstream's
// names.
type providerMetrics struct {
	duration *prometheus.HistogramVec // by plugin_name
	errors   *prometheus.CounterVec   // by plugin_name
	config   *prometheus.GaugeVec     // by hash
}

func newProviderMetrics() *providerMetrics {
	return &providerMetrics{
		duration: nativehistogram.NewVec(prometheus.HistogramOpts{
			Name: "kubelet_credential_provider_plugin_duration", Help: "[ALPHA] Duration of execution in seconds for credential provider plugin",
			Buckets: prometheus.DefBuckets,
		}, []string{"plugin_name"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_credential_provider_plugin_errors_total", Help: "[ALPHA] Number of errors from credential provider plugin",
		}, []string{"plugin_name"}),
		config: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubelet_credential_provider_config_info", Help: "[ALPHA] Information about the last applied credential provider configuration with hash as label",
		}, []string{"hash"}),
	}
}

// collectors returns the metrics of the providers, if there are any.
func (p *Providers) collectors() []prometheus.Collector {
	if p == nil {
		return nil
	}
	return []prometheus.Collector{p.metrics.duration, p.metrics.errors, p.metrics.config}
}
