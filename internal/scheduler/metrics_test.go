package scheduler

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/coracle-io/coracle/internal/scheduler/config"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/scheduler/queue"
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
		"SchedulingGates PreEnqueue Success", "DefaultPreemption PreEnqueue Success", "InterPodAffinity PreFilter Success", "NodeAffinity PreFilter Skip", "NodeResourcesFit Filter Success", "NodeResourcesFit Score Success",
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

// Each extension point is measured, also those that have nothing to do.
func TestMetricsOfPoints(t *testing.T) {
	simulate(t, func(s *simulation) {
		s.metrics = NewMetrics(prometheus.NewRegistry())
		s.onBind = func(p *v1.Pod, _ string) (bool, error) {
			if p.Name == "q" {
				return false, errors.New("not now")
			}
			return true, nil
		}
	}, func(s *simulation) {
		s.add(pod("p", requests("100m", "1Mi")))
		advance(time.Second)
		s.add(pod("q", requests("100m", "1Mi")))
		advance(500 * time.Millisecond)
		for _, test := range []struct {
			point, status string
			want          uint64
		}{
			{"PreEnqueue", "Success", 2}, {"PreFilter", "Success", 2}, {"Filter", "Success", 2}, {"PreScore", "Success", 2}, {"Score", "Success", 2}, {"Reserve", "Success", 2},
			{"PreBindPreFlight", "Skip", 2}, {"Bind", "Success", 1}, {"Bind", "Error", 1}, {"PostBind", "Success", 1}, {"Unreserve", "Success", 1},
		} {
			var m dto.Metric
			if err := s.scheduler.metrics.points.WithLabelValues(test.point, test.status, DefaultName).(prometheus.Histogram).Write(&m); err != nil {
				t.Fatal(err)
			}
			if got := m.Histogram.GetSampleCount(); got != test.want {
				t.Errorf("%s %s: %d observations, want %d", test.point, test.status, got, test.want)
			}
		}
	}, node("a"), node("b"))
}

// A group is one entity, however many of its pods wait.
func TestMetricsOfEntities(t *testing.T) {
	member := func(p *v1.Pod) { p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: new("gang")} }
	registry := prometheus.NewRegistry()
	simulate(t, func(s *simulation) { s.metrics = NewMetrics(registry) }, func(s *simulation) {
		for _, p := range []*v1.Pod{pod("one", requests("9", "1Gi")), pod("two", requests("9", "1Gi")), pod("m0", requests("9", "1Gi"), member), pod("m1", requests("9", "1Gi"), member)} {
			s.add(p)
		}
		advance(time.Second)
		if got := testutil.ToFloat64(s.scheduler.metrics.entities.WithLabelValues("active", "UnscheduledPodAdd", "pod")); got != 2 {
			t.Errorf("%v pods came, want 2", got)
		}
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() != "scheduler_queued_entities" {
				continue
			}
			for _, m := range f.Metric {
				want := map[string]float64{"unschedulable pod": 2, "unschedulable podgroup": 1}
				if entity := m.Label[0].GetValue() + " " + m.Label[1].GetValue(); m.Gauge.GetValue() != want[entity] {
					t.Errorf("%s: %v, want %v", entity, m.Gauge.GetValue(), want[entity])
				}
			}
			return
		}
		t.Error("there is no such metric")
	}, node("a"))
}

// Turns of groups are measured, and preemptions for them apart from those for single
// pods.
func TestMetricsOfGroups(t *testing.T) {
	withGangs(t, func(s *simulation) {
		for i := range 2 {
			s.add(pod(fmt.Sprint("first-", i), requests("1", "1Gi"), priority(1), inGang("first")))
		}
		advance(10 * time.Second)
		for i := range 2 {
			s.add(pod(fmt.Sprint("low-", i), requests("1", "1Gi"), priority(1), inGang("low")))
		}
		advance(10 * time.Second)
		w := s.metrics.workloads
		count := func(of *prometheus.CounterVec, labels ...string) float64 {
			return testutil.ToFloat64(of.WithLabelValues(labels...))
		}
		if got := count(w.attempts, scheduled, DefaultName); got != 1 {
			t.Errorf("%v groups were scheduled, want 1", got)
		}
		if count(w.attempts, unschedulable, DefaultName) == 0 || count(w.preemptions, "Unschedulable") == 0 {
			t.Error("the group that does not fit is not counted")
		}
		for i := range 2 {
			s.add(pod(fmt.Sprint("urgent-", i), requests("1", "1Gi"), priority(10), inGang("urgent")))
		}
		advance(time.Minute)
		if got := count(w.preemptions, "Success"); got != 1 || count(w.attempts, scheduled, DefaultName) != 2 {
			t.Errorf("%v groups had room made, want 1", got)
		}
		for name, h := range map[string]prometheus.Observer{
			"groups with victims": w.victims.WithLabelValues(), "evaluations": w.evaluation.WithLabelValues("podgroup", "Success"), "executions": w.execution.WithLabelValues("podgroup", "success"),
			"pods with victims": s.metrics.victims,
		} {
			var m dto.Metric
			if err := h.(prometheus.Metric).Write(&m); err != nil {
				t.Fatal(err)
			}
			want := map[string]uint64{"groups with victims": 1, "evaluations": 2, "executions": 2}[name]
			got := m.Histogram.GetSampleCount()
			if name == "evaluations" && got > want { // a turn may begin when the second pod is gated still
				got = want
			}
			if got != want || name == "groups with victims" && m.Histogram.GetSampleSum() != 2 {
				t.Errorf("%s: %d, with the sum %v, want %d", name, got, m.Histogram.GetSampleSum(), want)
			}
		}
	}, node("a"), gang("first", 2), gang("low", 2), gang("urgent", 2))
}

// Preemptions for single pods are measured with the groups', also those that fail.
func TestMetricsOfFailedPreemptions(t *testing.T) {
	withGangs(t, func(s *simulation) {
		failures := 3 // all tries of one eviction
		s.onPatch = func(name string) error {
			if name == "low" && failures > 0 {
				failures--
				return errors.New("not now")
			}
			return nil
		}
		s.add(full("low", "a", 1))
		advance(time.Second)
		s.add(pod("high", requests("2", "1Gi"), priority(10)))
		advance(time.Minute)
		w := s.metrics.workloads
		for name, test := range map[string]struct {
			of   prometheus.Observer
			want uint64
		}{
			"evaluations": {w.evaluation.WithLabelValues("pod", "Success"), 2}, "failures": {w.execution.WithLabelValues("pod", "error"), 1},
			"successes": {w.execution.WithLabelValues("pod", "success"), 1}, "of groups": {w.execution.WithLabelValues("podgroup", "success"), 0},
		} {
			var m dto.Metric
			if err := test.of.(prometheus.Metric).Write(&m); err != nil {
				t.Fatal(err)
			}
			if got := m.Histogram.GetSampleCount(); got != test.want {
				t.Errorf("%s: %d, want %d", name, got, test.want)
			}
		}
	}, node("a"))
}

// No room is sought for a group whose attempts end by errors.
func TestMetricsOfFailedGroups(t *testing.T) {
	withGangs(t, func(s *simulation) {
		p := pod("p", inGang("gang"))
		p.Spec.SchedulerName = DefaultName
		a := &attempt{pod: &queue.QueuedPodInfo{PodInfo: framework.NewPodInfo(p)}, profile: s.scheduler.profiles[DefaultName]}
		g := &groupCycle{s: s.scheduler, first: a.pod.PodInfo, unfit: []unfit{{attempt: a, err: errors.New("out of order")}}}
		g.withdraw(s.t.Context(), false)
		w := s.metrics.workloads
		if n := testutil.ToFloat64(w.attempts.WithLabelValues(failed, DefaultName)); n != 1 {
			t.Errorf("%v groups failed, want 1", n)
		}
		if n := testutil.ToFloat64(w.preemptions.WithLabelValues("Unschedulable")); n != 0 {
			t.Errorf("room was sought %v times", n)
		}
	}, node("a"))
}

// Without the feature GenericWorkload there are no metrics of groups.
func TestNoMetricsOfGroups(t *testing.T) {
	registry := prometheus.NewRegistry()
	simulate(t, func(s *simulation) { s.metrics = NewMetrics(registry) }, func(s *simulation) {
		s.add(full("low", "a", 1))
		advance(time.Second)
		s.add(pod("high", requests("2", "1Gi"), priority(10)))
		advance(time.Minute)
		if s.deleted()["low"] != 1 {
			t.Errorf("deletes %v", s.deleted())
		}
	}, node("a"))
	for name, want := range map[string]int{
		"scheduler_preemption_evaluation_duration_seconds": 0, "scheduler_preemption_execution_duration_seconds": 0, "scheduler_preemption_pdb_violations_total": 0,
		"scheduler_podgroup_scheduling_algorithm_duration_seconds": 0, "scheduler_workload_preemption_victims": 0, "scheduler_preemption_goroutines_execution_total": 1,
	} {
		if got, err := testutil.GatherAndCount(registry, name); err != nil || got != want {
			t.Errorf("%s: %d series, %v, want %d", name, got, err, want)
		}
	}
}

// Failures of volumes, waits for devices and claims are counted with upstream's labels.
func TestMetricsOfVolumesAndDevices(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := NewMetrics(registry)
	m.volumeErrors.WithLabelValues("bind").Inc()
	m.waitedForDevices("p", "gpu.example.com", "timeout", time.Second)
	m.claimed(true)
	m.claimed(false)
	for name, want := range map[string]int{
		"scheduler_volume_scheduling_stage_error_total": 1, "scheduler_dra_bindingconditions_allocations_total": 1,
		"scheduler_dra_bindingconditions_wait_duration_seconds": 1, "dynamic_resource_allocation_resourceclaim_creates_total": 2,
	} {
		if got, err := testutil.GatherAndCount(registry, name); err != nil || got != want {
			t.Errorf("%s: %d series, %v, want %d", name, got, err, want)
		}
	}
}
