package cgroup

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/nativehistogram"
)

// measured are groups whose changes are measured.
type measured struct {
	Groups
	duration *prometheus.HistogramVec
}

// Measure returns groups whose changes are measured by upstream's metric, which it
// registers with r. The operation "update" also makes a missing group.
func Measure(groups Groups, r prometheus.Registerer) Groups {
	m := measured{groups, nativehistogram.NewVec(prometheus.HistogramOpts{
		Name: "kubelet_cgroup_manager_duration_seconds", Help: "[ALPHA] Duration in seconds for cgroup manager operations. Broken down by method.",
		Buckets: prometheus.DefBuckets,
	}, []string{"operation_type"})}
	r.MustRegister(m.duration)
	return m
}

func (m measured) observe(operation string, began time.Time) {
	m.duration.WithLabelValues(operation).Observe(time.Since(began).Seconds())
}

// Apply implements Groups.
func (m measured) Apply(path string, r *runtimeapi.LinuxContainerResources, pids int64) error {
	defer m.observe("update", time.Now())
	return m.Groups.Apply(path, r, pids)
}

// Limit implements Groups.
func (m measured) Limit(path string, r *runtimeapi.LinuxContainerResources, pids int64) error {
	defer m.observe("update", time.Now())
	return m.Groups.Limit(path, r, pids)
}

// Remove implements Groups.
func (m measured) Remove(path string) error {
	defer m.observe("destroy", time.Now())
	return m.Groups.Remove(path)
}
