// Package nativehistogram makes histograms that Prometheus can read in both of its
// forms: with the buckets that they name, and as native histograms, whose buckets
// grow by a tenth and which only scrapes in protobuf show. Kubernetes has its
// histograms in both forms (KEP-5808).
package nativehistogram

import "github.com/prometheus/client_golang/prometheus"

// Upstream's settings.
const (
	factor      = 1.1 // of the width of a bucket to that of the one before
	mostBuckets = 160 // of a series; beyond, buckets are merged
)

// New returns a histogram.
func New(o prometheus.HistogramOpts) prometheus.Histogram {
	return prometheus.NewHistogram(inBothForms(o))
}

// NewVec returns the histograms of all values of labels.
func NewVec(o prometheus.HistogramOpts, labels []string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(inBothForms(o), labels)
}

func inBothForms(o prometheus.HistogramOpts) prometheus.HistogramOpts {
	o.NativeHistogramBucketFactor, o.NativeHistogramMaxBucketNumber = factor, mostBuckets
	if len(o.Buckets) == 0 { // otherwise a native histogram would have no other form
		o.Buckets = prometheus.DefBuckets
	}
	return o
}
