package volumebinder

import (
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/storage/volume"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/nativehistogram"
)

// operations measures how long it takes until a claim has the volume that was
// requested for it (provision), and until a volume that nobody needs is gone
// (delete). The names are upstream's.
type operations struct {
	seconds *prometheus.HistogramVec
	errors  *prometheus.CounterVec

	mu       sync.Mutex                   // guards underWay
	underWay map[controller.Key]operation // by the key of the claim or the volume
}

// operation is what is under way.
type operation struct {
	plugin, name string
	begun        time.Time
}

func newOperations() *operations {
	labels := []string{"plugin_name", "operation_name"}
	return &operations{
		seconds: nativehistogram.NewVec(prometheus.HistogramOpts{
			Name: "volume_operation_total_seconds", Help: "[BETA] Storage operation end to end duration in seconds",
			Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600},
		}, labels),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "volume_operation_errors_total", Help: "[ALPHA] Total volume operation errors",
		}, labels),
		underWay: map[controller.Key]operation{},
	}
}

// begin says that an operation is under way, for the first time or again.
func (o *operations) begin(key controller.Key, plugin, name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, begun := o.underWay[key]; !begun { // annotations of a client that writes protobuf may have any bytes
		o.underWay[key] = operation{strings.ToValidUTF8(plugin, "\uFFFD"), name, time.Now()}
	}
}

// failed counts an attempt that has failed.
func (o *operations) failed(key controller.Key) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if made, begun := o.underWay[key]; begun {
		o.errors.WithLabelValues(made.plugin, made.name).Inc()
	}
}

// succeeded measures an operation that is done. It ignores what was not begun.
func (o *operations) succeeded(key controller.Key) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if made, begun := o.underWay[key]; begun {
		o.seconds.WithLabelValues(made.plugin, made.name).Observe(time.Since(made.begun).Seconds())
		delete(o.underWay, key)
	}
}

// forget says that an operation will not be completed.
func (o *operations) forget(key controller.Key) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.underWay, key)
}

// deleterOf returns who deletes a volume: its plugin, or the provisioner that made it.
func deleterOf(v *v1.PersistentVolume) string {
	if v.Spec.HostPath != nil {
		return plugin(v)
	}
	if name, made := v.Annotations[volume.AnnDynamicallyProvisioned]; made {
		return name
	}
	return "N/A"
}
