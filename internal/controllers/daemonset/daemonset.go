// Package daemonset keeps one pod of each DaemonSet on every node that fits.
// The scheduler binds the pods; node affinity tells it where to.
package daemonset

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"strconv"
	"time"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/revision"
	"github.com/coracle-io/coracle/internal/controller/workload"
)

// Descriptor describes the controller.
func Descriptor() controller.Descriptor {
	workers := 2
	return controller.Descriptor{
		Name:           "daemonset-controller",
		Aliases:        []string{"daemonset"},
		ServiceAccount: "daemon-set-controller",
		EventSource:    "daemonset-controller",
		AddFlags:       controller.WorkersFlag(&workers, "concurrent-daemonset-syncs", "daemonset objects"),
		New:            func(env *controller.Env) (controller.Controller, error) { return newController(env, workers) },
	}
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
	*workload.Controller[*apps.DaemonSet, *v1.Pod]
	env       *controller.Env
	kube      kubernetes.Interface
	sets      appslisters.DaemonSetLister
	revisions appslisters.ControllerRevisionLister
	nodes     corelisters.NodeLister
	control   *workload.PodControl
	backoff   *flowcontrol.Backoff
}

func newController(env *controller.Env, workers int) (controller.Controller, error) {
	informers := env.Client.Informers
	c := &daemonSets{
		env:       env,
		kube:      env.Client.Kubernetes,
		sets:      informers.Apps().V1().DaemonSets().Lister(),
		revisions: informers.Apps().V1().ControllerRevisions().Lister(),
		nodes:     informers.Core().V1().Nodes().Lister(),
		control:   workload.NewPodControl(env),
		backoff:   flowcontrol.NewBackOff(firstBackoff, lastBackoff),
	}
	var err error
	c.Controller, err = workload.New(env, workload.Config[*apps.DaemonSet, *v1.Pod]{
		Kind: kind, Queue: "daemonset", Workers: workers,
		Owners: informers.Apps().V1().DaemonSets().Informer(), Dependents: informers.Core().V1().Pods().Informer(),
		Sources: []controller.Source{
			controller.On(informers.Core().V1().Nodes().Informer(), c.nodeChanged),
			controller.Reads(informers.Apps().V1().ControllerRevisions().Informer()),
		},
		Client: func(namespace string) workload.Client[*apps.DaemonSet] {
			return c.kube.AppsV1().DaemonSets(namespace)
		},
		Sync:     c.sync,
		Selector: func(set *apps.DaemonSet) *metav1.LabelSelector { return set.Spec.Selector },
		Patch:    c.control.Patch, Expectations: c.control.Expectations,
	})
	return c, err
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
			c.Queue.Add(cache.MetaObjectToName(set))
		}
	}
}

func (c *daemonSets) sync(ctx context.Context, set *apps.DaemonSet) error {
	if selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector); err == nil && selector.Empty() {
		c.env.Events.Event(set, v1.EventTypeWarning, "SelectingAll", "This daemon set is selecting all pods. A non-empty selector is required.")
		return nil
	}
	if set.DeletionTimestamp != nil {
		return nil
	}
	current := c.control.Expectations.Satisfied(set.UID)
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
		c.Queue.AddAfter(cache.MetaObjectToName(set), wait)
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

// apply carries out a step.
func (c *daemonSets) apply(ctx context.Context, set *apps.DaemonSet, hash string, next step) error {
	doomed := c.putOff(set, next)
	ref := *metav1.NewControllerRef(set, kind)
	_, createErr := c.control.CreatePods(ctx, set, min(len(next.create), burst), func(i int) *v1.Pod {
		return newPod(set, ref, hash, next.create[i])
	})
	deleteErr := c.control.DeletePods(ctx, set, doomed[:min(len(doomed), burst)], nil)
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
				c.Queue.AddAfter(cache.MetaObjectToName(set), c.backoff.Get(id))
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
	pod := workload.PodFromTemplate(&set.Spec.Template, set, ref)
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
	return c.UpdateStatus(ctx, set, func(s *apps.DaemonSet) { s.Status = want })
}
