package job

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	batch "k8s.io/api/batch/v1"
)

// counts are the controller's metrics, with upstream's names.
type counts struct {
	syncDuration                      *prometheus.HistogramVec
	syncs, finishedJobs, finishedPods *prometheus.CounterVec
}

func newCounts() *counts {
	const subsystem = "job_controller"
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: subsystem, Name: name, Help: "[STABLE] " + help}, labels)
	}
	return &counts{
		syncDuration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Subsystem: subsystem, Name: "job_sync_duration_seconds", Help: "[STABLE] The time it took to sync a job",
			Buckets: prometheus.ExponentialBuckets(0.004, 2, 15),
		}, []string{"completion_mode", "result", "action"}),
		syncs:        counter("job_syncs_total", "The number of job syncs", "completion_mode", "result", "action"),
		finishedJobs: counter("jobs_finished_total", "The number of finished jobs", "completion_mode", "result", "reason"),
		finishedPods: counter("job_pods_finished_total", "The number of finished Pods that are fully tracked", "completion_mode", "result"),
	}
}

func (c *counts) collectors() []prometheus.Collector {
	return []prometheus.Collector{c.syncDuration, c.syncs, c.finishedJobs, c.finishedPods}
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

// written counts the pods and the end of the Job that a status tells of, compared with the one
// before.
func (c *counts) written(job *batch.Job, status *batch.JobStatus) {
	succeeded := status.Succeeded - job.Status.Succeeded
	if indexed(job) {
		succeeded = parseIndexes(status.CompletedIndexes).count() - parseIndexes(job.Status.CompletedIndexes).count()
	}
	c.finishedPods.WithLabelValues(modeOf(job), "succeeded").Add(float64(max(succeeded, 0)))
	c.finishedPods.WithLabelValues(modeOf(job), "failed").Add(float64(max(status.Failed-job.Status.Failed, 0)))
	for t, result := range map[batch.JobConditionType]string{batch.JobComplete: "succeeded", batch.JobFailed: "failed"} {
		if has(status, t) && !has(&job.Status, t) {
			c.finishedJobs.WithLabelValues(modeOf(job), result, condition(status, t).Reason).Inc()
		}
	}
}
