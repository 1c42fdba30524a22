// Package daemonset keeps one pod of each DaemonSet on every node that fits.
// The scheduler binds the pods; node affinity tells it where to.
package daemonset

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/own"
	"github.com/coracle-io/coracle/internal/controller/pods"
	"github.com/coracle-io/coracle/internal/controller/revision"
)

// Descriptor describes the controller.
var Descriptor = controller.Descriptor{
	Name:           "daemonset-controller",
	Aliases:        []string{"daemonset"},
	ServiceAccount: "daemon-set-controller",
	EventSource:    "daemonset-controller",
	New:            New,
}

var kind = apps.SchemeGroupVersion.WithKind("DaemonSet")

// Replacing a pod that failed is put off, for each node, from the first to
// the last of these.
const (
	firstBackoff = time.Second
	lastBackoff  = 15 * time.Minute
)

// burst is the most pods that one sync creates or deletes.
const burst = 250

type daemonSets struct {
	env       *controller.Env
	kube      kubernetes.Interface
	sets      appslisters.DaemonSetLister
	revisions appslisters.ControllerRevisionLister
	nodes     corelisters.NodeLister
	pods      cache.SharedIndexInformer
	control   pods.Control
	expected  *pods.Expectations
	backoff   *flowcontrol.Backoff
	queue     *controller.Queue[controller.Key]
}

// New builds the controller.
func New(env *controller.Env) (controller.Controller, error) {
	informers := env.Client.Informers
	c := &daemonSets{
		env:       env,
		kube:      env.Client.Kubernetes,
		sets:      informers.Apps().V1().DaemonSets().Lister(),
		revisions: informers.Apps().V1().ControllerRevisions().Lister(),
		nodes:     informers.Core().V1().Nodes().Lister(),
		pods:      informers.Core().V1().Pods().Informer(),
		control:   pods.Control{Kube: env.Client.Kubernetes, Events: env.Events},
		expected:  pods.NewExpectations(),
		backoff:   flowcontrol.NewBackOff(firstBackoff, lastBackoff),
	}
	c.queue = controller.NewQueue("daemonset", c.sync)
	return c, env.Index(c.pods, own.ByController, own.ControllerKeys)
}

// Run implements controller.Controller.
func (c *daemonSets) Run(ctx context.Context) error {
	informers := c.env.Client.Informers
	owners := own.Follower[*v1.Pod]{Kind: kind, Wake: c.queue.Add, Orphaned: c.orphaned, Ledger: c.expected}
	return controller.Serve(ctx, []controller.Source{
		controller.On(informers.Apps().V1().DaemonSets().Informer(), func(old, new *apps.DaemonSet) {
			if new == nil {
				c.expected.Forget(old.UID)
				return
			}
			c.queue.Add(cache.MetaObjectToName(new))
		}),
		controller.On(c.pods, owners.Changed),
		controller.On(informers.Core().V1().Nodes().Informer(), c.nodeChanged),
		controller.Reads(informers.Apps().V1().ControllerRevisions().Informer()),
	}, c.queue.Workers(c.env.Options.ConcurrentDaemonSetSyncs))
}

// orphaned queues the sets that would adopt a pod.
func (c *daemonSets) orphaned(pod *v1.Pod) {
	all, err := c.sets.DaemonSets(pod.Namespace).List(labels.Everything())
	if err != nil {
		return
	}
	for _, set := range all {
		if own.Selects(set.Spec.Selector, pod) {
			c.queue.Add(cache.MetaObjectToName(set))
		}
	}
}

// nodeChanged queues the sets for which a node began or ceased to fit.
func (c *daemonSets) nodeChanged(old, new *v1.Node) {
	if old != nil && new != nil && maps.Equal(old.Labels, new.Labels) && equality.Semantic.DeepEqual(old.Spec.Taints, new.Spec.Taints) {
		return
	}
	all, err := c.sets.List(labels.Everything())
	if err != nil {
		return
	}
	for _, set := range all {
		var ran, stayed, runs, stays bool
		if old != nil {
			ran, stayed = fits(set, old)
		}
		if new != nil {
			runs, stays = fits(set, new)
		}
		if ran != runs || stayed != stays || old == nil || new == nil {
			c.queue.Add(cache.MetaObjectToName(set))
		}
	}
}

func (c *daemonSets) sync(ctx context.Context, key controller.Key) error {
	set, err := c.sets.DaemonSets(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector); err == nil && selector.Empty() {
		c.env.Events.Event(set, v1.EventTypeWarning, "SelectingAll", "This daemon set is selecting all pods. A non-empty selector is required.")
		return nil
	}
	if set.DeletionTimestamp != nil {
		return nil
	}
	current := c.expected.Satisfied(set.UID)
	nodes, err := c.nodes.List(labels.Everything())
	if err != nil {
		return err
	}
	owned, err := c.claim(ctx, set)
	if err != nil {
		return err
	}
	history := &revision.History{
		Label: apps.DefaultDaemonSetUniqueLabelKey,
		Kube:  c.kube, Lister: c.revisions, Owner: set, Kind: kind, Selector: set.Spec.Selector, Template: &set.Spec.Template,
	}
	all, err := history.List()
	if err != nil {
		return err
	}
	now, collisions, err := history.Current(ctx, all, set.Status.CollisionCount)
	if err != nil {
		return err
	}
	hash := hashOf(now)
	s := snapshot{set: set, nodes: nodes, pods: owned, hash: hash, now: time.Now()}
	var stepErr error
	if current {
		next := manage(s)
		if len(next.create) == 0 && len(next.delete) == 0 {
			next = update(s)
		}
		stepErr = c.apply(ctx, set, hash, next)
	}
	st, wait := status(s)
	st.CollisionCount = collisions
	if wait > 0 {
		c.queue.AddAfter(key, wait)
	}
	if err := errors.Join(stepErr, c.report(ctx, set, st)); err != nil {
		return err
	}
	inUse := map[string]bool{now.Name: true}
	for _, r := range all {
		for _, p := range owned {
			if p.Labels[apps.ControllerRevisionHashLabelKey] == hashOf(r) {
				inUse[r.Name] = true
			}
		}
	}
	return history.Trim(ctx, all, set.Spec.RevisionHistoryLimit, inUse)
}

// claim returns the pods that a set owns, after it has adopted and released
// what it should.
func (c *daemonSets) claim(ctx context.Context, set *apps.DaemonSet) ([]*v1.Pod, error) {
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("selector of DaemonSet %s/%s: %w", set.Namespace, set.Name, err)
	}
	candidates, err := own.Candidates[*v1.Pod](c.pods.GetIndexer(), set)
	if err != nil {
		return nil, err
	}
	claim := own.Claim[*v1.Pod]{
		Owner: set, Kind: kind, Selector: selector, Patch: c.control.Patch,
		Fresh: func(ctx context.Context) (metav1.Object, error) {
			return c.kube.AppsV1().DaemonSets(set.Namespace).Get(ctx, set.Name, metav1.GetOptions{})
		},
	}
	return claim.Objects(ctx, candidates)
}

// apply carries out a step.
func (c *daemonSets) apply(ctx context.Context, set *apps.DaemonSet, hash string, next step) error {
	doomed := c.putOff(set, next)
	doomed = doomed[:min(len(doomed), burst)]
	uids := make([]types.UID, len(doomed))
	for i, p := range doomed {
		uids[i] = p.UID
	}
	create := next.create[:min(len(next.create), burst)]
	c.expected.ExpectDeletions(set.UID, uids...)
	c.expected.ExpectCreations(set.UID, len(create))

	ref := *metav1.NewControllerRef(set, kind)
	at := make(chan string, len(create))
	for _, node := range create {
		at <- node
	}
	done, createErr := pods.SlowStart(ctx, len(create), func(ctx context.Context) error {
		_, err := c.control.Create(ctx, newPod(set, ref, hash, <-at), set)
		if apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause) {
			c.expected.ObserveCreation(set.UID)
			return nil
		}
		return err
	})
	for range len(create) - done {
		c.expected.ObserveCreation(set.UID)
	}
	deleteErr := pods.All(doomed, func(p *v1.Pod) error {
		err := c.control.Delete(ctx, p, set)
		if err != nil {
			c.expected.ObserveDeletion(set.UID, p.UID)
		}
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
	return errors.Join(createErr, deleteErr)
}

// putOff takes out of the pods to delete those that failed and whose node's
// back-off is not over yet.
func (c *daemonSets) putOff(set *apps.DaemonSet, next step) []*v1.Pod {
	failed := map[types.UID]bool{}
	for _, p := range next.failed {
		failed[p.UID] = true
	}
	var out []*v1.Pod
	for _, p := range next.delete {
		if failed[p.UID] {
			id := string(set.UID) + "/" + strconv.FormatInt(set.Status.ObservedGeneration, 10) + "/" + nodeOf(p)
			now := time.Now()
			if c.backoff.IsInBackOffSinceUpdate(id, now) {
				c.queue.AddAfter(cache.MetaObjectToName(set), c.backoff.Get(id))
				continue
			}
			c.backoff.Next(id, now)
			c.env.Events.Eventf(set, v1.EventTypeWarning, "FailedDaemonPod", "Found failed daemon pod %s/%s on node %s, will try to kill it", p.Namespace, p.Name, nodeOf(p))
		}
		out = append(out, p)
	}
	return out
}

// hashOf is what the pods of a revision are labelled with. Coracle's first
// versions kept it as StatefulSets do.
func hashOf(r *apps.ControllerRevision) string {
	return cmp.Or(r.Labels[apps.DefaultDaemonSetUniqueLabelKey], r.Labels[revision.HashLabel])
}

// newPod is a set's pod for a node.
func newPod(set *apps.DaemonSet, ref metav1.OwnerReference, hash, node string) *v1.Pod {
	pod := pods.FromTemplate(&set.Spec.Template, set, ref)
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[apps.ControllerRevisionHashLabelKey] = hash
	if generation := set.Annotations[apps.DeprecatedTemplateGeneration]; generation != "" {
		pod.Labels["pod-template-generation"] = generation
	}
	pod.Spec.Tolerations = tolerations(&set.Spec.Template.Spec)
	bindTo(pod, node)
	return pod
}

func (c *daemonSets) report(ctx context.Context, set *apps.DaemonSet, want apps.DaemonSetStatus) error {
	if equality.Semantic.DeepEqual(set.Status, want) {
		return nil
	}
	next := *set
	next.Status = want
	_, err := c.kube.AppsV1().DaemonSets(set.Namespace).UpdateStatus(ctx, &next, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
