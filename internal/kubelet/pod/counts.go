package pod

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/coracle-io/coracle/internal/podquery"
)

// podCounts shows how many pods the node has, and in which part of their life they are,
// under upstream's names.
type podCounts struct {
	workers                           *Workers
	desired, active, mirrors, working *prometheus.Desc
}

func newPodCounts(ws *Workers) *podCounts {
	describe := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("kubelet_"+name, "[ALPHA] "+help, labels, nil)
	}
	return &podCounts{
		workers: ws,
		desired: describe("desired_pods", "The number of pods the kubelet is being instructed to run. static is true if the pod is not from the apiserver.", "static"),
		active: describe("active_pods",
			"The number of pods the kubelet considers active and which are being considered when admitting new pods. static is true if the pod is not from the apiserver.", "static"),
		mirrors: describe("mirror_pods", "The number of mirror pods the kubelet will try to create (one per admitted static pod)"),
		working: describe("working_pods",
			"Number of pods the kubelet is actually running, broken down by lifecycle phase, whether the pod is desired, orphaned, or runtime only (also orphaned), and whether the pod is static. An orphaned pod has been removed from local configuration or force deleted in the API and consumes resources that are not otherwise visible.",
			"lifecycle", "config", "static"),
	}
}

// staticLabel is the label static of a metric.
func staticLabel(static bool) string {
	if static {
		return "true"
	}
	return ""
}

// working are the labels of a pod of which the node has something.
type working struct{ lifecycle, config, static string }

// noWorking returns 0 for each combination of labels that there can be.
func noWorking() map[working]int {
	none := map[working]int{}
	for _, lifecycle := range []string{"sync", "terminating", "terminated"} {
		for _, config := range []string{"desired", "orphan"} {
			for _, static := range []bool{true, false} {
				none[working{lifecycle, config, staticLabel(static)}] = 0
			}
		}
		none[working{lifecycle, "runtime_only", "unknown"}] = 0
	}
	return none
}

// labels returns the labels of the worker's pod. ok is false for a pod that the node
// has rejected, and for one that no source has and of which the runtime has nothing.
func (c *podCounts) labels(w *worker) (labels working, ok bool) {
	r := w.inbox.request()
	labels = working{"sync", "desired", staticLabel(w.inbox.static)}
	switch {
	case r.ended:
		labels.lifecycle = "terminated"
	case r.ending(), podquery.IsFinished(r.pod):
		labels.lifecycle = "terminating"
	}
	if w.orphan {
		labels.config, labels.static = "runtime_only", "unknown"
		observed := w.inbox.lastObserved()
		return labels, observed != nil && len(observed.Sandboxes)+len(observed.Containers) > 0
	}
	if r.removed {
		labels.config = "orphan"
	}
	return labels, !r.rejected
}

// Describe implements prometheus.Collector.
func (c *podCounts) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.desired, c.active, c.mirrors, c.working} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *podCounts) Collect(out chan<- prometheus.Metric) {
	desired, active, all := map[bool]int{true: 0, false: 0}, map[bool]int{true: 0, false: 0}, noWorking()
	for _, w := range c.workers.list() {
		if !w.orphan && !w.inbox.request().removed {
			desired[w.inbox.static]++
		}
		if _, ok := w.inbox.active(); ok {
			active[w.inbox.static]++
		}
		if labels, ok := c.labels(w); ok {
			all[labels]++
		}
	}
	gauge := func(d *prometheus.Desc, n int, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	for _, static := range []bool{true, false} {
		gauge(c.desired, desired[static], staticLabel(static))
		gauge(c.active, active[static], staticLabel(static))
	}
	c.workers.mu.Lock()
	mirrors := len(c.workers.mirrors)
	c.workers.mu.Unlock()
	gauge(c.mirrors, mirrors)
	for labels, n := range all {
		gauge(c.working, n, labels.lifecycle, labels.config, labels.static)
	}
}
