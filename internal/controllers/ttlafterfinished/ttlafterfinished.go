// Package ttlafterfinished is the TTL-after-finished controller. It deletes
// finished Jobs once their ttlSecondsAfterFinished have passed.
package ttlafterfinished

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	batch "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/workload"
	"github.com/coracle-io/coracle/internal/nativehistogram"
	"github.com/coracle-io/coracle/internal/wallclock"
)

// Descriptor describes the controller.
func Descriptor() controller.Descriptor {
	workers, latency := 5, newLatency()
	return controller.Descriptor{
		Name:           "ttl-after-finished-controller",
		Aliases:        []string{"ttl-after-finished"},
		ServiceAccount: "ttl-after-finished-controller",
		EventSource:    "ttl-after-finished-controller",
		AddFlags:       controller.WorkersFlag(&workers, "concurrent-ttl-after-finished-syncs", "finished jobs"),
		New:            func(env *controller.Env) (controller.Controller, error) { return newController(env, workers, latency) },
	}
}

// newLatency returns the metric of how late Jobs are deleted.
func newLatency() prometheus.Histogram {
	return nativehistogram.New(prometheus.HistogramOpts{
		Subsystem: "ttl_after_finished_controller", Name: "job_deletion_duration_seconds",
		Help:    "[ALPHA] The time it took to delete the job since it became eligible for deletion",
		Buckets: prometheus.ExponentialBuckets(0.1, 2, 14),
	})
}

type reaper struct {
	env     *controller.Env
	kube    kubernetes.Interface
	latency prometheus.Histogram
	queue   *controller.Queue[controller.Key]
	workers int
	// finished holds when Jobs with a TTL finished.
	finished wallclock.Moments[controller.Key]
}

func newController(env *controller.Env, workers int, latency prometheus.Histogram) (controller.Controller, error) {
	if err := env.Expose(latency); err != nil {
		return nil, err
	}
	c := &reaper{env: env, workers: workers, kube: env.Client.Kubernetes, latency: latency}
	c.queue = controller.NewQueue(env.Queues, "ttl_jobs_to_delete", controller.Existing[controller.Key](env.Client.Informers.Batch().V1().Jobs().Informer(), c.sync))
	return c, nil
}

// Run implements controller.Controller.
func (c *reaper) Run(ctx context.Context) error {
	return controller.Serve(ctx, []controller.Source{
		controller.On(c.env.Client.Informers.Batch().V1().Jobs().Informer(), func(old, job *batch.Job) {
			if job == nil {
				c.finished.Forget(cache.MetaObjectToName(old))
				return
			}
			if _, _, ok := expiry(job); ok && job.DeletionTimestamp == nil {
				c.queue.Add(cache.MetaObjectToName(job))
			}
		}),
	}, c.queue.Workers(c.workers))
}

// expiry returns when a Job finished, and how long after that it must be deleted. ok is
// false if the Job has no TTL or has not finished.
func expiry(job *batch.Job) (finished time.Time, ttl time.Duration, ok bool) {
	if job.Spec.TTLSecondsAfterFinished == nil {
		return time.Time{}, 0, false
	}
	c := workload.FinishedCondition(job)
	if c == nil {
		return time.Time{}, 0, false
	}
	return c.LastTransitionTime.Time, time.Duration(*job.Spec.TTLSecondsAfterFinished) * time.Second, true
}

func (c *reaper) sync(ctx context.Context, job *batch.Job) error {
	finished, ttl, ok := expiry(job)
	if !ok || job.DeletionTimestamp != nil {
		return nil
	}
	key := cache.MetaObjectToName(job)
	at := c.finished.At(key, finished, time.Now()).Add(ttl)
	if left := time.Until(at); left > 0 {
		c.queue.AddAfter(key, left)
		return nil
	}
	// The TTL may have been extended in the meantime, so delete only the version
	// that was checked.
	foreground := metav1.DeletePropagationForeground
	err := c.kube.BatchV1().Jobs(job.Namespace).Delete(ctx, job.Name, metav1.DeleteOptions{
		PropagationPolicy: &foreground,
		Preconditions:     &metav1.Preconditions{UID: &job.UID, ResourceVersion: &job.ResourceVersion},
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting finished job: %w", err)
	}
	if err == nil {
		c.latency.Observe(time.Since(at).Seconds())
	}
	return nil
}
