package rootca

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/coracle-io/coracle/internal/nativehistogram"
)

// counts are the controller's metrics, with upstream's names. Their label is the HTTP
// status of a sync.
type counts struct {
	syncs    *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newCounts() *counts {
	const subsystem, help = "root_ca_cert_publisher", "[ALPHA] Number of namespace syncs happened in root ca cert publisher."
	labels := []string{"code"}
	return &counts{
		syncs: prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: subsystem, Name: "sync_total", Help: help}, labels),
		duration: nativehistogram.NewVec(prometheus.HistogramOpts{
			Subsystem: subsystem, Name: "sync_duration_seconds", Help: help, Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}, labels),
	}
}

// synced counts a sync. The code of an error without a status is 500.
func (c *counts) synced(err error, took time.Duration) {
	code := http.StatusOK
	if err != nil {
		code = http.StatusInternalServerError
		if status := apierrors.APIStatus(nil); errors.As(err, &status) {
			code = int(status.Status().Code)
		}
	}
	c.syncs.WithLabelValues(strconv.Itoa(code)).Inc()
	c.duration.WithLabelValues(strconv.Itoa(code)).Observe(took.Seconds())
}
