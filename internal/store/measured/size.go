package measured

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coracle-io/coracle/internal/store"
)

// Size shows how large the store's database is, if the store knows. It
// implements prometheus.Collector.
type Size struct {
	size func(context.Context) (int64, error)
}

// NewSize asks the store itself, and none that is laid over it.
func NewSize(s store.Store) Size {
	if sized, ok := s.(interface {
		Size(ctx context.Context) (int64, error)
	}); ok {
		return Size{sized.Size}
	}
	return Size{}
}

var storageBytes = prometheus.NewDesc("apiserver_storage_size_bytes", "[STABLE] Size of the storage database file physically allocated in bytes.", []string{"storage_cluster_id"}, nil)

// Describe implements prometheus.Collector.
func (Size) Describe(out chan<- *prometheus.Desc) { out <- storageBytes }

// sizeTimeout is how long a scrape waits for the store.
const sizeTimeout = time.Second

// Collect implements prometheus.Collector. Nothing is shown while the store
// does not answer.
func (s Size) Collect(out chan<- prometheus.Metric) {
	if s.size == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), sizeTimeout)
	defer cancel()
	if bytes, err := s.size(ctx); err == nil {
		out <- prometheus.MustNewConstMetric(storageBytes, prometheus.GaugeValue, float64(bytes), "etcd-0")
	}
}
