// Package job runs Jobs: pods until enough have succeeded.
//
//	pod ends ──▶ its UID in status.uncountedTerminatedPods ──▶ its finalizer off ──▶ counted
//
// Every pod carries a finalizer until it is accounted for, so none is counted
// twice or never (KEP-2307).
package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	batch "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	batchlisters "k8s.io/client-go/listers/batch/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/own"
	"github.com/coracle-io/coracle/internal/controller/pods"
	podutil "github.com/coracle-io/coracle/internal/pod"
)

// Descriptor describes the controller.
var Descriptor = controller.Descriptor{
	Name:           "job-controller",
	Aliases:        []string{"job"},
	ServiceAccount: "job-controller",
	EventSource:    "job-controller",
	New:            New,
}

var kind = batch.SchemeGroupVersion.WithKind("Job")

// burst is the most pods that one sync creates.
const burst = 500

type jobs struct {
	env      *controller.Env
	kube     kubernetes.Interface
	jobs     batchlisters.JobLister
	pods     cache.SharedIndexInformer
	control  pods.Control
	expected *pods.Expectations
	queue    *controller.Queue[controller.Key]

	mu sync.Mutex // guards failures
	// failures of each Job, by UID, since its last success.
	failures map[types.UID]failures
}

type failures struct {
	streak int
	last   time.Time
	seen   map[types.UID]bool // pods counted into the streak
}

// New builds the controller.
func New(env *controller.Env) (controller.Controller, error) {
	informers := env.Client.Informers
	c := &jobs{
		env:      env,
		kube:     env.Client.Kubernetes,
		jobs:     informers.Batch().V1().Jobs().Lister(),
		pods:     informers.Core().V1().Pods().Informer(),
		control:  pods.Control{Kube: env.Client.Kubernetes, Events: env.Events},
		expected: pods.NewExpectations(),
		failures: map[types.UID]failures{},
	}
	c.queue = controller.NewQueue("job", c.sync)
	return c, env.Index(c.pods, own.ByController, own.ControllerKeys)
}

// Run implements controller.Controller.
func (c *jobs) Run(ctx context.Context) error {
	owners := own.Follower[*v1.Pod]{Kind: kind, Wake: c.queue.Add, Orphaned: c.orphaned, Ledger: c.expected}
	return controller.Serve(ctx, []controller.Source{
		controller.On(c.env.Client.Informers.Batch().V1().Jobs().Informer(), func(old, new *batch.Job) {
			if new == nil {
				c.expected.Forget(old.UID)
				c.mu.Lock()
				delete(c.failures, old.UID)
				c.mu.Unlock()
				new = old
			}
			c.queue.Add(cache.MetaObjectToName(new))
		}),
		controller.On(c.pods, owners.Changed),
	}, c.queue.Workers(c.env.Options.ConcurrentJobSyncs))
}

// orphaned queues the Jobs that would adopt a pod, and lets go of one that
// none would.
func (c *jobs) orphaned(pod *v1.Pod) {
	adopters := c.adopters(pod)
	for _, job := range adopters {
		c.queue.Add(cache.MetaObjectToName(job))
	}
	if len(adopters) == 0 && tracked(pod) {
		c.queue.Add(controller.Key{Namespace: pod.Namespace, Name: pod.Labels[batch.JobNameLabel]})
	}
}

// adopters are the Jobs that select a pod and are not being deleted.
func (c *jobs) adopters(pod *v1.Pod) []*batch.Job {
	all, err := c.jobs.Jobs(pod.Namespace).List(labels.Everything())
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(all), func(job *batch.Job) bool {
		return job.DeletionTimestamp != nil || !own.Selects(job.Spec.Selector, pod)
	})
}

func (c *jobs) sync(ctx context.Context, key controller.Key) error {
	job, err := c.jobs.Jobs(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return c.releaseOrphans(ctx, key)
	}
	if err != nil {
		return err
	}
	if by := job.Spec.ManagedBy; by != nil && *by != batch.JobControllerName {
		return nil
	}
	current := c.expected.Satisfied(job.UID)
	owned, err := c.claim(ctx, job)
	if err != nil {
		return err
	}
	streak, last := c.streak(job, owned)
	p := decide(snapshot{job: job, pods: owned, now: time.Now()}, streak, last)
	if p.again > 0 {
		c.queue.AddAfter(key, p.again)
	}
	var work error
	if current {
		work = c.apply(ctx, job, &p)
	}
	if err := c.report(ctx, job, p); err != nil {
		return errors.Join(work, err)
	}
	released := pods.All(p.release, func(pod *v1.Pod) error { return c.release(ctx, pod) })
	return errors.Join(work, released)
}

// claim returns the pods that a Job owns.
func (c *jobs) claim(ctx context.Context, job *batch.Job) ([]*v1.Pod, error) {
	selector, err := metav1.LabelSelectorAsSelector(job.Spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("selector of Job %s/%s: %w", job.Namespace, job.Name, err)
	}
	candidates, err := own.Candidates[*v1.Pod](c.pods.GetIndexer(), job)
	if err != nil {
		return nil, err
	}
	claim := own.Claim[*v1.Pod]{
		Owner: job, Kind: kind, Selector: selector, Patch: c.control.Patch,
		Finalizers: []string{batch.JobTrackingFinalizer},
		Fresh: func(ctx context.Context) (metav1.Object, error) {
			return c.kube.BatchV1().Jobs(job.Namespace).Get(ctx, job.Name, metav1.GetOptions{})
		},
	}
	return claim.Objects(ctx, candidates)
}

// streak counts a Job's failures since its last success, and when the last
// was.
func (c *jobs) streak(job *batch.Job, owned []*v1.Pod) (int, time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.failures[job.UID]
	if f.seen == nil {
		f.seen = map[types.UID]bool{}
	}
	ended := slices.DeleteFunc(slices.Clone(owned), func(p *v1.Pod) bool {
		return f.seen[p.UID] || p.Status.Phase != v1.PodSucceeded && !failed(job, p)
	})
	slices.SortFunc(ended, func(a, b *v1.Pod) int { return endOf(a).Compare(endOf(b)) })
	for _, p := range ended {
		f.seen[p.UID] = true
		if p.Status.Phase == v1.PodSucceeded {
			f.streak, f.last = 0, time.Time{}
		} else {
			f.streak, f.last = f.streak+1, endOf(p)
		}
	}
	c.failures[job.UID] = f
	return f.streak, f.last
}

// endOf is when a pod's last container ended. If its status does not tell,
// it is when the pod was deleted, was no longer ready, or at worst was made.
func endOf(p *v1.Pod) (end time.Time) {
	for _, s := range p.Status.ContainerStatuses {
		if t := s.State.Terminated; t != nil && t.FinishedAt.After(end) {
			end = t.FinishedAt.Time
		}
	}
	switch ready := podutil.Condition(&p.Status, v1.PodReady); {
	case !end.IsZero():
		return end
	case p.DeletionTimestamp != nil:
		return p.DeletionTimestamp.Time
	case ready != nil && ready.Status == v1.ConditionFalse && !ready.LastTransitionTime.IsZero():
		return ready.LastTransitionTime.Time
	}
	return p.CreationTimestamp.Time
}

// apply creates and deletes pods, and notes in the plan's status how that
// went.
func (c *jobs) apply(ctx context.Context, job *batch.Job, p *plan) error {
	uids := make([]types.UID, len(p.delete))
	for i, pod := range p.delete {
		uids[i] = pod.UID
	}
	c.expected.ExpectDeletions(job.UID, uids...)
	deleted := pods.All(p.delete, func(pod *v1.Pod) error {
		if !p.preserve {
			if err := c.release(ctx, pod); err != nil {
				c.expected.ObserveDeletion(job.UID, pod.UID)
				return err
			}
		}
		err := c.control.Delete(ctx, pod, job)
		if err != nil {
			c.expected.ObserveDeletion(job.UID, pod.UID)
		}
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
	create := p.create
	if len(create) == 0 {
		return deleted
	}
	c.expected.ExpectCreations(job.UID, len(create))
	next := make(chan slot, len(create))
	for _, s := range create {
		next <- s
	}
	done, created := pods.SlowStart(ctx, len(create), func(ctx context.Context) error {
		_, err := c.control.Create(ctx, newPod(job, <-next), job)
		if apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause) {
			c.expected.ObserveCreation(job.UID)
			return nil
		}
		return err
	})
	for range len(create) - done {
		c.expected.ObserveCreation(job.UID)
	}
	p.status.Active += int32(done)
	return errors.Join(deleted, created)
}

func (c *jobs) report(ctx context.Context, job *batch.Job, p plan) error {
	if equality.Semantic.DeepEqual(job.Status, p.status) {
		return nil
	}
	next := *job
	next.Status = p.status
	if _, err := c.kube.BatchV1().Jobs(job.Namespace).UpdateStatus(ctx, &next, metav1.UpdateOptions{}); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	for _, e := range p.events {
		c.env.Events.Event(job, e.kind, e.reason, e.message)
	}
	return nil
}

// release takes the tracking finalizer off a pod.
func (c *jobs) release(ctx context.Context, pod *v1.Pod) error {
	if !tracked(pod) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": pod.UID, "$deleteFromPrimitiveList/finalizers": []string{batch.JobTrackingFinalizer},
	}})
	if err != nil {
		return err
	}
	if err := c.control.Patch(ctx, pod, patch); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("taking the finalizer off pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// releaseOrphans takes the finalizer off the pods of a Job that is gone, and
// off those that it orphaned and no other Job will adopt.
func (c *jobs) releaseOrphans(ctx context.Context, key controller.Key) error {
	objects, err := c.pods.GetIndexer().ByIndex(cache.NamespaceIndex, key.Namespace)
	if err != nil {
		return err
	}
	var lost []*v1.Pod
	for _, o := range objects {
		p := o.(*v1.Pod)
		if !tracked(p) {
			continue
		}
		ref := metav1.GetControllerOfNoCopy(p)
		if ref == nil && len(c.adopters(p)) == 0 || ref != nil && ref.Kind == kind.Kind && ref.Name == key.Name {
			lost = append(lost, p)
		}
	}
	return pods.All(lost, func(p *v1.Pod) error { return c.release(ctx, p) })
}
