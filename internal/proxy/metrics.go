package proxy

import (
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/nativehistogram"
	"github.com/coracle-io/coracle/internal/persistent"
)

// metrics are the proxy's metrics, under kube-proxy's names, except for those of its
// backend. An Apply has the rules of all families, so that its metrics have the same
// values for each.
type metrics struct {
	families []v1.IPFamily
	// syncs are all attempts to apply rules, full those that write everything, and
	// partial the others.
	syncs, full, partial *prometheus.HistogramVec
	lastSync             *prometheus.GaugeVec
	// programming is how long changes of endpoints take to reach the kernel.
	programming *prometheus.HistogramVec
	// noLocal is how many ports of Services have a policy Local and endpoints on
	// other nodes only.
	noLocal        *prometheus.GaugeVec
	healthz, livez *prometheus.CounterVec // by response code

	// counted are the ports of the last rules, internal and external how many of them
	// noLocal says, by the policy that is Local. The goroutine that applies uses them.
	counted            ServicePorts
	internal, external map[v1.IPFamily]int
}

// byFamily is the label of most metrics.
const byFamily = "ip_family"

// newMetrics returns the metrics of a proxy and of its state, and registers them.
func newMetrics(r prometheus.Registerer, s *state, families []v1.IPFamily) *metrics {
	const subsystem = "kubeproxy"
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		h := nativehistogram.NewVec(prometheus.HistogramOpts{Subsystem: subsystem, Name: name, Help: alpha + help, Buckets: buckets}, []string{byFamily})
		r.MustRegister(h)
		return h
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Subsystem: subsystem, Name: name, Help: alpha + help}, labels)
		r.MustRegister(g)
		return g
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: subsystem, Name: name, Help: alpha + help}, labels)
		r.MustRegister(c)
		return c
	}
	times := prometheus.ExponentialBuckets(0.001, 2, 15)
	m := &metrics{
		families: families, internal: map[v1.IPFamily]int{}, external: map[v1.IPFamily]int{},
		syncs:       histogram("sync_proxy_rules_duration_seconds", "SyncProxyRules latency in seconds", times),
		full:        histogram("sync_full_proxy_rules_duration_seconds", "SyncProxyRules latency in seconds for full resyncs", times),
		partial:     histogram("sync_partial_proxy_rules_duration_seconds", "SyncProxyRules latency in seconds for partial resyncs", times),
		lastSync:    gauge("sync_proxy_rules_last_timestamp_seconds", "The last time proxy rules were successfully synced", byFamily),
		programming: histogram("network_programming_duration_seconds", "In Cluster Network Programming Latency in seconds", programmingBuckets()),
		noLocal:     gauge("sync_proxy_rules_no_local_endpoints_total", "Number of services with a Local traffic policy and no endpoints", byFamily, "traffic_policy"),
		healthz:     counter("proxy_healthz_total", "Cumulative proxy healthz HTTP status", "code"),
		livez:       counter("proxy_livez_total", "Cumulative proxy livez HTTP status", "code"),
	}
	for _, f := range families {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Subsystem: subsystem, Name: "sync_proxy_rules_last_queued_timestamp_seconds", Help: alpha + "The last time a sync of proxy rules was queued",
			ConstLabels: prometheus.Labels{byFamily: string(f)},
		}, func() float64 { return seconds(s.queued.Load()) }))
	}
	for _, of := range []struct {
		name, help string
		changes    *changes
	}{{"service", "Service", &s.serviceChanges}, {"endpoint", "Endpoint", &s.sliceChanges}} {
		name := "sync_proxy_rules_" + of.name + "_changes_"
		r.MustRegister(
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{Subsystem: subsystem, Name: name + "pending", Help: alpha + "Pending proxy rules " + of.help + " changes"}, func() float64 {
				s.mu.Lock()
				defer s.mu.Unlock()
				return float64(len(of.changes.pending))
			}),
			prometheus.NewCounterFunc(prometheus.CounterOpts{Subsystem: subsystem, Name: name + "total", Help: alpha + "Cumulative proxy rules " + of.help + " changes"}, func() float64 {
				s.mu.Lock()
				defer s.mu.Unlock()
				return float64(of.changes.total)
			}),
		)
	}
	return m
}

// alpha begins the help of metrics whose names may change.
const alpha = "[ALPHA] "

// programmingBuckets are upstream's, up to five minutes.
func programmingBuckets() []float64 {
	return slices.Concat(prometheus.LinearBuckets(0.25, 0.25, 2), prometheus.LinearBuckets(1, 1, 59), prometheus.LinearBuckets(60, 5, 12), prometheus.LinearBuckets(120, 30, 7))
}

// seconds returns a time in nanoseconds since 1970 in seconds.
func seconds(nanoseconds int64) float64 { return float64(nanoseconds) / float64(time.Second) }

// synced records an attempt to apply rules. full says that it wrote everything.
func (m *metrics) synced(full bool, took time.Duration, err error) {
	for _, f := range m.families {
		family := string(f)
		m.syncs.WithLabelValues(family).Observe(took.Seconds())
		if full {
			m.full.WithLabelValues(family).Observe(took.Seconds())
		} else {
			m.partial.WithLabelValues(family).Observe(took.Seconds())
		}
		if err == nil {
			m.lastSync.WithLabelValues(family).SetToCurrentTime()
		}
	}
}

// applied records what rules that were applied say.
func (m *metrics) applied(rules Rules, changes endpointChanges) {
	for _, change := range changes { // anybody may write a time to come, and no sum may fall
		m.programming.WithLabelValues(change.family).Observe(max(0, time.Since(change.at)).Seconds())
	}
	persistent.Diff(m.counted, rules.Services, func(name PortName) {
		m.count(name.Family, m.counted.Get(name), -1)
		m.count(name.Family, rules.Services.Get(name), 1)
	})
	m.counted = rules.Services
	for _, f := range m.families {
		m.noLocal.WithLabelValues(string(f), "internal").Set(float64(m.internal[f]))
		m.noLocal.WithLabelValues(string(f), "external").Set(float64(m.external[f]))
	}
}

// count adds a port without local endpoints to internal and external n times, 1 or -1; nil
// is none.
func (m *metrics) count(f v1.IPFamily, p *ServicePort, n int) {
	if p == nil || len(p.Local) > 0 || len(p.Cluster) == 0 {
		return
	}
	if p.InternalLocal {
		m.internal[f] += n
	}
	if p.ExternalLocal {
		m.external[f] += n
	}
}

// counted returns a handler whose responses are counted by their codes.
func counted(by *prometheus.CounterVec, handle http.HandlerFunc) http.Handler {
	return promhttp.InstrumentHandlerCounter(by, handle)
}
