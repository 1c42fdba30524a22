// Package daemonset is the DaemonSet controller. It runs one pod of each DaemonSet
// on every matching node. The scheduler binds the pods; each has a node affinity
// for its node.
package daemonset

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/pods"
	"github.com/coracle-io/coracle/internal/controller/revision"
	"github.com/coracle-io/coracle/internal/controller/workload"
)

// Descriptor describes the controller.
func Descriptor() controller.Descriptor {
	workers, skips := 2, workload.NewSkips("daemonset_controller", kind.Kind)
	return controller.Descriptor{
		Name:           "daemonset-controller",
		Aliases:        []string{"daemonset"},
		ServiceAccount: "daemon-set-controller",
		EventSource:    "daemonset-controller",
		AddFlags:       controller.WorkersFlag(&workers, "concurrent-daemonset-syncs", "daemonset objects"),
		New:            func(env *controller.Env) (controller.Controller, error) { return newController(env, workers, skips) },
	}
}

var kind = apps.SchemeGroupVersion.WithKind("DaemonSet")

// Initial and maximum back-off before a failed pod of a node is replaced.
const (
	initialBackoff = time.Second
	maxBackoff     = 15 * time.Minute
)

// burst is the maximum number of pods that one sync creates or deletes.
const burst = 250

type daemonSets struct {
	*workload.Controller[*apps.DaemonSet, *v1.Pod]
	env       *controller.Env
	kube      kubernetes.Interface
	sets      appslisters.DaemonSetLister
	revisions cache.SharedIndexInformer
	nodes     corelisters.NodeLister
	control   *workload.PodControl
	backoff   *flowcontrol.Backoff
	ready     pods.Readiness
}

func newController(env *controller.Env, workers int, skips *prometheus.CounterVec) (controller.Controller, error) {
	informers := env.Client.Informers
	c := &daemonSets{
		env:       env,
		kube:      env.Client.Kubernetes,
		sets:      informers.Apps().V1().DaemonSets().Lister(),
		revisions: informers.Apps().V1().ControllerRevisions().Informer(),
		nodes:     informers.Core().V1().Nodes().Lister(),
		control:   workload.NewPodControl(env),
		backoff:   flowcontrol.NewBackOff(initialBackoff, maxBackoff),
	}
	err := errors.Join(env.Expose(skips), workload.IndexByController(env, c.revisions))
	if err != nil {
		return nil, err
	}
	c.Controller, err = workload.New(env, workload.Config[*apps.DaemonSet, *v1.Pod]{
		Kind: kind, Queue: "daemonset", Workers: workers,
		Owners: informers.Apps().V1().DaemonSets().Informer(), Dependents: informers.Core().V1().Pods().Informer(),
		Sources: []controller.Source{
			controller.On(informers.Core().V1().Nodes().Informer(), c.nodeChanged),
			controller.On(c.revisions, c.revisionChanged),
		},
		Client: func(namespace string) workload.Client[*apps.DaemonSet] {
			return c.kube.AppsV1().DaemonSets(namespace)
		},
		Sync: c.sync,
		OwnerGone: func(_ context.Context, key controller.Key) error {
			c.ready.Forget(key)
			return nil
		},
		Selector: func(set *apps.DaemonSet) *metav1.LabelSelector { return set.Spec.Selector },
		Patch:    c.control.Patch, Expectations: c.control.Expectations, Skips: skips,
	})
	return c, err
}

// nodeChanged enqueues the sets for which the result of nodeShouldRun changes.
func (c *daemonSets) nodeChanged(old, new *v1.Node) {
	if old != nil && new != nil && maps.Equal(old.Labels, new.Labels) && equality.Semantic.DeepEqual(old.Spec.Taints, new.Spec.Taints) {
		return
	}
	all, err := c.sets.List(labels.Everything())
	if err != nil {
		return
	}
	for _, set := range all {
		var oldRun, oldContinue, newRun, newContinue bool
		if old != nil {
			oldRun, oldContinue = nodeShouldRun(set, old)
		}
		if new != nil {
			newRun, newContinue = nodeShouldRun(set, new)
		}
		if oldRun != newRun || oldContinue != newContinue || old == nil || new == nil {
			c.Queue.Add(cache.MetaObjectToName(set))
		}
	}
}

// revisionChanged enqueues the set of a revision that is deleted or no longer controlled by
// the set, which may need it again.
func (c *daemonSets) revisionChanged(old, new *apps.ControllerRevision) {
	if old == nil {
		return
	}
	ref := metav1.GetControllerOfNoCopy(old)
	if ref == nil || ref.Kind != kind.Kind {
		return
	}
	if new != nil {
		if now := metav1.GetControllerOfNoCopy(new); now != nil && now.UID == ref.UID {
			return
		}
	}
	c.Queue.Add(controller.Key{Namespace: old.Namespace, Name: ref.Name})
}

func (c *daemonSets) sync(ctx context.Context, set *apps.DaemonSet) error {
	if selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector); err == nil && selector.Empty() {
		c.env.Events.Event(set, v1.EventTypeWarning, "SelectingAll", "This daemon set is selecting all pods. A non-empty selector is required.")
		return nil
	}
	if set.DeletionTimestamp != nil {
		return nil
	}
	satisfied := c.control.Expectations.Satisfied(set.UID)
	nodes, err := c.nodes.List(labels.Everything())
	if err != nil {
		return err
	}
	owned, err := c.Claim(ctx, set)
	if err != nil {
		return err
	}
	history := &revision.History{
		Label: apps.DefaultDaemonSetUniqueLabelKey,
		Kube:  c.kube, Revisions: c.revisions, Owner: set, Kind: kind, Selector: set.Spec.Selector, Template: &set.Spec.Template,
		CanAdopt: func(ctx context.Context) error { return c.CanAdopt(ctx, set) },
	}
	all, err := history.List(ctx)
	if err != nil {
		return err
	}
	current, collisions, err := history.Current(ctx, all, set.Status.CollisionCount)
	if err != nil {
		return err
	}
	hash := hashOf(current)
	s := snapshot{set: set, nodes: nodes, pods: owned, hash: hash, now: time.Now()}
	s.since = c.ready.Of(cache.MetaObjectToName(set), owned, set.Spec.MinReadySeconds, s.now)
	var stepErr error
	if satisfied {
		next := manage(s)
		next.delete = c.deletable(set, next.delete)
		if len(next.create) == 0 && len(next.delete) == 0 {
			next = rollingUpdate(s)
		}
		stepErr = c.apply(ctx, set, hash, next)
	}
	st, wait := status(s)
	st.CollisionCount = collisions
	if wait > 0 {
		c.Queue.AddAfter(cache.MetaObjectToName(set), wait)
	}
	if err := errors.Join(stepErr, c.updateStatus(ctx, set, st)); err != nil {
		return err
	}
	inUse := map[string]bool{current.Name: true}
	for _, r := range all {
		for _, p := range owned {
			if p.Labels[apps.ControllerRevisionHashLabelKey] == hashOf(r) {
				inUse[r.Name] = true
			}
		}
	}
	return history.Truncate(ctx, all, set.Spec.RevisionHistoryLimit, inUse)
}

// apply carries out a step.
func (c *daemonSets) apply(ctx context.Context, set *apps.DaemonSet, hash string, next step) error {
	ref := *metav1.NewControllerRef(set, kind)
	_, createErr := c.control.CreatePods(ctx, set, min(len(next.create), burst), func(i int) *v1.Pod {
		return newPod(set, ref, hash, next.create[i])
	})
	_, deleteErr := c.control.DeletePods(ctx, set, next.delete[:min(len(next.delete), burst)], nil)
	return errors.Join(createErr, deleteErr)
}

// deletable returns the pods to delete in one sync: at most burst, and no failed pods on
// nodes in back-off. It records events about finished pods. Only the failed pods that it
// returns increase the back-off of their nodes.
func (c *daemonSets) deletable(set *apps.DaemonSet, toDelete []*v1.Pod) []*v1.Pod {
	var now []*v1.Pod
	for _, p := range toDelete {
		if len(now) == burst {
			break
		}
		switch p.Status.Phase {
		case v1.PodFailed:
			if !c.endBackoff(set, nodeOf(p)) {
				continue
			}
			c.env.Events.Eventf(set, v1.EventTypeWarning, "FailedDaemonPod", "Found failed daemon pod %s/%s on node %s, will try to kill it", p.Namespace, p.Name, nodeOf(p))
		case v1.PodSucceeded:
			c.env.Events.Eventf(set, v1.EventTypeNormal, "SucceededDaemonPod", "Found succeeded daemon pod %s/%s on node %s, will try to delete it", p.Namespace, p.Name, nodeOf(p))
		}
		now = append(now, p)
	}
	return now
}

// endBackoff reports whether a failed pod of a node may be replaced, and begins the next
// back-off if so. Otherwise it enqueues the set for the end of the current one.
func (c *daemonSets) endBackoff(set *apps.DaemonSet, node string) bool {
	id := string(set.UID) + "/" + strconv.FormatInt(set.Status.ObservedGeneration, 10) + "/" + node
	now := time.Now()
	if c.backoff.IsInBackOffSinceUpdate(id, now) {
		c.Queue.AddAfter(cache.MetaObjectToName(set), c.backoff.Get(id))
		return false
	}
	c.backoff.GC()
	c.backoff.Next(id, now)
	return true
}

// hashOf returns the hash in the label of a revision's pods. Coracle's first
// versions stored it in the label that StatefulSets use.
func hashOf(r *apps.ControllerRevision) string {
	return cmp.Or(r.Labels[apps.DefaultDaemonSetUniqueLabelKey], r.Labels[revision.HashLabel])
}

// newPod returns a new pod of a set for a node.
func newPod(set *apps.DaemonSet, ref metav1.OwnerReference, hash, node string) *v1.Pod {
	pod := workload.PodFromTemplate(&set.Spec.Template, set, ref)
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[apps.ControllerRevisionHashLabelKey] = hash
	if generation := set.Annotations[apps.DeprecatedTemplateGeneration]; generation != "" {
		pod.Labels["pod-template-generation"] = generation
	}
	pod.Spec.Tolerations = tolerations(&set.Spec.Template.Spec)
	setNodeAffinity(pod, node)
	return pod
}

func (c *daemonSets) updateStatus(ctx context.Context, set *apps.DaemonSet, want apps.DaemonSetStatus) error {
	if equality.Semantic.DeepEqual(set.Status, want) {
		return nil
	}
	return c.UpdateStatus(ctx, set, func(s *apps.DaemonSet) { s.Status = want })
}
