// Package job is the Job controller. It creates pods until enough of them have
// succeeded.
//
//	pod finishes ──▶ UID in status.uncountedTerminatedPods ──▶ finalizer removed ──▶ counted in status
//
// Every pod has a finalizer until it is in the status, so that each pod is counted
// exactly once (KEP-2307).
package job

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	batch "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/kubernetes"
	batchlisters "k8s.io/client-go/listers/batch/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/workload"
	"github.com/coracle-io/coracle/internal/order"
	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/supervise"
	"github.com/coracle-io/coracle/internal/timespan"
	"github.com/coracle-io/coracle/internal/wallclock"
)

// Descriptor describes the controller.
func Descriptor() controller.Descriptor {
	workers, counted := 5, newCounts()
	return controller.Descriptor{
		Name:           "job-controller",
		Aliases:        []string{"job"},
		ServiceAccount: "job-controller",
		EventSource:    "job-controller",
		AddFlags:       controller.WorkersFlag(&workers, "concurrent-job-syncs", "job objects"),
		New:            func(env *controller.Env) (controller.Controller, error) { return newController(env, workers, counted) },
	}
}

var kind = batch.SchemeGroupVersion.WithKind("Job")

// burst is the maximum number of pods that one sync creates.
const burst = 500

type jobs struct {
	*workload.Controller[*batch.Job, *v1.Pod]
	env     *controller.Env
	kube    kubernetes.Interface
	counts  *counts
	lister  batchlisters.JobLister
	pods    cache.SharedIndexInformer
	control *workload.PodControl
	orphans *controller.Queue[controller.Key] // pods; see orphans.go
	started wallclock.Moments[controller.Key]

	mu       sync.Mutex // guards the following
	backoffs map[controller.Key]backoffRecord
	// written holds the resource version of the last status that was written for a Job, until
	// the cache shows it. An older status lacks pods that have lost their finalizer.
	written map[controller.Key]string
}

// backoffRecord holds the failures of a Job since its last success.
type backoffRecord struct {
	job         types.UID
	failures    int // consecutive
	lastFailure time.Time
	counted     map[types.UID]time.Time // finished pods that have been processed, and when they ended
}

func newController(env *controller.Env, workers int, counted *counts) (controller.Controller, error) {
	if err := env.Expose(counted.collectors()...); err != nil {
		return nil, err
	}
	informers := env.Client.Informers
	c := &jobs{
		env:      env,
		kube:     env.Client.Kubernetes,
		counts:   counted,
		lister:   informers.Batch().V1().Jobs().Lister(),
		pods:     informers.Core().V1().Pods().Informer(),
		control:  workload.NewPodControl(env),
		backoffs: map[controller.Key]backoffRecord{},
		written:  map[controller.Key]string{},
	}
	c.orphans = controller.NewQueue(env.Queues, "job_orphan_pod", controller.Existing[controller.Key](c.pods, c.syncOrphan))
	owners := informers.Batch().V1().Jobs().Informer()
	var err error
	c.Controller, err = workload.New(env, workload.Config[*batch.Job, *v1.Pod]{
		Kind: kind, Queue: "job", Workers: workers,
		Owners: owners, Dependents: c.pods,
		Sources: append(c.orphanSources(owners), controller.On(owners, counted.jobChanged), controller.On(c.pods, counted.podChanged)), Tasks: []func(context.Context) error{c.orphans.Workers(1)},
		Client:    func(namespace string) workload.Client[*batch.Job] { return c.kube.BatchV1().Jobs(namespace) },
		Sync:      c.sync,
		OwnerGone: func(_ context.Context, key controller.Key) error { c.forget(key); return nil },
		Selector:  func(job *batch.Job) *metav1.LabelSelector { return job.Spec.Selector },
		Patch:     c.control.Patch, Finalizers: []string{batch.JobTrackingFinalizer},
		Expectations: c.control.Expectations, Skips: counted.skips,
	})
	return c, err
}

func (c *jobs) sync(ctx context.Context, job *batch.Job) error {
	if managedByOther(job) {
		return nil
	}
	if !c.shown(job) {
		c.counts.skips.WithLabelValues(kind.Group, "jobs").Inc()
		return controller.ErrStale
	}
	begin, satisfied := time.Now(), c.control.Expectations.Satisfied(job.UID)
	p, err := c.reconcile(ctx, job, satisfied)
	c.counts.synced(job, p, !satisfied, err, time.Since(begin))
	return err
}

// managedByOther reports whether a Job names another controller that manages it.
func managedByOther(job *batch.Job) bool {
	return job.Spec.ManagedBy != nil && *job.Spec.ManagedBy != batch.JobControllerName
}

// reconcile carries out one plan. satisfied is false if the cache does not show all pods that
// the controller has created and deleted. The plan is nil if there was an error before.
func (c *jobs) reconcile(ctx context.Context, job *batch.Job, satisfied bool) (*plan, error) {
	owned, err := c.Claim(ctx, job)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	record := c.recordFailures(job, owned, now)
	s := snapshot{job: job, pods: owned, now: now, ended: record.counted, stale: !satisfied}
	if job.Status.StartTime != nil {
		s.started = c.started.At(cache.MetaObjectToName(job), job.Status.StartTime.Time, now)
	}
	p := decide(s, record.failures, record.lastFailure)
	if p.requeueAfter > 0 {
		c.Queue.AddAfter(cache.MetaObjectToName(job), p.requeueAfter)
	}
	// Before the remaining pods of a failed Job are deleted, its status must say that it has
	// failed. Otherwise these deletions could be taken for failures of their indexes.
	failsNow := p.countDeleted && !has(&job.Status, batch.JobFailureTarget)
	var applyErr error
	if satisfied && !failsNow {
		applyErr = c.apply(ctx, job, &p)
	}
	if err := c.updateStatus(ctx, job, p); err != nil {
		return &p, errors.Join(applyErr, err)
	}
	finalizerErr := supervise.Each(p.release, func(pod *v1.Pod) error {
		err := c.removeFinalizer(ctx, pod, "")
		if err == nil {
			c.counts.released(job, pod)
		}
		return err
	})
	return &p, errors.Join(applyErr, finalizerErr)
}

// shown reports whether a cached Job is as new as the last status that was written.
func (c *jobs) shown(job *batch.Job) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := cache.MetaObjectToName(job)
	if order, err := resourceversion.CompareResourceVersion(job.ResourceVersion, c.written[key]); err == nil && order < 0 {
		return false
	}
	delete(c.written, key)
	return true
}

// recordFailures processes the finished pods of a Job. The times in the record have monotonic
// readings, so that the back-off does not depend on how the clock is set.
func (c *jobs) recordFailures(job *batch.Job, owned []*v1.Pod, now time.Time) backoffRecord {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := cache.MetaObjectToName(job)
	record := c.backoffs[key]
	if record.job != job.UID {
		record = backoffRecord{job: job.UID, counted: map[types.UID]time.Time{}}
	}
	// Pods without the finalizer are those that were counted before, and those that the
	// controller deletes because the Job is suspended or has too many.
	ended := slices.DeleteFunc(slices.Clone(owned), func(p *v1.Pod) bool {
		_, processed := record.counted[p.UID]
		return !tracked(p) || !hasIndex(job, p) || processed || p.Status.Phase != v1.PodSucceeded && !failed(job, p)
	})
	present := map[types.UID]bool{}
	for _, p := range owned {
		present[p.UID] = true
	}
	maps.DeleteFunc(record.counted, func(uid types.UID, _ time.Time) bool { return !present[uid] })
	slices.SortFunc(ended, func(a, b *v1.Pod) int { // a success at the time of a failure is the later one
		return cmp.Or(finishTime(a).Compare(finishTime(b)),
			order.FalseFirst(a.Status.Phase == v1.PodSucceeded, b.Status.Phase == v1.PodSucceeded))
	})
	for _, p := range ended {
		end := wallclock.Past(finishTime(p), now)
		record.counted[p.UID] = end
		if p.Status.Phase == v1.PodSucceeded {
			record.failures, record.lastFailure = 0, time.Time{}
		} else {
			record.failures, record.lastFailure = record.failures+1, end
		}
	}
	c.backoffs[key] = record
	return record
}

// finishTime returns when the last container of a pod terminated. If the status does not
// say so, it returns when the pod ceased to be ready, was deleted, or was created.
func finishTime(p *v1.Pod) time.Time {
	if end := lastTermination(p); !end.IsZero() {
		return end
	}
	switch ready := podquery.Condition(&p.Status, v1.PodReady); {
	case ready != nil && ready.Status == v1.ConditionFalse && !ready.LastTransitionTime.IsZero():
		return ready.LastTransitionTime.Time
	case p.DeletionTimestamp != nil: // this is when the grace period ends
		if p.DeletionGracePeriodSeconds != nil {
			return p.DeletionTimestamp.Add(-timespan.Seconds(*p.DeletionGracePeriodSeconds))
		}
		return p.DeletionTimestamp.Time
	}
	return p.CreationTimestamp.Time
}

// lastTermination returns when the last container of a pod terminated, sidecars included, or
// zero if one of them has not or its time is unknown.
func lastTermination(p *v1.Pod) (end time.Time) {
	statuses := slices.Clone(p.Status.ContainerStatuses)
	for _, s := range p.Status.InitContainerStatuses {
		if slices.ContainsFunc(p.Spec.InitContainers, func(c v1.Container) bool { return c.Name == s.Name && podquery.IsSidecar(&c) }) {
			statuses = append(statuses, s)
		}
	}
	for _, s := range statuses {
		t := s.State.Terminated
		if t == nil || t.FinishedAt.IsZero() {
			return time.Time{}
		}
		if t.FinishedAt.After(end) {
			end = t.FinishedAt.Time
		}
	}
	return end
}

// apply creates and deletes pods. It adds the created pods to the status of the plan, and takes
// the deleted pods for terminating ones.
func (c *jobs) apply(ctx context.Context, job *batch.Job, p *plan) error {
	remaining, deleted := c.control.DeletePods(ctx, job, p.delete, func(pod *v1.Pod) error {
		if p.countDeleted {
			return nil
		}
		// The resource version fails the write if the pod has finished since it was read, because it must then be
		// counted.
		return c.removeFinalizer(ctx, pod, pod.ResourceVersion)
	})
	if !finished(job) {
		p.countDeletions(remaining)
	}
	n, created := c.control.CreatePods(ctx, job, len(p.create), func(i int) *v1.Pod { return newPod(job, p.create[i]) })
	p.status.Active += int32(n)
	if len(p.create) > 0 {
		c.counts.createdPods(job, p, n)
	}
	return errors.Join(deleted, created)
}

func (c *jobs) updateStatus(ctx context.Context, job *batch.Job, p plan) error {
	if equality.Semantic.DeepEqual(job.Status, p.status) {
		return nil
	}
	next := *job
	next.Status = p.status
	updated, err := c.kube.BatchV1().Jobs(job.Namespace).UpdateStatus(ctx, &next, metav1.UpdateOptions{})
	if err != nil {
		return controller.IgnoreNotFound(err)
	}
	c.mu.Lock()
	c.written[cache.MetaObjectToName(job)] = updated.ResourceVersion
	c.mu.Unlock()
	c.counts.written(job, &p)
	for _, e := range p.events {
		c.env.Events.Event(job, e.kind, e.reason, e.message)
	}
	return nil
}

// removeFinalizer removes the tracking finalizer from a pod. It fails with a conflict if version
// is not empty and the pod has another version.
func (c *jobs) removeFinalizer(ctx context.Context, pod *v1.Pod, version string) error {
	if !tracked(pod) {
		return nil
	}
	metadata := map[string]any{"uid": pod.UID, "$deleteFromPrimitiveList/finalizers": []string{batch.JobTrackingFinalizer}}
	if version != "" {
		metadata["resourceVersion"] = version
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	if err := c.control.Patch(ctx, pod, patch); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("removing the finalizer of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// forget drops what is remembered of a deleted Job.
func (c *jobs) forget(key controller.Key) {
	c.started.Forget(key)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.backoffs, key)
	delete(c.written, key)
}
