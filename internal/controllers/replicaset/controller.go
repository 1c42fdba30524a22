package replicaset

import (
	"context"
	"time"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/workload"
	podutil "github.com/coracle-io/coracle/internal/pod"
)

// Kind is how the controller reads and writes objects of one kind: ReplicaSets,
// or ReplicationControllers, which it sees as ReplicaSets.
type Kind[O workload.Object] struct {
	GroupVersionKind schema.GroupVersionKind
	// Queue is the name of the work queue in metrics. Workers is the number of
	// objects that are synced at once.
	Queue   string
	Workers int
	// Informer holds the objects of the kind.
	Informer cache.SharedIndexInformer
	// Client returns the client of a namespace.
	Client func(namespace string) workload.Client[O]
	// View shows an object as a ReplicaSet, which shares memory with it.
	View func(object O) *apps.ReplicaSet
	// SetStatus changes the status of an object.
	SetStatus func(object O, status apps.ReplicaSetStatus)
	// Related are the UIDs of the sets whose pods count as colocated with a
	// set's own, itself included.
	Related func(set *apps.ReplicaSet) []types.UID
	// CountsTerminating is whether the kind's status has terminatingReplicas.
	CountsTerminating bool
}

// sets keeps the pods of all objects of a kind.
type sets[O workload.Object] struct {
	*workload.Controller[O, *v1.Pod]
	kind    Kind[O]
	pods    cache.SharedIndexInformer
	control *workload.PodControl
}

// New builds the controller of a kind.
func New[O workload.Object](env *controller.Env, kind Kind[O]) (controller.Controller, error) {
	c := &sets[O]{
		kind:    kind,
		pods:    env.Client.Informers.Core().V1().Pods().Informer(),
		control: workload.NewPodControl(env),
	}
	var err error
	c.Controller, err = workload.New(env, workload.Config[O, *v1.Pod]{
		Kind: kind.GroupVersionKind, Queue: kind.Queue, Workers: kind.Workers,
		Owners: kind.Informer, Dependents: c.pods, Client: kind.Client, Sync: c.sync,
		Selector: func(object O) *metav1.LabelSelector { return selector(kind.View(object)) },
		// Pods that have ended are not adopted.
		Matches: func(object O, p *v1.Pod) bool { return podutil.IsActive(p) || metav1.IsControlledBy(p, object) },
		Patch:   c.control.Patch, Expectations: c.control.Expectations,
	})
	return c, err
}

// selector returns the selector of a set. An empty one selects nothing.
func selector(set *apps.ReplicaSet) *metav1.LabelSelector {
	if s := set.Spec.Selector; s != nil && len(s.MatchLabels)+len(s.MatchExpressions) > 0 {
		return s
	}
	return nil
}

func (c *sets[O]) sync(ctx context.Context, object O) error {
	set := c.kind.View(object)
	log := klog.FromContext(ctx).WithValues("kind", c.kind.GroupVersionKind.Kind, "set", klog.KObj(set))
	ctx = klog.NewContext(ctx, log)
	current := c.control.Expectations.Satisfied(set.UID)
	owned, err := c.Claim(ctx, object)
	if err != nil {
		return err
	}
	var seen observation
	if c.kind.CountsTerminating {
		seen.terminating = new(int)
	}
	for _, p := range owned {
		switch {
		case podutil.IsActive(p):
			seen.active = append(seen.active, p)
		case seen.terminating != nil && podutil.IsTerminating(p):
			*seen.terminating++
		}
	}
	if current && set.DeletionTimestamp == nil {
		seen.missing = int(replicas(set)) - len(seen.active)
		seen.failed = c.apply(ctx, object, set, decide(set, seen.active, c.colocated(set), time.Now()))
	}
	next, err := c.report(ctx, object, set, seen)
	if next > 0 {
		c.Queue.AddAfter(cache.MetaObjectToName(set), next)
	}
	if seen.failed != nil {
		return seen.failed
	}
	return err
}

// colocated counts, for each node, the active pods related to a set.
func (c *sets[O]) colocated(set *apps.ReplicaSet) map[string]int {
	count := map[string]int{}
	for _, uid := range c.kind.Related(set) {
		owned, _ := workload.Controlled[*v1.Pod](c.pods, uid)
		for _, p := range owned {
			if podutil.IsActive(p) {
				count[p.Spec.NodeName]++
			}
		}
	}
	return count
}

// apply carries out a plan.
func (c *sets[O]) apply(ctx context.Context, object O, set *apps.ReplicaSet, p plan) error {
	if p.create > 0 {
		ref := *metav1.NewControllerRef(set, c.kind.GroupVersionKind)
		_, err := c.control.CreatePods(ctx, object, p.create, func(int) *v1.Pod {
			return workload.PodFromTemplate(&set.Spec.Template, set, ref)
		})
		return err
	}
	return c.control.DeletePods(ctx, object, p.victims, nil)
}

// report writes the status if it changed. next is how long it takes until a
// pod that is ready now becomes available; 0 if there is none.
func (c *sets[O]) report(ctx context.Context, object O, set *apps.ReplicaSet, seen observation) (next time.Duration, err error) {
	want, next := status(set, seen, time.Now())
	if equality.Semantic.DeepEqual(want, set.Status) {
		return next, nil
	}
	klog.FromContext(ctx).V(4).Info("Updating status", "replicas", want.Replicas, "ready", want.ReadyReplicas, "available", want.AvailableReplicas)
	return next, c.UpdateStatus(ctx, object, func(o O) { c.kind.SetStatus(o, want) })
}
