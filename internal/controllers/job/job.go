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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/pods"
	"github.com/coracle-io/coracle/internal/controller/workload"
	podutil "github.com/coracle-io/coracle/internal/pod"
)

// Descriptor describes the controller.
func Descriptor() controller.Descriptor {
	workers := 5
	return controller.Descriptor{
		Name:           "job-controller",
		Aliases:        []string{"job"},
		ServiceAccount: "job-controller",
		EventSource:    "job-controller",
		AddFlags:       controller.WorkersFlag(&workers, "concurrent-job-syncs", "job objects"),
		New:            func(env *controller.Env) (controller.Controller, error) { return newController(env, workers) },
	}
}

var kind = batch.SchemeGroupVersion.WithKind("Job")

// burst is the most pods that one sync creates.
const burst = 500

type jobs struct {
	*workload.Controller[*batch.Job, *v1.Pod]
	env     *controller.Env
	kube    kubernetes.Interface
	pods    cache.SharedIndexInformer
	control *workload.PodControl

	mu sync.Mutex // guards failures
	// failures of each Job since its last success.
	failures map[controller.Key]failures
}

type failures struct {
	job    types.UID
	streak int
	last   time.Time
	seen   map[types.UID]bool // pods counted into the streak
}

func newController(env *controller.Env, workers int) (controller.Controller, error) {
	informers := env.Client.Informers
	c := &jobs{
		env:      env,
		kube:     env.Client.Kubernetes,
		pods:     informers.Core().V1().Pods().Informer(),
		control:  workload.NewPodControl(env),
		failures: map[controller.Key]failures{},
	}
	var err error
	c.Controller, err = workload.New(env, workload.Config[*batch.Job, *v1.Pod]{
		Kind: kind, Queue: "job", Workers: workers,
		Owners: informers.Batch().V1().Jobs().Informer(), Dependents: c.pods,
		Client:   func(namespace string) workload.Client[*batch.Job] { return c.kube.BatchV1().Jobs(namespace) },
		Sync:     c.sync,
		Gone:     c.gone,
		Selector: func(job *batch.Job) *metav1.LabelSelector { return job.Spec.Selector },
		Patch:    c.control.Patch, Finalizers: []string{batch.JobTrackingFinalizer},
		Unadopted: func(pod *v1.Pod) {
			if tracked(pod) { // its finalizer has to go
				c.Queue.Add(controller.Key{Namespace: pod.Namespace, Name: pod.Labels[batch.JobNameLabel]})
			}
		},
		Expectations: c.control.Expectations,
	})
	return c, err
}

func (c *jobs) sync(ctx context.Context, job *batch.Job) error {
	if by := job.Spec.ManagedBy; by != nil && *by != batch.JobControllerName {
		return nil
	}
	current := c.control.Expectations.Satisfied(job.UID)
	owned, err := c.Claim(ctx, job)
	if err != nil {
		return err
	}
	streak, last := c.streak(job, owned)
	p := decide(snapshot{job: job, pods: owned, now: time.Now()}, streak, last)
	if p.again > 0 {
		c.Queue.AddAfter(cache.MetaObjectToName(job), p.again)
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

// streak counts a Job's failures since its last success, and when the last
// was.
func (c *jobs) streak(job *batch.Job, owned []*v1.Pod) (int, time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := cache.MetaObjectToName(job)
	f := c.failures[key]
	if f.job != job.UID {
		f = failures{job: job.UID, seen: map[types.UID]bool{}}
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
	c.failures[key] = f
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
	deleted := c.control.DeletePods(ctx, job, p.delete, func(pod *v1.Pod) error {
		if p.preserve {
			return nil
		}
		return c.release(ctx, pod)
	})
	n, created := c.control.CreatePods(ctx, job, len(p.create), func(i int) *v1.Pod { return newPod(job, p.create[i]) })
	p.status.Active += int32(n)
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

// gone takes the finalizer off the pods of a Job that is gone, and off those
// that it orphaned and no other Job may adopt.
func (c *jobs) gone(ctx context.Context, key controller.Key) error {
	c.mu.Lock()
	delete(c.failures, key)
	c.mu.Unlock()
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
		if ref == nil && len(c.Adopters(p)) == 0 || ref != nil && ref.Kind == kind.Kind && ref.Name == key.Name {
			lost = append(lost, p)
		}
	}
	return pods.All(lost, func(p *v1.Pod) error { return c.release(ctx, p) })
}
