// Package workload is the skeleton of the controllers whose objects own
// others: ReplicaSets, DaemonSets, StatefulSets and Jobs own pods, Deployments
// own ReplicaSets, CronJobs own Jobs.
//
//	owner changed ──────────────────────────────▶ Queue ──▶ get or forget ──▶ Config.Sync
//	dependent changed ──▶ Expectations ──▶ owner ───▲                              │
//	orphan appeared ──▶ owners that may adopt it ───▲      adopt and release: Claim ◀──┤
//	                                         create and delete pods: PodControl ◀──┤
//	                                                  report: UpdateStatus ◀──┘
package workload

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/controller"
)

// Object is a pointer to an object of the API.
type Object interface {
	comparable
	metav1.Object
	runtime.Object
}

// Client is the part of a typed client that a Controller needs.
type Client[O Object] interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (O, error)
	UpdateStatus(ctx context.Context, object O, options metav1.UpdateOptions) (O, error)
}

// Config describes a Controller of owners O and their dependents D.
type Config[O, D Object] struct {
	// Kind is the kind of the owners.
	Kind schema.GroupVersionKind
	// Queue is the name of the work queue in metrics. Workers is the number of
	// owners that are synced at once.
	Queue   string
	Workers int
	// Owners and Dependents are the informers of the two kinds.
	Owners, Dependents cache.SharedIndexInformer
	// Sources are what the controller watches besides.
	Sources []controller.Source
	// Client returns the client of the owners in a namespace.
	Client func(namespace string) Client[O]
	// Sync reconciles an owner. The owner is shared and must not be changed.
	Sync func(ctx context.Context, owner O) error
	// Gone, if not nil, is called for a key of the queue without an owner.
	Gone func(ctx context.Context, key controller.Key) error

	// Selector returns what an owner selects. If it is nil, the controller
	// adopts and releases nothing.
	Selector func(owner O) *metav1.LabelSelector
	// Matches narrows the selector. It may be nil.
	Matches func(owner O, dependent D) bool
	// Patch sends a strategic merge patch for a dependent.
	Patch func(ctx context.Context, dependent D, patch []byte) error
	// Finalizers are added to what is adopted.
	Finalizers []string
	// Unadopted, if not nil, is called for an orphan that no owner may adopt.
	Unadopted func(orphan D)
	// Expectations are told which creations and deletions the informer shows.
	// They are nil if the controller has none.
	Expectations *Expectations
}

// Controller keeps owners O and the dependents D that they control. It
// implements controller.Controller.
type Controller[O, D Object] struct {
	// Queue has the keys of the owners to sync.
	Queue  *controller.Queue[controller.Key]
	config Config[O, D]
}

// New builds a controller. It starts nothing.
func New[O, D Object](env *controller.Env, config Config[O, D]) (*Controller[O, D], error) {
	c := &Controller[O, D]{config: config}
	c.Queue = controller.NewQueue(config.Queue, c.sync)
	return c, IndexByController(env, config.Dependents)
}

// Run implements controller.Controller.
func (c *Controller[O, D]) Run(ctx context.Context) error {
	sources := append([]controller.Source{
		controller.On(c.config.Owners, c.ownerChanged),
		controller.On(c.config.Dependents, c.dependentChanged),
	}, c.config.Sources...)
	return controller.Serve(ctx, sources, c.Queue.Workers(c.config.Workers))
}

func (c *Controller[O, D]) sync(ctx context.Context, key controller.Key) error {
	owner, exists, err := c.config.Owners.GetIndexer().GetByKey(key.String())
	switch {
	case err != nil:
		return err
	case exists:
		return c.config.Sync(ctx, owner.(O))
	case c.config.Gone != nil:
		return c.config.Gone(ctx, key)
	}
	return nil
}

// ownerChanged takes an event of an owner: old is nil for one that was added,
// new for one that was deleted.
func (c *Controller[O, D]) ownerChanged(old, new O) {
	var none O
	if old != none && (new == none || new.GetUID() != old.GetUID()) && c.config.Expectations != nil {
		c.config.Expectations.Forget(old.GetUID())
	}
	if new == none {
		new = old
	}
	c.Queue.Add(cache.MetaObjectToName(new))
}

// dependentChanged takes an event of a dependent. It queues the owner that the
// dependent has, the one that it had, or those that may adopt it.
func (c *Controller[O, D]) dependentChanged(old, new D) {
	var none D
	if old != none && new != none && old.GetResourceVersion() == new.GetResourceVersion() {
		return
	}
	x := c.config.Expectations
	before, after := c.controllerRef(old), c.controllerRef(new)
	if before != nil && (after == nil || after.UID != before.UID) {
		if new == none && x != nil {
			x.ObserveDeletion(before.UID, old.GetUID())
		}
		c.Queue.Add(controller.Key{Namespace: old.GetNamespace(), Name: before.Name})
	}
	switch {
	case new == none:
	case after != nil:
		if x != nil && old == none {
			x.ObserveCreation(after.UID)
		}
		if x != nil && new.GetDeletionTimestamp() != nil {
			x.ObserveDeletion(after.UID, new.GetUID())
		}
		c.Queue.Add(controller.Key{Namespace: new.GetNamespace(), Name: after.Name})
	case metav1.GetControllerOfNoCopy(new) == nil:
		if old == none || metav1.GetControllerOfNoCopy(old) != nil || !labels.Equals(old.GetLabels(), new.GetLabels()) {
			c.orphaned(new)
		}
	}
}

// orphaned queues the owners that may adopt an orphan.
func (c *Controller[O, D]) orphaned(orphan D) {
	adopters := c.Adopters(orphan)
	for _, owner := range adopters {
		c.Queue.Add(cache.MetaObjectToName(owner))
	}
	if len(adopters) == 0 && c.config.Unadopted != nil {
		c.config.Unadopted(orphan)
	}
}

// controllerRef returns the reference to the controller of an object if that
// is of the owners' kind.
func (c *Controller[O, D]) controllerRef(object D) *metav1.OwnerReference {
	var none D
	if object == none {
		return nil
	}
	ref := metav1.GetControllerOfNoCopy(object)
	if ref == nil || ref.Kind != c.config.Kind.Kind {
		return nil
	}
	if gv, err := schema.ParseGroupVersion(ref.APIVersion); err != nil || gv.Group != c.config.Kind.Group {
		return nil
	}
	return ref
}

// UpdateStatus writes the status that set gives to a copy of owner. If the
// cached owner is not the latest, the latest gets that status, so set must not
// depend on what the status was. An owner that is gone or replaced is not an
// error.
func (c *Controller[O, D]) UpdateStatus(ctx context.Context, owner O, set func(owner O)) error {
	client := c.config.Client(owner.GetNamespace())
	update := func(owner O) error {
		next := owner.DeepCopyObject().(O)
		set(next)
		_, err := client.UpdateStatus(ctx, next, metav1.UpdateOptions{})
		return err
	}
	err := update(owner)
	if apierrors.IsConflict(err) {
		var latest O
		latest, err = client.Get(ctx, owner.GetName(), metav1.GetOptions{})
		if err == nil && latest.GetUID() == owner.GetUID() {
			err = update(latest)
		}
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
