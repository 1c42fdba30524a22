package server

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	v1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// text collects metrics in Prometheus' text format.
type text struct {
	b    strings.Builder
	seen map[string]bool
}

// add writes one sample; labels come in pairs of name and value.
func (t *text) add(name, kind, help string, value float64, labels ...string) {
	if t.seen == nil {
		t.seen = map[string]bool{}
	}
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
	t.b.WriteString(" " + strconv.FormatFloat(value, 'g', -1, 64) + "\n")
}

func (t *text) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write([]byte(t.b.String()))
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
	promhttp.HandlerFor(prometheus.Gatherers{registry, s.config.Metrics}, promhttp.HandlerOpts{}).ServeHTTP(w, r)
}

func nano(p *uint64) float64 {
	if p == nil {
		return 0
	}
	return float64(*p) / 1e9
}

func bytes(p *uint64) float64 {
	if p == nil {
		return 0
	}
	return float64(*p)
}

func (s *Server) gather(w http.ResponseWriter, r *http.Request) *statsapi.Summary {
	summary, err := s.config.Stats.Summary(r.Context(), true)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return nil
	}
	return summary
}

// metricsResource is what metrics-server reads.
func (s *Server) metricsResource(w http.ResponseWriter, r *http.Request) {
	summary := s.gather(w, r)
	if summary == nil {
		return
	}
	var t text
	for _, p := range summary.Pods {
		for _, c := range p.Containers {
			if c.CPU != nil {
				t.add("container_cpu_usage_seconds_total", "counter", "[STABLE] Cumulative cpu time consumed by the container in core-seconds", nano(c.CPU.UsageCoreNanoSeconds),
					"container", c.Name, "namespace", p.PodRef.Namespace, "pod", p.PodRef.Name)
			}
		}
	}
	for _, p := range summary.Pods {
		for _, c := range p.Containers {
			if c.Memory != nil {
				t.add("container_memory_working_set_bytes", "gauge", "[STABLE] Current working set of the container in bytes", bytes(c.Memory.WorkingSetBytes),
					"container", c.Name, "namespace", p.PodRef.Namespace, "pod", p.PodRef.Name)
			}
		}
	}
	for _, p := range summary.Pods {
		for _, c := range p.Containers {
			t.add("container_start_time_seconds", "gauge", "[STABLE] Start time of the container since unix epoch in seconds", float64(c.StartTime.UnixNano())/1e9,
				"container", c.Name, "namespace", p.PodRef.Namespace, "pod", p.PodRef.Name)
		}
	}
	if summary.Node.CPU != nil {
		t.add("node_cpu_usage_seconds_total", "counter", "[STABLE] Cumulative cpu time consumed by the node in core-seconds", nano(summary.Node.CPU.UsageCoreNanoSeconds))
	}
	if summary.Node.Memory != nil {
		t.add("node_memory_working_set_bytes", "gauge", "[STABLE] Current working set of the node in bytes", bytes(summary.Node.Memory.WorkingSetBytes))
	}
	for _, p := range summary.Pods {
		if p.CPU != nil {
			t.add("pod_cpu_usage_seconds_total", "counter", "[STABLE] Cumulative cpu time consumed by the pod in core-seconds", nano(p.CPU.UsageCoreNanoSeconds),
				"namespace", p.PodRef.Namespace, "pod", p.PodRef.Name)
		}
	}
	for _, p := range summary.Pods {
		if p.Memory != nil {
			t.add("pod_memory_working_set_bytes", "gauge", "[STABLE] Current working set of the pod in bytes", bytes(p.Memory.WorkingSetBytes),
				"namespace", p.PodRef.Namespace, "pod", p.PodRef.Name)
		}
	}
	t.add("resource_scrape_error", "gauge", "[STABLE] 1 if there was an error while getting container metrics, 0 otherwise", 0)
	t.write(w)
}

func (s *Server) metricsProbes(w http.ResponseWriter, _ *http.Request) {
	var t text
	for c, n := range s.config.ProbeCounts() {
		t.add("prober_probe_total", "counter", "[BETA] Cumulative number of a liveness, readiness or startup probe for a container by result.", float64(n),
			"container", c.Container, "namespace", c.Namespace, "pod", c.Pod, "probe_type", c.Probe, "result", c.Result)
	}
	t.write(w)
}
