package replicas

import (
	"context"
	"fmt"
	"slices"
	"time"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/own"
	"github.com/coracle-io/coracle/internal/controller/pods"
	podutil "github.com/coracle-io/coracle/internal/pod"
)

// Kind is how the core reads and writes one of the two kinds.
type Kind struct {
	GroupVersionKind schema.GroupVersionKind
	// Informer holds the objects of the kind.
	Informer cache.SharedIndexInformer
	// View shows an object of the kind as a ReplicaSet. It shares memory with
	// the object.
	View func(object any) *apps.ReplicaSet
	// Fresh reads an object from the API server.
	Fresh func(ctx context.Context, namespace, name string) (metav1.Object, error)
	// WriteStatus writes a status to an object, which it must copy first.
	WriteStatus func(ctx context.Context, object any, status apps.ReplicaSetStatus) error
	// Related are the UIDs of the sets whose pods count as colocated with a
	// set's own, itself included.
	Related func(set *apps.ReplicaSet) []types.UID
	// CountsTerminating is whether the kind's status has terminatingReplicas.
	CountsTerminating bool
	// Queue is the name of the work queue in metrics.
	Queue   string
	Workers int
}

// Controller keeps the pods of all sets of one kind.
type Controller struct {
	kind     Kind
	env      *controller.Env
	pods     cache.SharedIndexInformer
	control  pods.Control
	expected *pods.Expectations
	queue    *controller.Queue[controller.Key]
}

// New builds the controller of a kind.
func New(env *controller.Env, kind Kind) (*Controller, error) {
	c := &Controller{
		kind:     kind,
		env:      env,
		pods:     env.Client.Informers.Core().V1().Pods().Informer(),
		control:  pods.Control{Kube: env.Client.Kubernetes, Events: env.Events},
		expected: pods.NewExpectations(),
	}
	c.queue = controller.NewQueue(kind.Queue, c.sync)
	return c, env.Index(c.pods, own.ByController, own.ControllerKeys)
}

// Run implements controller.Controller.
func (c *Controller) Run(ctx context.Context) error {
	owners := own.Follower[*v1.Pod]{Kind: c.kind.GroupVersionKind, Wake: c.queue.Add, Orphaned: c.wakeAdopters, Ledger: c.expected}
	return controller.Serve(ctx, []controller.Source{
		controller.On(c.kind.Informer, c.setChanged),
		controller.On(c.pods, owners.Changed),
	}, c.queue.Workers(c.kind.Workers))
}

func (c *Controller) setChanged(old, new runtime.Object) {
	set := new
	if set == nil {
		set = old
		c.expected.Forget(c.kind.View(old).UID)
	} else if old != nil && c.kind.View(old).UID != c.kind.View(new).UID {
		c.expected.Forget(c.kind.View(old).UID)
	}
	c.queue.Add(cache.MetaObjectToName(set.(metav1.Object)))
}

// wakeAdopters queues the sets whose selector matches a pod without an owner.
func (c *Controller) wakeAdopters(p *v1.Pod) {
	_ = cache.ListAllByNamespace(c.kind.Informer.GetIndexer(), p.Namespace, labels.Everything(), func(o any) {
		set := c.kind.View(o)
		if own.Selects(set.Spec.Selector, p) {
			c.queue.Add(controller.Key{Namespace: set.Namespace, Name: set.Name})
		}
	})
}

// selector is a set's selector, which never matches everything.
func selector(set *apps.ReplicaSet) (labels.Selector, error) {
	s, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err == nil && s.Empty() {
		return labels.Nothing(), nil
	}
	return s, err
}

func (c *Controller) sync(ctx context.Context, key controller.Key) error {
	object, exists, err := c.kind.Informer.GetIndexer().GetByKey(key.String())
	if err != nil || !exists {
		return err
	}
	set := c.kind.View(object)
	log := klog.FromContext(ctx).WithValues("kind", c.kind.GroupVersionKind.Kind, "set", klog.KObj(set))
	ctx = klog.NewContext(ctx, log)
	current := c.expected.Satisfied(set.UID)
	owned, err := c.claim(ctx, set)
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
		seen.failed = c.apply(ctx, object.(runtime.Object), set, decide(set, seen.active, c.colocated(set), time.Now()))
	}
	next, err := c.report(ctx, object, set, seen)
	if next > 0 {
		c.queue.AddAfter(key, next)
	}
	if seen.failed != nil {
		return seen.failed
	}
	return err
}

// claim returns the pods that a set owns, after it has adopted and released
// what it should.
func (c *Controller) claim(ctx context.Context, set *apps.ReplicaSet) ([]*v1.Pod, error) {
	s, err := selector(set)
	if err != nil {
		return nil, fmt.Errorf("selector of %s/%s: %w", set.Namespace, set.Name, err)
	}
	candidates, err := own.Candidates[*v1.Pod](c.pods.GetIndexer(), set)
	if err != nil {
		return nil, err
	}
	// What has ended is not adopted any more.
	candidates = slices.DeleteFunc(candidates, func(p *v1.Pod) bool {
		return metav1.GetControllerOfNoCopy(p) == nil && !podutil.IsActive(p)
	})
	claim := own.Claim[*v1.Pod]{
		Owner: set, Kind: c.kind.GroupVersionKind, Selector: s, Patch: c.control.Patch,
		Fresh: func(ctx context.Context) (metav1.Object, error) { return c.kind.Fresh(ctx, set.Namespace, set.Name) },
	}
	return claim.Objects(ctx, candidates)
}

// colocated counts, for each node, the active pods related to a set.
func (c *Controller) colocated(set *apps.ReplicaSet) map[string]int {
	count := map[string]int{}
	for _, uid := range c.kind.Related(set) {
		objects, _ := c.pods.GetIndexer().ByIndex(own.ByController, string(uid))
		for _, o := range objects {
			if p := o.(*v1.Pod); podutil.IsActive(p) {
				count[p.Spec.NodeName]++
			}
		}
	}
	return count
}

// apply carries out a plan.
func (c *Controller) apply(ctx context.Context, object runtime.Object, set *apps.ReplicaSet, p plan) error {
	if p.create > 0 {
		ref := *metav1.NewControllerRef(set, c.kind.GroupVersionKind)
		c.expected.ExpectCreations(set.UID, p.create)
		tried, err := pods.SlowStart(ctx, p.create, func(ctx context.Context) error {
			_, err := c.control.Create(ctx, pods.FromTemplate(&set.Spec.Template, set, ref), object)
			if apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause) {
				c.expected.ObserveCreation(set.UID)
				return nil
			}
			return err
		})
		for range p.create - tried {
			c.expected.ObserveCreation(set.UID)
		}
		return err
	}
	if len(p.victims) == 0 {
		return nil
	}
	uids := make([]types.UID, len(p.victims))
	for i, v := range p.victims {
		uids[i] = v.UID
	}
	c.expected.ExpectDeletions(set.UID, uids...)
	return pods.All(p.victims, func(victim *v1.Pod) error {
		err := c.control.Delete(ctx, victim, object)
		if err != nil {
			c.expected.ObserveDeletion(set.UID, victim.UID)
		}
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// report writes the status if it changed. If the cached object is not the
// latest, the status is written to the latest.
func (c *Controller) report(ctx context.Context, object any, set *apps.ReplicaSet, seen observation) (next time.Duration, err error) {
	want, next := status(set, seen, time.Now())
	if same(&want, &set.Status) {
		return next, nil
	}
	klog.FromContext(ctx).V(4).Info("Updating status", "replicas", want.Replicas, "ready", want.ReadyReplicas, "available", want.AvailableReplicas)
	err = c.kind.WriteStatus(ctx, object, want)
	if !apierrors.IsConflict(err) {
		return next, ignoreNotFound(err)
	}
	fresh, err := c.kind.Fresh(ctx, set.Namespace, set.Name)
	if err != nil || fresh.GetUID() != set.UID {
		return next, ignoreNotFound(err)
	}
	return next, ignoreNotFound(c.kind.WriteStatus(ctx, fresh, want))
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
