package job

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	batch "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/controller/workload"
	"github.com/coracle-io/coracle/internal/nativehistogram"
	"github.com/coracle-io/coracle/internal/podquery"
)

// counts are the controller's metrics, with upstream's names.
type counts struct {
	syncDuration                      *prometheus.HistogramVec
	syncs, finishedJobs, finishedPods *prometheus.CounterVec
	finishedIndexes, created, handled *prometheus.CounterVec
	external, awaited, skips          *prometheus.CounterVec
	// controllers are the names in external, but otherControllers. One goroutine uses it, that
	// of the handler of Jobs.
	controllers map[string]bool
}

// maxControllers bounds how many controllers are counted by their names. Users choose the
// names, and a series stays when its Jobs have gone: those of further controllers are counted
// as otherControllers, which is no name of a controller.
const (
	maxControllers   = 100
	otherControllers = "other"
)

func newCounts() *counts {
	const subsystem = "job_controller"
	of := func(stability, name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: subsystem, Name: name, Help: stability + help}, labels)
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return of("[STABLE] ", name, help, labels...)
	}
	return &counts{
		syncDuration: nativehistogram.NewVec(prometheus.HistogramOpts{
			Subsystem: subsystem, Name: "job_sync_duration_seconds", Help: "[STABLE] The time it took to sync a job",
			Buckets: prometheus.ExponentialBuckets(0.004, 2, 15),
		}, []string{"completion_mode", "result", "action"}),
		syncs:           counter("job_syncs_total", "The number of job syncs", "completion_mode", "result", "action"),
		finishedJobs:    counter("jobs_finished_total", "The number of finished jobs", "completion_mode", "result", "reason"),
		finishedPods:    counter("job_pods_finished_total", "The number of finished Pods that are fully tracked", "completion_mode", "result"),
		finishedIndexes: of("[ALPHA] ", "job_finished_indexes_total", "The number of finished indexes", "status", "backoffLimit"),
		created:         of("[ALPHA] ", "job_pods_creation_total", "The number of Pods created by the Job controller labelled with a reason for the Pod creation", "reason", "status"),
		handled:         of("[BETA] ", "pod_failures_handled_by_failure_policy_total", "The number of failed Pods handled by failure policy with respect to the failure policy action applied based on the matched rule", "action"),
		skips:           workload.NewSkips(subsystem, "Job"),
		external:        of("[ALPHA] ", "jobs_by_external_controller_total", "The number of Jobs managed by an external controller", "controller_name"),
		awaited:         of("[BETA] ", "terminated_pods_tracking_finalizer_total", "The number of terminated pods (phase=Failed|Succeeded) that have the finalizer batch.kubernetes.io/job-tracking. The event label can be \"add\" or \"delete\".", "event"),
		controllers:     map[string]bool{},
	}
}

func (c *counts) collectors() []prometheus.Collector {
	return []prometheus.Collector{c.syncDuration, c.syncs, c.finishedJobs, c.finishedPods, c.finishedIndexes, c.created, c.handled, c.external, c.awaited, c.skips}
}

// jobChanged counts a Job that is new to the cache and that another controller manages.
func (c *counts) jobChanged(old, job *batch.Job) {
	if old != nil || job == nil || !managedByOther(job) {
		return
	}
	name := *job.Spec.ManagedBy
	switch {
	case c.controllers[name]:
	case len(c.controllers) < maxControllers:
		c.controllers[name] = true
	default:
		name = otherControllers
	}
	c.external.WithLabelValues(name).Inc()
}

// podChanged counts a pod that now has terminated and must be added to a status, or that
// no longer waits for it. old or pod is nil if the pod is new or gone.
func (c *counts) podChanged(old, pod *v1.Pod) {
	waits := func(p *v1.Pod) bool { return p != nil && podquery.IsFinished(p) && tracked(p) }
	switch before, now := waits(old), waits(pod); {
	case now && !before:
		c.awaited.WithLabelValues("add").Inc()
	case before && !now:
		c.awaited.WithLabelValues("delete").Inc()
	}
}

func modeOf(job *batch.Job) string {
	if job.Spec.CompletionMode == nil {
		return string(batch.NonIndexedCompletion)
	}
	return string(*job.Spec.CompletionMode)
}

// synced counts a sync. p is nil if it failed before there was a plan, and waits is true if
// the cache did not show all pods that the controller had created or deleted.
func (c *counts) synced(job *batch.Job, p *plan, waits bool, err error, took time.Duration) {
	result, action := "success", "tracking"
	if err != nil {
		result = "error"
	}
	switch {
	case waits:
		action = "reconciling"
	case p != nil && len(p.create) > 0:
		action = "pods_created"
	case p != nil && len(p.delete) > 0:
		action = "pods_deleted"
	}
	c.syncDuration.WithLabelValues(modeOf(job), result, action).Observe(took.Seconds())
	c.syncs.WithLabelValues(modeOf(job), result, action).Inc()
}

// createdPods counts attempts to create pods, of which n were successful.
func (c *counts) createdPods(job *batch.Job, p *plan, n int) {
	reason := "new"
	switch failures := p.status.Failed + int32(len(p.status.UncountedTerminatedPods.Failed)); {
	case failures > 0 && job.Spec.PodReplacementPolicy != nil && *job.Spec.PodReplacementPolicy == batch.Failed:
		reason = "recreate_failed"
	case failures > 0 || p.terminating > 0:
		reason = "recreate_terminating_or_failed"
	}
	c.created.WithLabelValues(reason, "succeeded").Add(float64(n))
	c.created.WithLabelValues(reason, "failed").Add(float64(len(p.create) - n))
}

// released counts a pod whose failure a rule of the pod failure policy has handled.
func (c *counts) released(job *batch.Job, pod *v1.Pod) {
	if !failed(job, pod) {
		return
	}
	if action, message := matchPodFailurePolicy(job, pod); message != "" {
		c.handled.WithLabelValues(string(action)).Inc()
	}
}

// written counts the pods, the indexes and the end of the Job that the status of a plan tells
// of, compared with the one before.
func (c *counts) written(job *batch.Job, p *plan) {
	status := &p.status
	succeeded := status.Succeeded - job.Status.Succeeded
	if indexed(job) {
		succeeded = parseIndexes(status.CompletedIndexes).count() - parseIndexes(job.Status.CompletedIndexes).count()
		limit := "global"
		if perIndex(job) {
			limit = "perIndex"
			n := recordedFailedIndexes(status).count() - recordedFailedIndexes(&job.Status).count()
			c.finishedIndexes.WithLabelValues("failed", limit).Add(float64(max(n, 0)))
		}
		c.finishedIndexes.WithLabelValues("succeeded", limit).Add(float64(max(succeeded, 0)))
	}
	c.finishedPods.WithLabelValues(modeOf(job), "succeeded").Add(float64(max(succeeded, 0)))
	c.finishedPods.WithLabelValues(modeOf(job), "failed").Add(float64(max(status.Failed-job.Status.Failed, 0)))
	for t, result := range map[batch.JobConditionType]string{batch.JobComplete: "succeeded", batch.JobFailed: "failed"} {
		if has(status, t) && !has(&job.Status, t) {
			c.finishedJobs.WithLabelValues(modeOf(job), result, condition(status, t).Reason).Inc()
		}
	}
}
