package topologymanager

import "github.com/prometheus/client_golang/prometheus"

// Alignment counts the containers or pods whose resources are within a boundary of the
// machine, such as a NUMA node, and those that could not have such.
type Alignment struct{ Done, Failed prometheus.Counter }

// NewAlignment returns upstream's counters for a scope, container or pod, and a boundary.
func NewAlignment(scope, boundary string) Alignment {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_container_aligned_compute_resources_" + name, Help: help, ConstLabels: prometheus.Labels{"scope": scope, "boundary": boundary},
		})
	}
	return Alignment{
		Done:   counter("count", "[ALPHA] Cumulative number of aligned compute resources allocated to containers by alignment type."),
		Failed: counter("failure_count", "[ALPHA] Cumulative number of failures to allocate aligned compute resources to containers by alignment type."),
	}
}

// Count counts an allocation that ended with the error.
func (a Alignment) Count(err error) {
	if err != nil {
		a.Failed.Inc()
	} else {
		a.Done.Inc()
	}
}
