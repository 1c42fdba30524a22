package measured

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coracle-io/coracle/internal/store"
)

// Size exports the size of the store's database, if the store provides it. It
// implements prometheus.Collector.
type Size struct {
	size func(context.Context) (int64, error)
}

// NewSize returns a Size for the innermost store of s.
func NewSize(s store.Store) Size {
	if sized, ok := s.(interface {
		Size(ctx context.Context) (int64, error)
	}); ok {
		return Size{sized.Size}
	}
	return Size{}
}

// storageBytes describes the gauge of Size.
func storageBytes() *prometheus.Desc {
	return prometheus.NewDesc("apiserver_storage_size_bytes", "[STABLE] Size of the storage database file physically allocated in bytes.", []string{"storage_cluster_id"}, nil)
}

// Describe implements prometheus.Collector.
func (Size) Describe(out chan<- *prometheus.Desc) { out <- storageBytes() }

// sizeTimeout limits the time that a scrape waits for the store.
const sizeTimeout = time.Second

// Collect implements prometheus.Collector. It exports nothing while the
// store does not answer.
func (s Size) Collect(out chan<- prometheus.Metric) {
	if s.size == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), sizeTimeout)
	defer cancel()
	if bytes, err := s.size(ctx); err == nil {
		out <- prometheus.MustNewConstMetric(storageBytes(), prometheus.GaugeValue, float64(bytes), "etcd-0")
	}
}
