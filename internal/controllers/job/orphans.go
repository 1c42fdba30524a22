package job

import (
	"context"
	"fmt"
	"slices"

	batch "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/workload"
)

// orphanSources returns the sources that enqueue orphan pods: pods with the tracking
// finalizer that no Job counts, because their Job is gone, even if another Job has its name
// now, or because it has released them.
func (c *jobs) orphanSources(jobs cache.SharedIndexInformer) []controller.Source {
	return []controller.Source{
		controller.On(c.pods, func(_, pod *v1.Pod) {
			if pod != nil && tracked(pod) && !c.isCounted(pod) {
				c.orphans.Add(cache.MetaObjectToName(pod))
			}
		}),
		controller.On(jobs, func(old, job *batch.Job) {
			if old != nil && (job == nil || job.DeletionTimestamp != nil && old.DeletionTimestamp == nil) {
				c.enqueueOrphans(old)
			}
		}),
	}
}

// enqueueOrphans enqueues the pods of a Job that is gone, and the pods that it might have
// adopted.
func (c *jobs) enqueueOrphans(job *batch.Job) {
	owned, err := workload.Controlled[*v1.Pod](c.pods, job.UID)
	if err != nil {
		return
	}
	adoptable, err := workload.Orphans[*v1.Pod](c.pods, job.Namespace)
	if err != nil {
		return
	}
	for _, pod := range slices.Concat(owned, adoptable) {
		if tracked(pod) {
			c.orphans.Add(cache.MetaObjectToName(pod))
		}
	}
}

// isCounted reports whether the cache has a Job that counts a pod or may adopt it. The pods
// of other controllers are left to these.
func (c *jobs) isCounted(pod *v1.Pod) bool {
	if metav1.GetControllerOfNoCopy(pod) == nil {
		return len(c.Adopters(pod)) > 0
	}
	ref := c.ControllerRef(pod)
	if ref == nil {
		return true
	}
	job, err := c.lister.Jobs(pod.Namespace).Get(ref.Name)
	return err == nil && job.UID == ref.UID
}

// syncOrphan removes the tracking finalizer from an orphan pod, so that the pod can be
// deleted.
func (c *jobs) syncOrphan(ctx context.Context, pod *v1.Pod) error {
	if !tracked(pod) || c.isCounted(pod) {
		return nil
	}
	if ref := c.ControllerRef(pod); ref != nil {
		// The cache may not show a new Job yet, and a pod without the finalizer is not counted.
		job, err := c.kube.BatchV1().Jobs(pod.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		switch {
		case err == nil && job.UID == ref.UID:
			return nil
		case err != nil && !apierrors.IsNotFound(err):
			return fmt.Errorf("getting job %s/%s: %w", pod.Namespace, ref.Name, err)
		}
	}
	return c.removeFinalizer(ctx, pod, "")
}
