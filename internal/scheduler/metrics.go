package scheduler

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/nativehistogram"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/scheduler/podgroup"
)

// Metrics holds the metrics of a scheduler, with upstream's names.
type Metrics struct {
	attempts    *prometheus.CounterVec
	attempt     *prometheus.HistogramVec
	algorithm   prometheus.Histogram
	victims     prometheus.Histogram
	preemptions prometheus.Counter
	goroutines  *prometheus.GaugeVec
	toPlace     *prometheus.HistogramVec
	tries       prometheus.Histogram
	points      *prometheus.HistogramVec
	incoming    *prometheus.CounterVec
	entities    *prometheus.CounterVec
	handling    *prometheus.HistogramVec
	permitWait  *prometheus.HistogramVec
	afterFlush  prometheus.Counter
	evictions   *prometheus.CounterVec
	evicting    *prometheus.HistogramVec
	plugins     *prometheus.HistogramVec
	evaluations *prometheus.CounterVec
	hints       *prometheus.HistogramVec
	// volumeErrors are failures of VolumeBinding, and claims those that DynamicResources
	// created. bindingConditions and bindingWait are of devices that pods waited for.
	volumeErrors      *prometheus.CounterVec
	claims            *prometheus.CounterVec
	bindingConditions *prometheus.CounterVec
	bindingWait       *prometheus.HistogramVec
	workloads         *workloadMetrics
	// running are the schedulers whose queues are shown.
	running sync.Map // *Scheduler to true
}

// NewMetrics makes the metrics and registers them.
func NewMetrics(r prometheus.Registerer) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "scheduler_" + name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "scheduler_" + name, Help: help}, labels)
	}
	histogram := func(name, help string, first, factor float64, buckets int) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{Name: "scheduler_" + name, Help: help, Buckets: prometheus.ExponentialBuckets(first, factor, buckets)}
	}
	m := &Metrics{
		attempts: counter("schedule_attempts_total", "[STABLE] Number of attempts to schedule pods, by the result. 'unschedulable' means a pod could not be scheduled, while 'error' means an internal scheduler problem.", "result", "profile"),
		attempt: nativehistogram.NewVec(histogram("scheduling_attempt_duration_seconds", "[STABLE] Scheduling attempt latency in seconds (scheduling algorithm + binding)",
			0.001, 2, 15), []string{"result", "profile"}),
		algorithm:   nativehistogram.New(histogram("scheduling_algorithm_duration_seconds", "[BETA] Scheduling algorithm latency in seconds", 0.001, 2, 15)),
		victims:     nativehistogram.New(histogram("preemption_victims", "[STABLE] Number of selected preemption victims for preemption initiated by a single pod", 1, 2, 7)),
		preemptions: prometheus.NewCounter(prometheus.CounterOpts{Name: "scheduler_preemption_attempts_total", Help: "[STABLE] Total preemption attempts in the cluster till now"}),
		goroutines:  gauge("goroutines", "[BETA] Number of running goroutines split by the work they do such as binding.", "operation"),
		toPlace: nativehistogram.NewVec(histogram("pod_scheduling_sli_duration_seconds", "[BETA] E2e latency for a pod being scheduled, from the time the pod enters the scheduling queue and might involve multiple scheduling attempts.",
			0.01, 2, 20), []string{"attempts"}),
		tries: nativehistogram.New(histogram("pod_scheduling_attempts", "[STABLE] Number of attempts to successfully schedule a pod.", 1, 2, 5)),
		points: nativehistogram.NewVec(histogram("framework_extension_point_duration_seconds", "[STABLE] Latency for running all plugins of a specific extension point.",
			0.0001, 2, 12), []string{"extension_point", "status", "profile"}),
		incoming: counter("queue_incoming_pods_total", "[STABLE] Number of pods added to scheduling queues by event and queue type.", "queue", "event"),
		entities: counter("queue_incoming_entities_total", "[ALPHA] Number of scheduling entities added to scheduling queues by event, queue type, and entity type. Entity types are either 'pod' (for individual pods that are not members of any podgroup) or 'podgroup'.", "queue", "event", "type"),
		handling: nativehistogram.NewVec(histogram("event_handling_duration_seconds", "[ALPHA] Event handling latency in seconds.", 0.0001, 2, 12), []string{"event"}),
		permitWait: nativehistogram.NewVec(histogram("permit_wait_duration_seconds", "[BETA] Duration of waiting on permit.",
			0.001, 2, 15), []string{"result"}),
		afterFlush: prometheus.NewCounter(prometheus.CounterOpts{Name: "scheduler_pod_scheduled_after_flush_total", Help: "[ALPHA] Number of pods that were scheduled after they had been flushed from the unschedulable pods due to timeout: a queueing hint may have missed an event."}),
		evictions:  counter("preemption_goroutines_execution_total", "[ALPHA] Number of preemption goroutines executed.", "result"),
		evicting: nativehistogram.NewVec(histogram("preemption_goroutines_duration_seconds", "[ALPHA] (Deprecated since 1.37.0) Duration in seconds for running goroutines for the preemption.",
			0.01, 2, 20), []string{"result"}),
		plugins: nativehistogram.NewVec(histogram("plugin_execution_duration_seconds", "[BETA] Duration for running a plugin at a specific extension point.",
			0.00001, 1.5, 20), []string{"plugin", "extension_point", "status"}),
		hints: nativehistogram.NewVec(histogram("queueing_hint_execution_duration_seconds", "[ALPHA] Duration for running a queueing hint function of a plugin.",
			0.00001, 1.5, 20), []string{"plugin", "event", "hint"}),
		evaluations:  counter("plugin_evaluation_total", "[BETA] Number of attempts to schedule pods by each plugin and the extension point (available only in PreFilter, Filter, PreScore, and Score).", "plugin", "extension_point", "profile"),
		volumeErrors: counter("volume_scheduling_stage_error_total", "[ALPHA] Volume scheduling stage error count", "operation"),
		claims: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dynamic_resource_allocation_resourceclaim_creates_total",
			Help: "[ALPHA] Number of ResourceClaims creation requests, categorized by creation status, admin access, and owning API group and kind (either Pod or scheduling.k8s.io/PodGroup)",
		}, []string{"status", "admin_access", "owner_api_group", "owner_api_kind"}),
		bindingConditions: counter("dra_bindingconditions_allocations_total", "[ALPHA] Number of allocations using devices with BindingConditions, counted per driver per scheduling attempt", "profile", "driver", "status"),
		bindingWait: nativehistogram.NewVec(histogram("dra_bindingconditions_wait_duration_seconds", "[ALPHA] Time in seconds spent waiting for BindingConditions to be satisfied during PreBind.",
			0.1, 2, 14), []string{"profile", "driver", "status"}),
	}
	r.MustRegister(m.attempts, m.attempt, m.algorithm, m.victims, m.preemptions, m.goroutines, m.toPlace, m.tries, m.points, m.incoming, m.entities,
		m.handling, m.permitWait, m.afterFlush, m.evictions, m.evicting, m.plugins, m.evaluations, m.hints, m.volumeErrors, m.claims,
		m.bindingConditions, m.bindingWait, m)
	m.workloads = newWorkloadMetrics(r)
	return m
}

var (
	pendingPods = prometheus.NewDesc("scheduler_pending_pods", "[STABLE] Number of pending pods, by the queue type. 'active' means number of pods in activeQ; 'backoff' means number of pods in backoffQ; 'unschedulable' means number of pods in unschedulablePods that the scheduler attempted to schedule and failed; 'gated' is the number of unschedulable pods that the scheduler never attempted to schedule because they are gated.", []string{"queue"}, nil)
	queued      = prometheus.NewDesc("scheduler_queued_entities", "[ALPHA] Number of queued scheduling entities ('pod' or 'podgroup'; 'pod' stands for individual pods that are not members of any podgroup) by the queue type. 'active' means number of entities in activeQ; 'backoff' means number of entities in backoffQ; 'unschedulable' means number of entities in unschedulableEntities that the scheduler attempted to schedule and failed; 'gated' is the number of unschedulable entities that the scheduler never attempted to schedule because they are gated.", []string{"queue", "type"}, nil)
	cacheSize   = prometheus.NewDesc("scheduler_cache_size", "[ALPHA] Number of nodes, pods, and assumed (bound) pods in the scheduler cache.", []string{"type"}, nil)
	inflight    = prometheus.NewDesc("scheduler_inflight_events", "[ALPHA] Number of events currently tracked in the scheduling queue.", []string{"event"}, nil)
	refusedPods = prometheus.NewDesc("scheduler_unschedulable_pods", "[BETA] The number of unschedulable pods broken down by plugin name. A pod will increment the gauge for all plugins that caused it to not schedule and so this metric have meaning only when broken down by plugin.", []string{"plugin", "profile"}, nil)
)

// show has the queue and the cache of a scheduler shown until hide is called.
func (m *Metrics) show(s *Scheduler) (hide func()) {
	m.running.Store(s, true)
	return func() { m.running.Delete(s) }
}

// Describe implements prometheus.Collector.
func (*Metrics) Describe(out chan<- *prometheus.Desc) {
	out <- pendingPods
	out <- queued
	out <- cacheSize
	out <- refusedPods
	out <- inflight
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(out chan<- prometheus.Metric) {
	m.running.Range(func(key, _ any) bool {
		s := key.(*Scheduler)
		gauge := func(d *prometheus.Desc, value int, labels ...string) {
			out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(value), labels...)
		}
		c := s.queue.Counts()
		for queue, n := range map[string]int{"active": c.Active, "backoff": c.Backoff, "unschedulable": c.Unschedulable, "gated": c.Gated} {
			gauge(pendingPods, n, queue)
			gauge(queued, c.Alone[queue], queue, podEntity)
			gauge(queued, c.Groups[queue], queue, groupEntity)
		}
		for rejector, n := range c.Rejected {
			gauge(refusedPods, n, rejector[1], rejector[0])
		}
		for event, n := range c.InFlightEvents {
			gauge(inflight, n, event)
		}
		nodes, pods, assumed := s.cache.Size()
		for kind, n := range map[string]int{"nodes": nodes, "pods": pods, "assumed_pods": assumed} {
			gauge(cacheSize, n, kind)
		}
		return true
	})
}

// Results of an attempt to schedule.
const (
	scheduled     = "scheduled"
	unschedulable = "unschedulable"
	failed        = "error"
)

// Kinds of what is scheduled: a pod without a group, and a group.
const (
	podEntity   = "pod"
	groupEntity = "podgroup"
)

// entered counts a pod that came into a queue. Pods of a group come one by one, and no
// group does.
func (m *Metrics) entered(pod *v1.Pod, queue, event string) {
	m.incoming.WithLabelValues(queue, event).Inc()
	if _, ok := podgroup.Of(pod); !ok {
		m.entities.WithLabelValues(queue, event, podEntity).Inc()
	}
}

// claimed counts a claim for extended resources of a pod that was created, or was not.
func (m *Metrics) claimed(ok bool) {
	status := "success"
	if !ok {
		status = "failure"
	}
	m.claims.WithLabelValues(status, "false", "", "Pod").Inc()
}

// waitedForDevices notes how a pod waited for the devices of a driver.
func (m *Metrics) waitedForDevices(profile, driver, result string, took time.Duration) {
	m.bindingConditions.WithLabelValues(profile, driver, result).Inc()
	m.bindingWait.WithLabelValues(profile, driver, result).Observe(took.Seconds())
}

// attempted counts one attempt to schedule a pod, which took so long.
func (m *Metrics) attempted(result, profile string, took time.Duration) {
	m.attempts.WithLabelValues(result, profile).Inc()
	m.attempt.WithLabelValues(result, profile).Observe(took.Seconds())
}

// placed counts a pod that was bound. flushed says that it was tried because
// it had waited too long.
func (m *Metrics) placed(attempts int, took time.Duration, flushed bool) {
	label := strconv.Itoa(attempts)
	if attempts >= 15 {
		label = "15+"
	}
	m.toPlace.WithLabelValues(label).Observe(took.Seconds())
	m.tries.Observe(float64(attempts))
	if flushed {
		m.afterFlush.Inc()
	}
}

// point notes how long the plugins of an extension point took.
func (m *Metrics) point(name, profile string, code framework.Code, took time.Duration) {
	m.points.WithLabelValues(name, code.String(), profile).Observe(took.Seconds())
}

// plugin notes how long a plugin took at an extension point, in a sampled attempt.
func (m *Metrics) plugin(point, plugin string, code framework.Code, took time.Duration) {
	m.plugins.WithLabelValues(plugin, point, code.String()).Observe(took.Seconds())
}

// hinted notes how long the queueing hints of a plugin took.
func (m *Metrics) hinted(plugin, event string, hint framework.QueueingHint, took time.Duration) {
	m.hints.WithLabelValues(plugin, event, hint.String()).Observe(took.Seconds())
}
