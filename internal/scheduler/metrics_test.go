package scheduler

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/coracle-io/coracle/internal/scheduler/config"
)

// The evaluations of plugins are counted, and one attempt in ten is measured
// plugin by plugin.
func TestMetricsOfPlugins(t *testing.T) {
	registry := prometheus.NewRegistry()
	simulate(t, func(s *simulation) { s.metrics = NewMetrics(registry) }, func(s *simulation) {
		for i := range 10 {
			s.add(pod(fmt.Sprint("p", i), requests("100m", "1Mi"), antiAffinity("app", "other")))
			advance(time.Second)
		}
		m := s.scheduler.metrics
		for _, test := range []struct {
			plugin, point string
			want          float64
		}{
			{"InterPodAffinity", "PreFilter", 10},
			{"NodeAffinity", "PreFilter", 0}, // skips
		} {
			if got := testutil.ToFloat64(m.evaluations.WithLabelValues(test.plugin, test.point, DefaultName)); got != test.want {
				t.Errorf("%s %s: %v evaluations, want %v", test.plugin, test.point, got, test.want)
			}
		}
		// Filters are asked again about a node that took a pod, but not about
		// unchanged nodes.
		for _, point := range []string{"Filter", "Score"} {
			if got := testutil.ToFloat64(m.evaluations.WithLabelValues("NodeResourcesFit", point, DefaultName)); got < 10 || got > 20 {
				t.Errorf("%s: %v evaluations, want 10 to 20", point, got)
			}
		}
	}, node("a"), node("b"))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	observed := map[string]uint64{}
	for _, f := range families {
		if f.GetName() != "scheduler_plugin_execution_duration_seconds" {
			continue
		}
		for _, m := range f.Metric {
			labels := map[string]string{}
			for _, l := range m.Label {
				labels[l.GetName()] = l.GetValue()
			}
			observed[labels["plugin"]+" "+labels["extension_point"]+" "+labels["status"]] = m.Histogram.GetSampleCount()
		}
	}
	for _, want := range []string{
		"InterPodAffinity PreFilter Success", "NodeAffinity PreFilter Skip", "NodeResourcesFit Filter Success", "NodeResourcesFit Score Success",
		"VolumeBinding Reserve Success", "DefaultBinder Bind Success",
	} {
		if observed[want] != 1 {
			t.Errorf("%s: %d observations, want 1", want, observed[want])
		}
	}
}

// The hints of a plugin are measured when an event comes that it registered.
func TestMetricsOfHints(t *testing.T) {
	simulate(t, func(s *simulation) { s.metrics = NewMetrics(prometheus.NewRegistry()) }, func(s *simulation) {
		for i := range 2 {
			s.add(pod(fmt.Sprint("large", i), requests("9", "1Gi")))
		}
		advance(time.Second)
		for _, n := range []*v1.Node{node("small"), node("huge", func(n *v1.Node) { n.Status.Allocatable[v1.ResourceCPU] = resource.MustParse("20") })} {
			if err := s.objects.Add(n); err != nil {
				t.Fatal(err)
			}
			advance(time.Second)
		}
		for hint, want := range map[string]uint64{"QueueSkip": 1, "Queue": 1} {
			var m dto.Metric
			if err := s.scheduler.metrics.hints.WithLabelValues("NodeResourcesFit", "NodeAdd", hint).(prometheus.Histogram).Write(&m); err != nil {
				t.Fatal(err)
			}
			if got := m.Histogram.GetSampleCount(); got != want {
				t.Errorf("%s: %d observations, want %d", hint, got, want)
			}
		}
	}, node("a"))
}

// An attempt to make room is counted where a plugin makes it.
func TestPreemptionAttempts(t *testing.T) {
	without := config.Profile{SchedulerName: DefaultName, Plugins: config.Plugins{PostFilter: config.PluginSet{Disabled: []string{"*"}}}}
	for _, test := range []struct {
		profiles []config.Profile
		want     float64
	}{{nil, 1}, {[]config.Profile{without}, 0}} {
		simulate(t, func(s *simulation) {
			s.metrics = NewMetrics(prometheus.NewRegistry())
			s.config = config.Configuration{Profiles: test.profiles}
		}, func(s *simulation) {
			s.add(pod("large", requests("9", "1Gi")))
			advance(time.Second)
			if got := testutil.ToFloat64(s.scheduler.metrics.preemptions); got != test.want {
				t.Errorf("%d profiles: %v attempts, want %v", len(test.profiles), got, test.want)
			}
		}, node("a"))
	}
}
