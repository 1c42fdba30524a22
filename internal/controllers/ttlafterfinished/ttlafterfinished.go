// Package ttlafterfinished deletes Jobs whose ttlSecondsAfterFinished is over.
package ttlafterfinished

import (
	"context"
	"fmt"
	"time"

	batch "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/controller"
)

// Descriptor describes the controller.
func Descriptor() controller.Descriptor {
	workers := 5
	return controller.Descriptor{
		Name:           "ttl-after-finished-controller",
		Aliases:        []string{"ttl-after-finished"},
		ServiceAccount: "ttl-after-finished-controller",
		EventSource:    "ttl-after-finished-controller",
		AddFlags:       controller.WorkersFlag(&workers, "concurrent-ttl-after-finished-syncs", "ttl-after-finished-controller workers"),
		New:            func(env *controller.Env) (controller.Controller, error) { return newController(env, workers) },
	}
}

type reaper struct {
	env     *controller.Env
	kube    kubernetes.Interface
	queue   *controller.Queue[controller.Key]
	workers int
}

func newController(env *controller.Env, workers int) (controller.Controller, error) {
	c := &reaper{env: env, workers: workers, kube: env.Client.Kubernetes}
	c.queue = controller.NewQueue("ttl_jobs_to_delete", controller.Existing[controller.Key](env.Client.Informers.Batch().V1().Jobs().Informer(), c.sync))
	return c, nil
}

// Run implements controller.Controller.
func (c *reaper) Run(ctx context.Context) error {
	return controller.Serve(ctx, []controller.Source{
		controller.On(c.env.Client.Informers.Batch().V1().Jobs().Informer(), func(_, job *batch.Job) {
			if job == nil || job.DeletionTimestamp != nil {
				return
			}
			if _, ok := expiry(job); ok {
				c.queue.Add(cache.MetaObjectToName(job))
			}
		}),
	}, c.queue.Workers(c.workers))
}

// expiry is when a Job is to be deleted; ok is false if it never is, or is
// not finished yet.
func expiry(job *batch.Job) (at time.Time, ok bool) {
	if job.Spec.TTLSecondsAfterFinished == nil {
		return time.Time{}, false
	}
	for _, c := range job.Status.Conditions {
		if (c.Type == batch.JobComplete || c.Type == batch.JobFailed) && c.Status == v1.ConditionTrue {
			return c.LastTransitionTime.Add(time.Duration(*job.Spec.TTLSecondsAfterFinished) * time.Second), true
		}
	}
	return time.Time{}, false
}

func (c *reaper) sync(ctx context.Context, job *batch.Job) error {
	at, ok := expiry(job)
	if !ok || job.DeletionTimestamp != nil {
		return nil
	}
	if left := time.Until(at); left > 0 {
		c.queue.AddAfter(cache.MetaObjectToName(job), left)
		return nil
	}
	// The time to live may have been extended just now: only what was looked
	// at may be deleted.
	foreground := metav1.DeletePropagationForeground
	err := c.kube.BatchV1().Jobs(job.Namespace).Delete(ctx, job.Name, metav1.DeleteOptions{
		PropagationPolicy: &foreground,
		Preconditions:     &metav1.Preconditions{UID: &job.UID, ResourceVersion: &job.ResourceVersion},
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting finished job: %w", err)
	}
	return nil
}
