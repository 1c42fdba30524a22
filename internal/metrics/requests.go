package metrics

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Request identifies requests that are counted together.
type Request struct {
	Verb                          string // of the API: get, list, create, ...
	Group, Version                string
	Resource, Subresource         string
	Namespaced, Named, IsResource bool
	Apply                         bool // a server-side apply
	DryRun                        bool
	Code                          int
}

// Answer is the result of a request.
type Answer struct {
	Latency time.Duration
	// Elsewhere is the part of Latency that webhooks took.
	Elsewhere time.Duration
	Read      int // bytes of the request's body
	Written   int // bytes of the response's body
	// Dropped says that the server ended the request to protect itself.
	Dropped bool
	// Deprecated says that the requested version is deprecated. Removed is the
	// release that removes it, such as 1.40, or "".
	Deprecated bool
	Removed    string
}

// Requests counts API requests. Its methods may be called from any goroutine.
type Requests struct {
	total       *prometheus.CounterVec
	duration    *prometheus.HistogramVec
	sli         *prometheus.HistogramVec
	written     *prometheus.HistogramVec
	read        *prometheus.HistogramVec
	longRunning *prometheus.GaugeVec
	dropped     *prometheus.CounterVec
	aborted     *prometheus.CounterVec
	panicked    *prometheus.CounterVec
	deprecated  *prometheus.GaugeVec
	series      sync.Map   // Request to *series: finding a series by its labels costs more than counting
	making      sync.Mutex // is held while series are made or forgotten
}

// series are the metrics of a Request; nil for metrics that do not apply.
type series struct {
	total                        prometheus.Counter
	duration, sli, read, written prometheus.Observer
}

func newRequests(r *Registry) *Requests {
	kind := []string{"verb", "group", "version", "resource", "subresource", "scope", "component"}
	dry := []string{"verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component"}
	latency := []float64{0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60}
	return &Requests{
		total: r.counter("apiserver_request_total", stable+"Counter of apiserver requests broken out for each verb, dry run value, group, version, resource, scope, component, and HTTP response code.",
			append(dry[:len(dry):len(dry)], "code")...),
		duration: r.histogram("apiserver_request_duration_seconds", stable+"Response latency distribution in seconds for each verb, dry run value, group, version, resource, subresource, scope and component.",
			latency, dry...),
		sli: r.histogram("apiserver_request_sli_duration_seconds", alpha+"Response latency distribution (not counting webhook duration and priority & fairness queue wait times) in seconds for each verb, group, version, resource, subresource, scope and component.",
			latency[2:], kind...),
		written: r.histogram("apiserver_response_sizes", stable+"Response size distribution in bytes for each group, version, verb, resource, subresource, scope and component.",
			prometheus.ExponentialBuckets(1000, 10, 7), kind...),
		read: r.histogram("apiserver_request_body_size_bytes", alpha+"Apiserver request body size in bytes broken out by resource and verb.",
			prometheus.LinearBuckets(50000, 100000, 31), "group", "resource", "verb"),
		longRunning: r.gauge("apiserver_longrunning_requests", stable+"Gauge of all active long-running apiserver requests broken out by verb, group, version, resource, scope and component. Not all requests are tracked this way.",
			kind...),
		dropped: r.counter("apiserver_request_terminations_total", alpha+"Number of requests which apiserver terminated in self-defense.",
			append(kind[:len(kind):len(kind)], "code")...),
		aborted: r.counter("apiserver_request_aborts_total", alpha+"Number of requests which apiserver aborted possibly due to a timeout, for each group, version, verb, resource, subresource and scope",
			kind[:len(kind)-1]...),
		panicked: r.counter("coracle_request_panics_total", alpha+"Number of requests whose handling panicked, for each group, version, verb, resource, subresource and scope",
			kind[:len(kind)-1]...),
		deprecated: r.gauge("apiserver_requested_deprecated_apis", stable+"Gauge of deprecated APIs that have been requested, broken out by API group, version, resource, subresource, and removed_release.",
			"group", "version", "resource", "subresource", "removed_release"),
	}
}

// Observe counts a request.
func (m *Requests) Observe(r Request, a Answer) {
	found, ok := m.series.Load(r)
	if !ok {
		found = m.add(r, a)
	}
	s := found.(*series)
	s.total.Inc()
	s.duration.Observe(a.Latency.Seconds())
	if s.sli != nil {
		s.sli.Observe((a.Latency - a.Elsewhere).Seconds())
	}
	if s.written != nil {
		s.written.Observe(float64(a.Written))
	}
	if s.read != nil && a.Read > 0 {
		s.read.Observe(float64(a.Read))
	}
	if a.Dropped {
		m.dropped.WithLabelValues(append(r.labels(), strconv.Itoa(r.Code))...).Inc()
	}
}

// add makes the series of a Request, unless another call has, and returns it.
func (m *Requests) add(r Request, a Answer) any {
	m.making.Lock()
	defer m.making.Unlock()
	found, _ := m.series.LoadOrStore(r, m.newSeries(r))
	if a.Deprecated {
		m.deprecated.WithLabelValues(r.Group, r.Version, r.Resource, r.Subresource, a.Removed).Set(1)
	}
	return found
}

// forget drops the counted Requests of a resource, after drop has dropped their
// metrics. In another order, a Request that is answered meanwhile would lead to
// metrics that nobody sees, also when the resource is served again.
func (m *Requests) forget(of schema.GroupResource, drop func()) {
	m.making.Lock()
	defer m.making.Unlock()
	drop()
	for key := range m.series.Range {
		if r := key.(Request); r.Group == of.Group && r.Resource == of.Resource {
			m.series.Delete(key)
		}
	}
}

// Kept returns how many distinct Requests are counted.
func (m *Requests) Kept() (n int) {
	m.series.Range(func(any, any) bool { n++; return true })
	return n
}

// Aborted counts a request whose response was cut off.
func (m *Requests) Aborted(r Request) { m.aborted.WithLabelValues(r.labels()[:6]...).Inc() }

// Panicked counts a request whose handler panicked.
func (m *Requests) Panicked(r Request) { m.panicked.WithLabelValues(r.labels()[:6]...).Inc() }

// Begin counts a long-running request until end is called.
func (m *Requests) Begin(r Request) (end func()) {
	g := m.longRunning.WithLabelValues(r.labels()...)
	g.Inc()
	return g.Dec
}

func (m *Requests) newSeries(r Request) *series {
	labels := r.labels()
	dry := []string{labels[0], ""}
	if r.DryRun {
		dry[1] = "All"
	}
	dry = append(dry, labels[1:]...)
	s := &series{
		total:    m.total.WithLabelValues(append(dry, strconv.Itoa(r.Code))...),
		duration: m.duration.WithLabelValues(dry...),
	}
	if !r.DryRun {
		s.sli = m.sli.WithLabelValues(labels...)
	}
	if !r.IsResource {
		return s
	}
	switch labels[0] {
	case http.MethodGet, "LIST":
		s.written = m.written.WithLabelValues(labels...)
	case http.MethodPost, http.MethodPut, http.MethodPatch, "APPLY", http.MethodDelete, "DELETECOLLECTION":
		s.read = m.read.WithLabelValues(r.Group, r.Resource, strings.Replace(r.Verb, "collection", "_collection", 1))
	}
	return s
}

// labels returns verb, group, version, resource, subresource, scope and
// component.
func (r Request) labels() []string {
	return []string{r.verb(), r.Group, r.Version, r.Resource, r.Subresource, r.scope(), "apiserver"}
}

// verb returns the verb as upstream's metrics name it.
func (r Request) verb() string {
	switch {
	case r.Apply:
		return "APPLY"
	case r.IsResource && reachesIn(r.Subresource):
		return "CONNECT"
	}
	switch r.Verb {
	case "create":
		return http.MethodPost
	case "update":
		return http.MethodPut
	case "head":
		return http.MethodGet
	case "get", "list", "watch", "patch", "delete", "deletecollection", "post", "put", "proxy":
		return strings.ToUpper(r.Verb)
	}
	return "other"
}

// reachesIn reports whether a subresource connects to a node or a pod.
func reachesIn(subresource string) bool {
	switch subresource {
	case "log", "exec", "attach", "portforward", "proxy":
		return true
	}
	return false
}

func (r Request) scope() string {
	switch {
	case r.Named || r.Verb == "create":
		return "resource"
	case r.Namespaced:
		return "namespace"
	case r.IsResource:
		return "cluster"
	}
	return ""
}
