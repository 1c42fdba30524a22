package server

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// text writes metrics in Prometheus' text format, a block at a time: those of all
// containers may be much longer than what the kubelet may use.
type text struct {
	w    http.ResponseWriter
	b    strings.Builder // what has not been written yet
	seen map[string]bool
}

// textBlock is the size of a block, in bytes.
const textBlock = 64 << 10

func newText(w http.ResponseWriter) *text {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	return &text{w: w, seen: map[string]bool{}}
}

// add writes one sample; labels come in pairs of name and value.
func (t *text) add(name, kind, help string, value float64, labels ...string) {
	t.addAt(metav1.Time{}, name, kind, help, value, labels...)
}

// addAt writes one sample with the time at which it was taken. The zero time
// leaves it out.
func (t *text) addAt(at metav1.Time, name, kind, help string, value float64, labels ...string) {
	if !t.seen[name] {
		t.seen[name] = true
		fmt.Fprintf(&t.b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
	}
	t.b.WriteString(name)
	for i := 0; i+1 < len(labels); i += 2 {
		sep := ","
		if i == 0 {
			sep = "{"
		}
		fmt.Fprintf(&t.b, "%s%s=%q", sep, labels[i], labels[i+1])
	}
	if len(labels) > 0 {
		t.b.WriteByte('}')
	}
	t.b.WriteString(" " + strconv.FormatFloat(value, 'g', -1, 64))
	if !at.IsZero() {
		t.b.WriteString(" " + strconv.FormatInt(at.UnixMilli(), 10))
	}
	t.b.WriteByte('\n')
	if t.b.Len() >= textBlock {
		t.flush()
	}
}

// flush writes what is left.
func (t *text) flush() {
	_, _ = t.w.Write([]byte(t.b.String()))
	t.b.Reset()
}

func (s *Server) metrics(w http.ResponseWriter, r *http.Request) {
	registry := prometheus.NewRegistry()
	gauge := func(name, help string, value float64, labels prometheus.Labels) {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels})
		g.Set(value)
		registry.MustRegister(g)
	}
	pods, containers := 0, map[string]int{}
	for _, pod := range s.config.Pods.Pods() {
		if pod.Status.Phase == v1.PodRunning {
			pods++
		}
		for _, c := range pod.Status.ContainerStatuses {
			switch {
			case c.State.Running != nil:
				containers["running"]++
			case c.State.Terminated != nil:
				containers["exited"]++
			}
		}
	}
	gauge("kubelet_running_pods", "[ALPHA] Number of pods that have a running pod sandbox", float64(pods), nil)
	for state, n := range containers {
		gauge("kubelet_running_containers", "[ALPHA] Number of containers currently running", float64(n), prometheus.Labels{"container_state": state})
	}
	gauge("kubelet_node_name", "[ALPHA] The node's name. The count is always 1.", 1, prometheus.Labels{"node": s.config.NodeName})
	gauge("kubelet_metrics_provider", "[ALPHA] Metrics provider used by kubelet to collect container stats. Values can be 'cadvisor' and 'cri'", 1, prometheus.Labels{"provider": "cri"})
	promhttp.HandlerFor(prometheus.Gatherers{registry, s.config.Metrics}, promhttp.HandlerOpts{}).ServeHTTP(w, r)
}

func bytes(n uint64) float64 { return float64(n) }

// gather returns what /metrics/resource shows, nil if that cannot be read. Then the answer
// says so, as upstream's.
func (s *Server) gather(w http.ResponseWriter, r *http.Request) *statsapi.Summary {
	summary, err := s.config.Stats.Summary(r.Context(), true)
	if err != nil {
		klog.FromContext(r.Context()).Error(err, "The usage of resources cannot be read")
		t := newText(w)
		t.scraped(1)
		t.flush()
		return nil
	}
	return summary
}

// scraped adds whether the usage of resources could not be read: 1, or 0.
func (t *text) scraped(failed float64) {
	t.add("resource_scrape_error", "gauge", "[STABLE] 1 if there was an error while getting container metrics, 0 otherwise", failed)
}

// metricsResource serves /metrics/resource, which metrics-server reads.
func (s *Server) metricsResource(w http.ResponseWriter, r *http.Request) {
	summary := s.gather(w, r)
	if summary == nil {
		return
	}
	t := newText(w)
	// measured adds a value unless it is nil: 0 would be a container that uses
	// nothing.
	measured := func(at metav1.Time, name, kind, help string, value *uint64, unit func(uint64) float64, labels ...string) {
		if value != nil {
			t.addAt(at, name, kind, help, unit(*value), labels...)
		}
	}
	containers := func(add func(c *statsapi.ContainerStats, labels ...string)) {
		for i := range summary.Pods {
			p := &summary.Pods[i]
			for j := range p.Containers {
				add(&p.Containers[j], "container", p.Containers[j].Name, "namespace", p.PodRef.Namespace, "pod", p.PodRef.Name)
			}
		}
	}
	containers(func(c *statsapi.ContainerStats, labels ...string) {
		if c.CPU != nil {
			measured(c.CPU.Time, "container_cpu_usage_seconds_total", "counter", "[STABLE] Cumulative cpu time consumed by the container in core-seconds", c.CPU.UsageCoreNanoSeconds, seconds, labels...)
		}
	})
	containers(func(c *statsapi.ContainerStats, labels ...string) {
		if c.Swap != nil {
			measured(c.Swap.Time, "container_swap_usage_bytes", "gauge", "[ALPHA] Current amount of the container swap usage in bytes. Reported only on non-windows systems", c.Swap.SwapUsageBytes, bytes, labels...)
		}
	})
	containers(func(c *statsapi.ContainerStats, labels ...string) {
		if c.Swap != nil && c.Swap.SwapUsageBytes != nil && c.Swap.SwapAvailableBytes != nil {
			limit := *c.Swap.SwapUsageBytes + *c.Swap.SwapAvailableBytes
			measured(c.Swap.Time, "container_swap_limit_bytes", "gauge", "[ALPHA] Current amount of the container swap limit in bytes. Reported only on non-windows systems", &limit, bytes, labels...)
		}
	})
	containers(func(c *statsapi.ContainerStats, labels ...string) {
		if c.Memory != nil {
			measured(c.Memory.Time, "container_memory_working_set_bytes", "gauge", "[STABLE] Current working set of the container in bytes", c.Memory.WorkingSetBytes, bytes, labels...)
		}
	})
	containers(func(c *statsapi.ContainerStats, labels ...string) {
		if c.StartTime.Unix() > 0 {
			t.add("container_start_time_seconds", "gauge", "[STABLE] Start time of the container since unix epoch in seconds", float64(c.StartTime.UnixNano())/1e9, labels...)
		}
	})
	if cpu := summary.Node.CPU; cpu != nil {
		measured(cpu.Time, "node_cpu_usage_seconds_total", "counter", "[STABLE] Cumulative cpu time consumed by the node in core-seconds", cpu.UsageCoreNanoSeconds, seconds)
	}
	if memory := summary.Node.Memory; memory != nil {
		measured(memory.Time, "node_memory_working_set_bytes", "gauge", "[STABLE] Current working set of the node in bytes", memory.WorkingSetBytes, bytes)
	}
	if swap := summary.Node.Swap; swap != nil {
		measured(swap.Time, "node_swap_usage_bytes", "gauge", "[ALPHA] Current swap usage of the node in bytes. Reported only on non-windows systems", swap.SwapUsageBytes, bytes)
	}
	pods := func(add func(p *statsapi.PodStats, labels ...string)) {
		for i := range summary.Pods {
			p := &summary.Pods[i]
			add(p, "namespace", p.PodRef.Namespace, "pod", p.PodRef.Name)
		}
	}
	pods(func(p *statsapi.PodStats, labels ...string) {
		if p.CPU != nil {
			measured(p.CPU.Time, "pod_cpu_usage_seconds_total", "counter", "[STABLE] Cumulative cpu time consumed by the pod in core-seconds", p.CPU.UsageCoreNanoSeconds, seconds, labels...)
		}
	})
	pods(func(p *statsapi.PodStats, labels ...string) {
		if p.Memory != nil {
			measured(p.Memory.Time, "pod_memory_working_set_bytes", "gauge", "[STABLE] Current working set of the pod in bytes", p.Memory.WorkingSetBytes, bytes, labels...)
		}
	})
	pods(func(p *statsapi.PodStats, labels ...string) {
		if p.Swap != nil {
			measured(p.Swap.Time, "pod_swap_usage_bytes", "gauge", "[ALPHA] Current amount of the pod swap usage in bytes. Reported only on non-windows systems", p.Swap.SwapUsageBytes, bytes, labels...)
		}
	})
	t.scraped(0)
	t.flush()
}

func (s *Server) metricsProbes(w http.ResponseWriter, _ *http.Request) {
	t := newText(w)
	for c, n := range s.config.ProbeCounts() {
		t.add("prober_probe_total", "counter", "[BETA] Cumulative number of a liveness, readiness or startup probe for a container by result.", float64(n),
			"container", c.Container, "namespace", c.Namespace, "pod", c.Pod, "pod_uid", string(c.UID), "probe_type", c.Probe, "result", c.Result)
	}
	t.flush()
}
