// Package statefulset is the StatefulSet controller. Each pod of a StatefulSet
// has an ordinal, and with it a stable name and stable volume claims.
package statefulset

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/pods"
	"github.com/coracle-io/coracle/internal/controller/revision"
	"github.com/coracle-io/coracle/internal/controller/workload"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Descriptor describes the controller.
func Descriptor() controller.Descriptor {
	workers, skips := 5, workload.NewSkips("statefulset_controller", kind.Kind)
	return controller.Descriptor{
		Name:           "statefulset-controller",
		Aliases:        []string{"statefulset"},
		ServiceAccount: "statefulset-controller",
		EventSource:    "statefulset-controller",
		AddFlags:       controller.WorkersFlag(&workers, "concurrent-statefulset-syncs", "statefulset objects"),
		New:            func(env *controller.Env) (controller.Controller, error) { return newController(env, workers, skips) },
	}
}

var kind = apps.SchemeGroupVersion.WithKind("StatefulSet")

// burst is the maximum number of pods that one sync creates.
const burst = 500

type statefulSets struct {
	*workload.Controller[*apps.StatefulSet, *v1.Pod]
	env       *controller.Env
	kube      kubernetes.Interface
	revisions cache.SharedIndexInformer
	claims    corelisters.PersistentVolumeClaimLister
	pods      cache.SharedIndexInformer
	ready     pods.Readiness
}

// newController builds the controller. It needs no expectations, because a pod's
// name is fixed by its ordinal and so a pod cannot be created twice.
func newController(env *controller.Env, workers int, skips *prometheus.CounterVec) (controller.Controller, error) {
	informers := env.Client.Informers
	c := &statefulSets{
		env:       env,
		kube:      env.Client.Kubernetes,
		revisions: informers.Apps().V1().ControllerRevisions().Informer(),
		claims:    informers.Core().V1().PersistentVolumeClaims().Lister(),
		pods:      informers.Core().V1().Pods().Informer(),
	}
	err := errors.Join(env.Index(c.pods, pods.ByClaim, pods.ClaimKeys), workload.IndexByController(env, c.revisions))
	if err != nil {
		return nil, err
	}
	if err := env.Expose(newAvailability(informers.Apps().V1().StatefulSets().Lister()), skips); err != nil {
		return nil, err
	}
	c.Controller, err = workload.New(env, workload.Config[*apps.StatefulSet, *v1.Pod]{
		Kind: kind, Queue: "statefulset", Workers: workers,
		Owners: informers.Apps().V1().StatefulSets().Informer(), Dependents: c.pods,
		Sources: []controller.Source{
			controller.Reads(c.revisions),
			controller.On(informers.Core().V1().PersistentVolumeClaims().Informer(), c.claimChanged),
		},
		Client: func(namespace string) workload.Client[*apps.StatefulSet] {
			return c.kube.AppsV1().StatefulSets(namespace)
		},
		Sync: c.sync,
		OwnerGone: func(_ context.Context, key controller.Key) error {
			c.ready.Forget(key)
			return nil
		},
		Selector: func(set *apps.StatefulSet) *metav1.LabelSelector { return set.Spec.Selector },
		Matches:  func(set *apps.StatefulSet, p *v1.Pod) bool { _, ok := ordinalOf(set, p); return ok },
		Patch:    workload.NewPodControl(env).Patch,
		// status.currentReplicas decides which revision a new pod gets.
		ReadsStatus: true, Skips: skips,
	})
	return c, err
}

// claimChanged enqueues the set of a pod whose claim was deleted. The pod may still wait for
// a node, and needs a new claim then.
func (c *statefulSets) claimChanged(old, new *v1.PersistentVolumeClaim) {
	if new != nil {
		return
	}
	users, err := pods.OfClaim(c.pods, old)
	if err != nil {
		return
	}
	for _, pod := range users {
		if ref := c.ControllerRef(pod); ref != nil {
			c.Queue.Add(controller.Key{Namespace: pod.Namespace, Name: ref.Name})
		}
	}
}

func (c *statefulSets) sync(ctx context.Context, set *apps.StatefulSet) error {
	owned, err := c.Claim(ctx, set)
	if err != nil {
		return err
	}
	history := &revision.History{
		Label: revision.HashLabel,
		Kube:  c.kube, Revisions: c.revisions, Owner: set, Kind: kind, Selector: set.Spec.Selector, Template: &set.Spec.Template,
		CanAdopt: func(ctx context.Context) error { return c.CanAdopt(ctx, set) },
	}
	all, err := history.List(ctx)
	if err != nil {
		return err
	}
	update, collisions, err := history.Current(ctx, all, collisionCount(set))
	if err != nil {
		return err
	}
	templates := map[string]*v1.PodTemplateSpec{update.Name: &set.Spec.Template}
	s := snapshot{set: set, pods: owned, currentRevision: update.Name, updateRevision: update.Name, now: time.Now()}
	s.since = c.ready.Of(cache.MetaObjectToName(set), owned, set.Spec.MinReadySeconds, s.now)
	for _, r := range all {
		if r.Name == set.Status.CurrentRevision && r.Name != update.Name {
			if templates[r.Name], err = revision.Template(r); err != nil {
				return err
			}
			s.currentRevision = r.Name
		}
	}
	next := plan(s)
	if next.wait > 0 {
		c.Queue.AddAfter(cache.MetaObjectToName(set), next.wait)
	}
	stepErr := c.updateClaimOwners(ctx, set, owned)
	if stepErr == nil {
		stepErr = c.apply(ctx, set, next, templates)
	}
	if err := errors.Join(stepErr, c.updateStatus(ctx, set, status(s, collisions))); err != nil {
		return err
	}
	inUse := map[string]bool{s.currentRevision: true, s.updateRevision: true}
	for _, p := range owned {
		inUse[p.Labels[apps.ControllerRevisionHashLabelKey]] = true
	}
	return history.Truncate(ctx, all, set.Spec.RevisionHistoryLimit, inUse)
}

// collisionCount returns status.collisionCount, which is 0 for a new StatefulSet.
// For Deployments and DaemonSets it is absent until the first collision.
func collisionCount(set *apps.StatefulSet) *int32 {
	if set.Status.CollisionCount == nil {
		return new(int32)
	}
	return set.Status.CollisionCount
}

// apply carries out a step.
func (c *statefulSets) apply(ctx context.Context, set *apps.StatefulSet, next step, templates map[string]*v1.PodTemplateSpec) error {
	_, created := workload.SlowStartBatch(ctx, len(next.create), func(ctx context.Context, i int) error {
		s := next.create[i]
		return c.create(ctx, set, newPod(set, templates[s.revision], s.revision, s.ordinal), s.ordinal)
	})
	repaired := supervise.Each(next.repair, func(s replica) error {
		pod := s.pod.DeepCopy()
		setIdentity(set, pod, s.ordinal)
		if err := c.ensureClaims(ctx, set, pod.Name, pod.UID, s.ordinal); err != nil {
			c.record("update", set, pod.Name, err)
			return err
		}
		_, err := c.kube.CoreV1().Pods(pod.Namespace).Update(ctx, pod, metav1.UpdateOptions{})
		c.record("update", set, pod.Name, err)
		return err
	})
	claimed := supervise.Each(next.pending, func(s replica) error { return c.ensureClaims(ctx, set, s.pod.Name, s.pod.UID, s.ordinal) })
	deleted := supervise.Each(next.delete, func(pod *v1.Pod) error {
		err := c.kube.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case apierrors.IsConflict(err): // another pod has its name by now
			return controller.ErrStale
		}
		c.record("delete", set, pod.Name, err)
		return err
	})
	return errors.Join(created, repaired, claimed, deleted)
}

func (c *statefulSets) create(ctx context.Context, set *apps.StatefulSet, pod *v1.Pod, ordinal int) error {
	if err := c.ensureClaims(ctx, set, pod.Name, "", ordinal); err != nil {
		c.record("create", set, pod.Name, err)
		return err
	}
	_, err := c.kube.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	switch {
	case apierrors.IsAlreadyExists(err):
		return controller.ErrStale
	case apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause):
		return nil
	}
	c.record("create", set, pod.Name, err)
	return err
}

// ensureClaims creates the missing volume claims of an ordinal. uid is the UID of its pod, or
// empty if the pod does not exist yet. A claim that a former pod owns is about to be deleted with
// that pod; the new pod must not use it.
func (c *statefulSets) ensureClaims(ctx context.Context, set *apps.StatefulSet, pod string, uid types.UID, ordinal int) error {
	for _, claim := range claims(set, ordinal) {
		have, err := c.claims.PersistentVolumeClaims(claim.Namespace).Get(claim.Name)
		if err == nil {
			switch {
			case have.DeletionTimestamp != nil:
				return fmt.Errorf("pvc %s is being deleted", claim.Name)
			case ownedByFormer(have, podKind, pod, uid):
				return controller.ErrStale
			}
			continue
		}
		if !apierrors.IsNotFound(err) {
			return err
		}
		_, err = c.kube.CoreV1().PersistentVolumeClaims(claim.Namespace).Create(ctx, claim, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			continue
		}
		if err != nil {
			c.env.Events.Eventf(set, v1.EventTypeWarning, "FailedCreate", "create Claim %s for Pod %s in StatefulSet %s failed error: %s", claim.Name, pod, set.Name, err)
			return fmt.Errorf("creating claim %s: %w", claim.Name, err)
		}
		c.env.Events.Eventf(set, v1.EventTypeNormal, "SuccessfulCreate", "create Claim %s Pod %s in StatefulSet %s success", claim.Name, pod, set.Name)
	}
	return nil
}

// record records an event on the set about a change of a pod, unless the change waits for the cache.
func (c *statefulSets) record(verb string, set *apps.StatefulSet, pod string, err error) {
	if errors.Is(err, controller.ErrStale) {
		return
	}
	reason := map[string]string{"create": "Create", "update": "Update", "delete": "Delete"}[verb]
	if err != nil {
		c.env.Events.Eventf(set, v1.EventTypeWarning, "Failed"+reason, "%s Pod %s in StatefulSet %s failed error: %s", verb, pod, set.Name, err)
		return
	}
	c.env.Events.Eventf(set, v1.EventTypeNormal, "Successful"+reason, "%s Pod %s in StatefulSet %s successful", verb, pod, set.Name)
}

func (c *statefulSets) updateStatus(ctx context.Context, set *apps.StatefulSet, want apps.StatefulSetStatus) error {
	if equality.Semantic.DeepEqual(set.Status, want) {
		return nil
	}
	return c.UpdateStatus(ctx, set, func(s *apps.StatefulSet) { s.Status = want })
}
