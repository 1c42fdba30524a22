// Package metrics has the Prometheus metrics of all components, under
// upstream's names.
//
//	Registry   what one component exposes at /metrics
//	APIServer  requests, watches, access, admission, store
//	Queues     the work queues of controllers
//	Clients    requests to API servers
//	Checks     results of health checks, at /metrics/slis
//
// Names, labels, buckets and stability levels are as in the Kubernetes Metrics
// Reference, so that existing dashboards and alerts work.
package metrics

import (
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/nativehistogram"
	"github.com/coracle-io/coracle/internal/version"
)

// Registry gathers the metrics that a component exposes: its own metrics, and
// the metrics that libraries keep for the whole process (of Go's runtime, the
// process itself and, in the API server, webhooks and policies). It implements
// prometheus.Registerer and prometheus.Gatherer.
type Registry struct {
	*prometheus.Registry
	library    func(name string) bool
	byResource []*prometheus.MetricVec // those with the labels group and resource
}

// NewRegistry returns the registry of a component. It exposes only those
// metrics of libraries that each process has. It also exposes which features
// are on.
func NewRegistry(features *feature.Set) *Registry { return newRegistry(features, ofEveryProcess) }

func newRegistry(features *feature.Set, library func(name string) bool) *Registry {
	r := &Registry{Registry: prometheus.NewRegistry(), library: library}
	r.MustRegister(buildInfo(), gates{features})
	return r
}

func ofEveryProcess(name string) bool {
	return slices.ContainsFunc([]string{"go_", "process_", "kubernetes_"}, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

func buildInfo() prometheus.Collector {
	v := version.Info()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "kubernetes_build_info",
		Help: beta + "A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree state, build date, Go version, and compiler from which Kubernetes was built, and platform on which it is running.",
		ConstLabels: prometheus.Labels{
			"major": v.Major, "minor": v.Minor, "git_version": v.GitVersion, "git_commit": v.GitCommit, "git_tree_state": v.GitTreeState,
			"build_date": v.BuildDate, "go_version": v.GoVersion, "compiler": v.Compiler, "platform": v.Platform,
		},
	})
	info.Set(1)
	return info
}

// Gather implements prometheus.Gatherer. A metric of the component replaces a
// library's metric with the same name.
func (r *Registry) Gather() ([]*dto.MetricFamily, error) {
	families, err := r.Registry.Gather()
	if err != nil {
		return families, err
	}
	own := make(map[string]bool, len(families))
	for _, f := range families {
		own[f.GetName()] = true
	}
	theirs, err := legacyregistry.DefaultGatherer.Gather()
	for _, f := range theirs {
		if !own[f.GetName()] && r.library(f.GetName()) {
			families = append(families, f)
		}
	}
	slices.SortFunc(families, func(a, b *dto.MetricFamily) int { return strings.Compare(a.GetName(), b.GetName()) })
	return families, err
}

// Handler returns a handler that serves the metrics.
func (r *Registry) Handler() http.Handler { return promhttp.HandlerFor(r, promhttp.HandlerOpts{}) }

// Stability levels, with which upstream's help texts begin.
const (
	stable = "[STABLE] "
	beta   = "[BETA] "
	alpha  = "[ALPHA] "
)

func (r *Registry) counter(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	r.register(c, c.MetricVec, labels)
	return c
}

func (r *Registry) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	r.register(g, g.MetricVec, labels)
	return g
}

func (r *Registry) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	h := nativehistogram.NewVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	r.register(h, h.MetricVec, labels)
	return h
}

func (r *Registry) register(c prometheus.Collector, vec *prometheus.MetricVec, labels []string) {
	r.MustRegister(c)
	if slices.Contains(labels, "group") && slices.Contains(labels, "resource") {
		r.byResource = append(r.byResource, vec)
	}
}

// forget drops the series of a resource.
func (r *Registry) forget(of schema.GroupResource) {
	for _, vec := range r.byResource {
		vec.DeletePartialMatch(prometheus.Labels{"group": of.Group, "resource": of.Resource})
	}
}
