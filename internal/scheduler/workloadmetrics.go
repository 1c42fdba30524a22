package scheduler

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coracle-io/coracle/internal/nativehistogram"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// workloadMetrics are metrics that upstream has only with the feature GenericWorkload:
// of groups that are decided together, and of preemptions by the kind of the preemptor.
type workloadMetrics struct {
	attempts *prometheus.CounterVec
	attempt  *prometheus.HistogramVec
	// algorithm is observed with the same attempts as attempt.
	algorithm *prometheus.HistogramVec
	// preemptions are the turns of groups for which room was sought, and victims the
	// pods that are evicted for a group.
	preemptions *prometheus.CounterVec
	victims     *prometheus.HistogramVec
	// evaluation, execution and violations are of single pods, too.
	evaluation *prometheus.HistogramVec
	execution  *prometheus.HistogramVec
	violations *prometheus.CounterVec
}

// newWorkloadMetrics makes the metrics and registers them. None of them is shown before it
// is observed.
func newWorkloadMetrics(r prometheus.Registerer) *workloadMetrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "scheduler_" + name, Help: help}, labels)
	}
	histogram := func(name, help string, first float64, buckets int, labels ...string) *prometheus.HistogramVec {
		return nativehistogram.NewVec(prometheus.HistogramOpts{Name: "scheduler_" + name, Help: help, Buckets: prometheus.ExponentialBuckets(first, 2, buckets)}, labels)
	}
	w := &workloadMetrics{
		attempts:    counter("podgroup_schedule_attempts_total", "[ALPHA] Number of attempts to schedule pod group, by the result. 'unschedulable' means a pod group could not be scheduled, while 'error' means an internal scheduler problem.", "result", "profile"),
		attempt:     histogram("podgroup_scheduling_attempt_duration_seconds", "[ALPHA] Pod group scheduling attempt latency in seconds", 0.001, 15, "result", "profile"),
		algorithm:   histogram("podgroup_scheduling_algorithm_duration_seconds", "[ALPHA] Pod group scheduling algorithm latency in seconds", 0.001, 15),
		preemptions: counter("workload_preemption_attempts_total", "[ALPHA] Total preemption attempts initiated by workload (including pod groups) in the cluster till now.", "result"),
		victims:     histogram("workload_preemption_victims", "[ALPHA] Number of pod preemption victims caused by workload preemption.", 1, 11),
		evaluation:  histogram("preemption_evaluation_duration_seconds", "[ALPHA] Duration in seconds for identifying the target preemption victims.", 0.001, 16, "preemptor", "result"),
		execution:   histogram("preemption_execution_duration_seconds", "[ALPHA] Duration in seconds for preempting the target preemption victims. With async preemption enabled, preemption execution does not block the scheduling of other pods.", 0.001, 16, "preemptor", "result"),
		violations:  counter("preemption_pdb_violations_total", "[ALPHA] Total number of pod disruption budget violations caused by preemption.", "preemptor"),
	}
	r.MustRegister(w.attempts, w.attempt, w.algorithm, w.preemptions, w.victims, w.evaluation, w.execution, w.violations)
	return w
}

// attempted counts one turn of a group, and how long the decisions and all of it took.
func (w *workloadMetrics) attempted(result, profile string, decisions, all time.Duration) {
	w.attempts.WithLabelValues(result, profile).Inc()
	w.attempt.WithLabelValues(result, profile).Observe(all.Seconds())
	w.algorithm.WithLabelValues().Observe(decisions.Seconds())
}

// preempted counts a turn of a group for which room was sought. There are no victims if
// that was in vain, or if those that end already are enough.
func (w *workloadMetrics) preempted(ok bool, victims int) {
	if !ok {
		w.preemptions.WithLabelValues(framework.Unschedulable.String()).Inc()
		return
	}
	w.preemptions.WithLabelValues(framework.Success.String()).Inc()
	w.victims.WithLabelValues().Observe(float64(victims))
}

// preemptionMetrics implements framework.PreemptionObserver.
type preemptionMetrics struct {
	metrics *Metrics
	// byPreemptor is the feature GenericWorkload.
	byPreemptor bool
}

// preemptorOf is the label of the kind of a preemptor.
func preemptorOf(group bool) string {
	if group {
		return groupEntity
	}
	return podEntity
}

// Evaluated implements framework.PreemptionObserver.
func (m preemptionMetrics) Evaluated(group bool, code framework.Code, took time.Duration) {
	if m.byPreemptor {
		m.metrics.workloads.evaluation.WithLabelValues(preemptorOf(group), code.String()).Observe(took.Seconds())
	}
}

// Chosen implements framework.PreemptionObserver.
func (m preemptionMetrics) Chosen(group bool, victims, violations int) {
	if !group {
		m.metrics.victims.Observe(float64(victims))
	}
	if m.byPreemptor {
		m.metrics.workloads.violations.WithLabelValues(preemptorOf(group)).Add(float64(violations))
	}
}

// Executed implements framework.PreemptionObserver.
func (m preemptionMetrics) Executed(group, ok bool, took time.Duration) {
	result := "success"
	if !ok {
		result = "error"
	}
	m.metrics.evictions.WithLabelValues(result).Inc()
	m.metrics.evicting.WithLabelValues(result).Observe(took.Seconds())
	if m.byPreemptor {
		m.metrics.workloads.execution.WithLabelValues(preemptorOf(group), result).Observe(took.Seconds())
	}
}
