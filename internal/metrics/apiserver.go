package metrics

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coracle-io/coracle/internal/feature"
)

// APIServer are the metrics of the API server.
type APIServer struct {
	*Registry
	Requests  *Requests
	Watches   *Watches
	Access    *Access
	Tokens    *Tokens
	Admission *Admission
	Store     *Store
	Checks    *Checks
	Fairness  *Fairness
	// Unavailable counts how often an APIService became unavailable, by name
	// and reason.
	Unavailable *prometheus.CounterVec
}

// NewAPIServer returns the metrics of an API server with these features.
func NewAPIServer(features *feature.Set) *APIServer {
	r := newRegistry(features, ofAPIServer)
	return &APIServer{
		Registry: r, Requests: newRequests(r), Watches: newWatches(r), Access: newAccess(r), Tokens: newTokens(r), Admission: newAdmission(r), Store: newStore(r), Checks: NewChecks(),
		Fairness:    newFairness(r),
		Unavailable: r.counter("aggregator_unavailable_apiservice_total", alpha+"Counter of APIServices which are marked as unavailable broken down by APIService name and reason.", "name", "reason"),
	}
}

// Forget drops the series of a resource that is no longer served, so that
// definitions that come and go leave nothing behind.
func (m *APIServer) Forget(r schema.GroupResource) {
	m.Requests.forget(r, func() { m.forget(r) })
}

// ofAPIServer reports whether an API server exposes a metric of a library: all
// metrics except those about work queues, which it does not have.
func ofAPIServer(name string) bool { return !strings.HasPrefix(name, "workqueue_") }

// InFlight exposes how many reading and mutating requests are in progress.
func (m *APIServer) InFlight(count func() (reading, mutating int64)) {
	current := func(kind string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "apiserver_current_inflight_requests",
			Help:        stable + "Maximal number of currently used inflight request limit of this apiserver per request kind in last second.",
			ConstLabels: prometheus.Labels{"request_kind": kind},
		}, value)
	}
	m.MustRegister(
		current("mutating", func() float64 { _, n := count(); return float64(n) }),
		current("readOnly", func() float64 { n, _ := count(); return float64(n) }),
	)
}

// Watches counts the events that are sent to watches.
type Watches struct {
	events *prometheus.CounterVec
	sizes  *prometheus.HistogramVec
	lists  *prometheus.HistogramVec
}

func newWatches(r *Registry) *Watches {
	return &Watches{
		events: r.counter("apiserver_watch_events_total", beta+"Number of events sent in watch clients", "group", "version", "resource"),
		sizes:  r.histogram("apiserver_watch_events_sizes", beta+"Watch event size distribution in bytes", prometheus.ExponentialBuckets(1024, 2, 8), "group", "version", "resource"),
		lists: r.histogram("apiserver_watch_list_duration_seconds", beta+"Response latency distribution in seconds for watch list requests broken by group, version, resource and scope.",
			[]float64{0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 15, 20, 30, 45, 60}, "group", "version", "resource", "scope"),
	}
}

// Listed records how long a watch took to send all existing objects and the bookmark
// after them.
func (w *Watches) Listed(r Request, took time.Duration) {
	w.lists.WithLabelValues(r.Group, r.Version, r.Resource, r.scope()).Observe(took.Seconds())
}

// Watched counts the events of the watches of a resource.
type Watched struct {
	events prometheus.Counter
	sizes  prometheus.Observer
}

// Of returns the counters of a resource.
func (w *Watches) Of(group, version, resource string) Watched {
	return Watched{w.events.WithLabelValues(group, version, resource), w.sizes.WithLabelValues(group, version, resource)}
}

// Sent counts an event with its size.
func (w Watched) Sent(bytes int) {
	w.events.Inc()
	w.sizes.Observe(float64(bytes))
}
