package metrics

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Admission measures admission: each step as a whole, and the plugins that call
// out, such as webhooks.
type Admission struct {
	steps       passes
	controllers *prometheus.HistogramVec
}

func newAdmission(r *Registry) *Admission {
	buckets := []float64{0.005, 0.025, 0.1, 0.5, 1.0, 2.5}
	steps := r.histogram("apiserver_admission_step_admission_duration_seconds", stable+"Admission sub-step latency histogram in seconds, broken out for each operation and API resource and step type (validate or admit).",
		buckets, "type", "operation", "rejected")
	return &Admission{
		steps: passes{make: func(labels ...string) prometheus.Observer { return steps.WithLabelValues(labels...) }},
		controllers: r.histogram("apiserver_admission_controller_admission_duration_seconds", stable+"Admission controller latency histogram in seconds, identified by name and broken out for each operation and API resource and type (validate or admit).",
			buckets, "name", "type", "operation", "rejected"),
	}
}

// Pass is a kind of pass through admission or one of its plugins.
type Pass struct {
	Validate  bool   // validating, not mutating
	Operation string // of k8s.io/apiserver/pkg/admission, such as CREATE
	Rejected  bool
}

// Step records how long a step with all plugins took.
func (a *Admission) Step(p Pass, took time.Duration) { a.steps.observe(p, took) }

// Plugin measures an admission plugin.
type Plugin struct{ passes }

// Plugin returns the metrics of a plugin.
func (a *Admission) Plugin(name string) *Plugin {
	return &Plugin{passes{make: func(labels ...string) prometheus.Observer {
		return a.controllers.WithLabelValues(append([]string{name}, labels...)...)
	}}}
}

// Observe records how long a call took.
func (p *Plugin) Observe(pass Pass, took time.Duration) { p.observe(pass, took) }

// passes has a series for each kind of pass, created when it is first observed.
type passes struct {
	make   func(labels ...string) prometheus.Observer
	series [2 * 4 * 2]atomic.Pointer[prometheus.Observer]
}

func (s *passes) observe(p Pass, took time.Duration) {
	place := &s.series[p.number()]
	o := place.Load()
	if o == nil {
		made := s.make(p.labels()...)
		place.Store(&made)
		o = &made
	}
	(*o).Observe(took.Seconds())
}

func (p Pass) labels() []string {
	kind := "admit"
	if p.Validate {
		kind = "validate"
	}
	return []string{kind, p.Operation, strconv.FormatBool(p.Rejected)}
}

func (p Pass) number() int {
	n := 0
	switch p.Operation {
	case "UPDATE":
		n = 1
	case "DELETE":
		n = 2
	case "CONNECT":
		n = 3
	}
	n *= 4
	if p.Validate {
		n += 2
	}
	if p.Rejected {
		n++
	}
	return n
}
