package replicaset

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/pods"
	"github.com/coracle-io/coracle/internal/controller/workload"
	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/podquery"
)

// Kind adapts the controller to a kind: ReplicaSets, or ReplicationControllers, which it
// processes as ReplicaSets.
type Kind[O workload.Object] struct {
	GroupVersionKind schema.GroupVersionKind
	// Queue is the name of the work queue in metrics. Workers is the number of
	// objects that are synced concurrently.
	Queue   string
	Workers int
	// Informer is the informer of the kind.
	Informer cache.SharedIndexInformer
	// Client returns the client of a namespace.
	Client func(namespace string) workload.Client[O]
	// View converts an object to a ReplicaSet, which may share memory with it.
	View func(object O) *apps.ReplicaSet
	// SetStatus sets the status of an object.
	SetStatus func(object O, status apps.ReplicaSetStatus)
	// Related returns the UIDs of the sets whose pods count as colocated with the pods of
	// a set, including its own.
	Related func(set *apps.ReplicaSet) []types.UID
	// CountsTerminating is true if the status of the kind has terminatingReplicas.
	CountsTerminating bool
	// Skips, if not nil, counts syncs that wait for the cache.
	Skips *prometheus.CounterVec
}

// sets is the controller of a kind.
type sets[O workload.Object] struct {
	*workload.Controller[O, *v1.Pod]
	env     *controller.Env
	kind    Kind[O]
	pods    cache.SharedIndexInformer
	control *workload.PodControl
	ready   pods.Readiness

	namespaces corelisters.NamespaceLister
}

// New builds the controller of a kind.
func New[O workload.Object](env *controller.Env, kind Kind[O]) (controller.Controller, error) {
	namespaces := env.Client.Informers.Core().V1().Namespaces()
	c := &sets[O]{
		env:     env,
		kind:    kind,
		pods:    env.Client.Informers.Core().V1().Pods().Informer(),
		control: workload.NewPodControl(env),

		namespaces: namespaces.Lister(),
	}
	var err error
	c.Controller, err = workload.New(env, workload.Config[O, *v1.Pod]{
		Kind: kind.GroupVersionKind, Queue: kind.Queue, Workers: kind.Workers,
		Owners: kind.Informer, Dependents: c.pods, Client: kind.Client, Sync: c.sync,
		OwnerGone: func(_ context.Context, key controller.Key) error {
			c.ready.Forget(key)
			return nil
		},
		Sources:  []controller.Source{controller.Reads(namespaces.Informer())},
		Selector: func(object O) *metav1.LabelSelector { return selector(kind.View(object)) },
		// Finished pods are not adopted.
		Matches: func(object O, p *v1.Pod) bool { return podquery.IsActive(p) || metav1.IsControlledBy(p, object) },
		Patch:   c.control.Patch, Expectations: c.control.Expectations, Skips: kind.Skips,
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
	satisfied := c.control.Expectations.Satisfied(set.UID)
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
		case c.control.Expectations.Deleting(set.UID, p.UID):
			if seen.terminating != nil {
				*seen.terminating++
			}
		case podquery.IsActive(p):
			seen.active = append(seen.active, p)
		case seen.terminating != nil && podquery.IsTerminating(p):
			*seen.terminating++
		}
	}
	seen.acted = satisfied || set.DeletionTimestamp != nil
	if satisfied && set.DeletionTimestamp == nil {
		seen.missing = int(replicas(set)) - len(seen.active)
		order := pods.DeletionOrder{ByCost: c.env.Features.Enabled(feature.PodDeletionCost), Now: time.Now()}
		if seen.missing < 0 {
			order.Colocated = c.colocated(set)
		}
		p := decide(set, seen.active, order)
		if p.create > 0 && c.refused(set) {
			p.create = 0
			c.Queue.AddAfter(cache.MetaObjectToName(set), refusedRetry)
		}
		kept, err := c.apply(ctx, object, set, p)
		seen.failed = err
		seen.forget(p.delete, kept)
	}
	next, err := c.updateStatus(ctx, object, set, seen)
	if next > 0 {
		c.Queue.AddAfter(cache.MetaObjectToName(set), next)
	}
	if seen.failed != nil {
		return seen.failed
	}
	return err
}

// refusedRetry is when a set whose namespace is being deleted asks for pods again, in case
// that the cache was wrong.
const refusedRetry = 30 * time.Second

// refused reports whether the API server would refuse new pods of a set, because its
// namespace is being deleted. Each of the set's pods that ends would cause a request. A set
// that is younger than the deletion is in another namespace of the same name.
func (c *sets[O]) refused(set *apps.ReplicaSet) bool {
	ns, err := c.namespaces.Get(set.Namespace)
	return err == nil && ns.DeletionTimestamp != nil && set.CreationTimestamp.Before(ns.DeletionTimestamp)
}

// colocated returns the number of active pods related to a set for each node.
func (c *sets[O]) colocated(set *apps.ReplicaSet) map[string]int {
	count := map[string]int{}
	for _, uid := range c.kind.Related(set) {
		owned, _ := workload.Controlled[*v1.Pod](c.pods, uid)
		for _, p := range owned {
			if podquery.IsActive(p) {
				count[p.Spec.NodeName]++
			}
		}
	}
	return count
}

// apply carries out a plan. It returns the pods that it could not delete.
func (c *sets[O]) apply(ctx context.Context, object O, set *apps.ReplicaSet, p plan) (kept []*v1.Pod, err error) {
	if p.create > 0 {
		ref := *metav1.NewControllerRef(set, c.kind.GroupVersionKind)
		_, err := c.control.CreatePods(ctx, object, p.create, func(int) *v1.Pod {
			return workload.PodFromTemplate(&set.Spec.Template, set, ref)
		})
		return nil, err
	}
	return c.control.DeletePods(ctx, object, p.delete, nil)
}

// updateStatus writes the status if it has changed. next is the time until the next ready
// pod becomes available, or 0 if there is none.
func (c *sets[O]) updateStatus(ctx context.Context, object O, set *apps.ReplicaSet, seen observation) (next time.Duration, err error) {
	now := time.Now()
	seen.since = c.ready.Of(cache.MetaObjectToName(set), seen.active, set.Spec.MinReadySeconds, now)
	want, next := status(set, seen, now)
	if equality.Semantic.DeepEqual(want, set.Status) {
		return next, nil
	}
	klog.FromContext(ctx).V(4).Info("Updating status", "replicas", want.Replicas, "ready", want.ReadyReplicas, "available", want.AvailableReplicas)
	return next, c.UpdateStatus(ctx, object, func(o O) { c.kind.SetStatus(o, want) })
}
