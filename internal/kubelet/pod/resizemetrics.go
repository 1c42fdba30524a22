package pod

import (
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/nativehistogram"
)

// resizeMetrics measures resizes of pods in place (KEP-1287) under upstream's names.
type resizeMetrics struct {
	requested  *prometheus.CounterVec   // by operation, requirement and resource
	infeasible *prometheus.CounterVec   // by reason_detail
	accepted   *prometheus.CounterVec   // after they waited, by retry_trigger
	duration   *prometheus.HistogramVec // by success
}

func newResizeMetrics() *resizeMetrics {
	return &resizeMetrics{
		requested: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_container_requested_resizes_total",
			Help: "[ALPHA] Number of requested resizes, counted at the container level. Different resources on the same container are counted separately. The 'requirement' label refers to 'memory' or 'limits'; the 'operation' label can be one of 'add', 'remove', 'increase' or 'decrease'."},
			[]string{"operation", "requirement", "resource"}),
		infeasible: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_pod_infeasible_resizes_total",
			Help: "[ALPHA] Number of infeasible resizes for pods."}, []string{"reason_detail"}),
		accepted: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_pod_deferred_accepted_resizes_total",
			Help: "[ALPHA] Cumulative number of resizes that were accepted after being deferred."}, []string{"retry_trigger"}),
		duration: nativehistogram.NewVec(prometheus.HistogramOpts{Name: "kubelet_pod_resize_duration_milliseconds",
			Help:    "[ALPHA] Duration in milliseconds to actuate a pod resize",
			Buckets: []float64{10, 50, 100, 500, 1000, 2000, 5000, 10000, 20000, 30000, 60000, 120000, 300000, 600000}}, []string{"success"}),
	}
}

// took measures an attempt to give containers their resources.
func (m *resizeMetrics) took(began time.Time, success bool) {
	m.duration.WithLabelValues(strconv.FormatBool(success)).Observe(time.Since(began).Seconds() * 1000)
}

// accept counts a resize that the node has accepted. waited is the condition of the
// pod's resize before that, nil if none waited; the generation is that of the pod now.
// Resizes that wait are tried when their pod changes, and from time to time.
func (m *resizeMetrics) accept(waited *v1.PodCondition, generation int64) {
	if waited == nil || waited.Reason != v1.PodReasonDeferred {
		return
	}
	trigger := "periodic_retry"
	if waited.ObservedGeneration != generation {
		trigger = "pod_updated"
	}
	m.accepted.WithLabelValues(trigger).Inc()
}

// request counts the changes of containers' resources since the last specification
// of the pod. The first that this kubelet sees is no change: before is nil.
func (m *resizeMetrics) request(before, want *allocation) {
	if before == nil {
		return
	}
	for name, now := range want.Containers {
		if was, ok := before.Containers[name]; ok {
			m.changed("requests", was.Requests, now.Requests)
			m.changed("limits", was.Limits, now.Limits)
		}
	}
}

func (m *resizeMetrics) changed(requirement string, was, now v1.ResourceList) {
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		if operation := operationOf(was, now, name); operation != "" {
			m.requested.WithLabelValues(operation, requirement, string(name)).Inc()
		}
	}
}

// operationOf returns how the amount of a resource changes, "" if it does not.
func operationOf(was, now v1.ResourceList, name v1.ResourceName) string {
	before, had := was[name]
	after, has := now[name]
	switch order := after.Cmp(before); {
	case has && !had:
		return "add"
	case had && !has:
		return "remove"
	case order > 0:
		return "increase"
	case order < 0:
		return "decrease"
	}
	return ""
}

// unfinishedResizes shows how many pods have resizes that wait or are in progress.
type unfinishedResizes struct {
	workers           *Workers
	pending, progress *prometheus.Desc
}

func newUnfinishedResizes(ws *Workers) *unfinishedResizes {
	return &unfinishedResizes{
		workers:  ws,
		pending:  prometheus.NewDesc("kubelet_pod_pending_resizes", "[ALPHA] Number of pending resizes for pods.", []string{"reason"}, nil),
		progress: prometheus.NewDesc("kubelet_pod_in_progress_resizes", "[ALPHA] Number of in-progress resizes for pods.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *unfinishedResizes) Describe(out chan<- *prometheus.Desc) {
	out <- c.pending
	out <- c.progress
}

// Collect implements prometheus.Collector.
func (c *unfinishedResizes) Collect(out chan<- prometheus.Metric) {
	pending, progress := map[string]int{"deferred": 0, "infeasible": 0}, 0
	for _, w := range c.workers.list() {
		for _, condition := range w.inbox.resizeConditions() {
			if condition.Type == v1.PodResizePending {
				pending[strings.ToLower(condition.Reason)]++
			} else {
				progress++
			}
		}
	}
	for reason, n := range pending {
		out <- prometheus.MustNewConstMetric(c.pending, prometheus.GaugeValue, float64(n), reason)
	}
	out <- prometheus.MustNewConstMetric(c.progress, prometheus.GaugeValue, float64(progress))
}
