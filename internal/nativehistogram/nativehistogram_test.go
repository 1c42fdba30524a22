package nativehistogram

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

func TestBothForms(t *testing.T) {
	few, usual := New(prometheus.HistogramOpts{Name: "few", Buckets: []float64{1, 2}}), NewVec(prometheus.HistogramOpts{Name: "usual"}, []string{"verb"})
	for name, h := range map[string]struct {
		prometheus.Observer
		buckets int
	}{"few": {few, 2}, "usual": {usual.WithLabelValues("get"), len(prometheus.DefBuckets)}} {
		for i := range 1000 {
			h.Observe(float64(i) * 1e6)
		}
		var m dto.Metric
		if err := h.Observer.(prometheus.Metric).Write(&m); err != nil {
			t.Fatal(err)
		}
		got := m.GetHistogram()
		if len(got.GetBucket()) != h.buckets || got.GetSampleCount() != 1000 {
			t.Errorf("%s: %d buckets with %d observations, want %d with 1000", name, len(got.GetBucket()), got.GetSampleCount(), h.buckets)
		}
		if n := len(got.GetPositiveDelta()); n < 50 || n > mostBuckets {
			t.Errorf("%s: %d native buckets", name, n)
		}
	}
}
