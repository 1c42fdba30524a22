// Package workload is the common part of the controllers whose objects own
// others: ReplicaSets, DaemonSets, StatefulSets and Jobs own pods, Deployments
// own ReplicaSets, CronJobs own Jobs.
//
//	owner changed ──────────────────────────────▶ Queue ──▶ get the owner ──▶ Config.Sync
//	dependent changed ──▶ Expectations ──▶ owner ───▲                              │
//	orphan appeared ──▶ owners that may adopt it ───▲      adopt and release: Claim ◀──┤
//	                                         create and delete pods: PodControl ◀──┤
//	                                            write the status: UpdateStatus ◀──┘
package workload

import (
	"context"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
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
	// owners that are synced concurrently.
	Queue   string
	Workers int
	// Owners and Dependents are the informers of the two kinds.
	Owners, Dependents cache.SharedIndexInformer
	// Sources lists what else the controller watches, and Tasks what else it runs.
	Sources []controller.Source
	Tasks   []func(ctx context.Context) error
	// Client returns the client of the owners in a namespace.
	Client func(namespace string) Client[O]
	// Sync reconciles an owner. The owner is shared and must not be changed.
	Sync func(ctx context.Context, owner O) error
	// OwnerGone, if not nil, is called for a key whose owner does not exist.
	OwnerGone func(ctx context.Context, key controller.Key) error

	// Selector returns the label selector of an owner. If it is nil, the
	// controller neither adopts nor releases dependents.
	Selector func(owner O) *metav1.LabelSelector
	// Matches, if not nil, further restricts which dependents an owner selects.
	Matches func(owner O, dependent D) bool
	// Patch sends a strategic merge patch for a dependent.
	Patch func(ctx context.Context, dependent D, patch []byte) error
	// Finalizers are added to adopted dependents.
	Finalizers []string
	// Expectations, if not nil, observe the creations and deletions that the
	// informer of the dependents shows.
	Expectations *Expectations
	// ReadsStatus says that Sync depends on the status that UpdateStatus has
	// written. It is then called with owners that have it.
	ReadsStatus bool
	// Skips, if not nil, counts syncs that wait for the cache; see NewSkips.
	Skips *prometheus.CounterVec
}

// NewSkips returns the metric of syncs of a kind that did not act, because the cache did not
// show what the controller had written. Its labels are the resource that the cache was behind
// of. It has upstream's name.
func NewSkips(subsystem, kind string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Subsystem: subsystem, Name: "stale_sync_skips_total",
		Help: "[ALPHA] Total number of " + kind + " syncs skipped due to a stale watch cache.",
	}, []string{"group", "resource"})
}

// Controller reconciles owners O and the dependents D that they control. It
// implements controller.Controller.
type Controller[O, D Object] struct {
	// Queue holds the keys of the owners to sync.
	Queue  *controller.Queue[controller.Key]
	config Config[O, D]

	mu sync.Mutex // guards written
	// written holds the resource version of the last status that was written for an
	// owner, until the cache shows it. It is empty without ReadsStatus.
	written map[controller.Key]string
}

// New builds a controller. It does not start goroutines.
func New[O, D Object](env *controller.Env, config Config[O, D]) (*Controller[O, D], error) {
	c := &Controller[O, D]{config: config, written: map[controller.Key]string{}}
	c.Queue = controller.NewQueue(env.Queues, config.Queue, c.sync)
	return c, IndexByController(env, config.Dependents)
}

// Run implements controller.Controller.
func (c *Controller[O, D]) Run(ctx context.Context) error {
	sources := append([]controller.Source{
		controller.On(c.config.Owners, c.ownerChanged),
		controller.On(c.config.Dependents, c.dependentChanged),
	}, c.config.Sources...)
	return controller.Serve(ctx, sources, append([]func(context.Context) error{c.Queue.Workers(c.config.Workers)}, c.config.Tasks...)...)
}

func (c *Controller[O, D]) sync(ctx context.Context, key controller.Key) error {
	owner, exists, err := c.config.Owners.GetIndexer().GetByKey(key.String())
	switch {
	case err != nil:
		return err
	case exists && !c.shown(owner.(O)):
		c.skip(c.config.Kind.Group, strings.ToLower(c.config.Kind.Kind)+"s")
		return controller.ErrStale
	case exists:
		if x := c.config.Expectations; x != nil && !x.Satisfied(owner.(O).GetUID()) {
			c.skip("", "pods")
		}
		err := c.config.Sync(ctx, owner.(O))
		// Sync again when the expectations time out, in case that no event meets them.
		if wait := c.config.Expectations.expiry(owner.(O).GetUID()); wait > 0 {
			c.Queue.AddAfter(key, wait)
		}
		return err
	}
	c.mu.Lock()
	delete(c.written, key)
	c.mu.Unlock()
	if c.config.OwnerGone != nil {
		return c.config.OwnerGone(ctx, key)
	}
	return nil
}

// skip counts a sync that waits until the cache shows writes of a resource.
func (c *Controller[O, D]) skip(group, resource string) {
	if c.config.Skips != nil {
		c.config.Skips.WithLabelValues(group, resource).Inc()
	}
}

// shown reports whether a cached owner is as new as the last status that was written for it.
func (c *Controller[O, D]) shown(owner O) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := cache.MetaObjectToName(owner)
	if order, err := resourceversion.CompareResourceVersion(owner.GetResourceVersion(), c.written[key]); err == nil && order < 0 {
		return false
	}
	delete(c.written, key)
	return true
}

// ownerChanged handles an event of an owner. old is nil for an addition, new is
// nil for a deletion.
func (c *Controller[O, D]) ownerChanged(old, new O) {
	var none O
	if new == none {
		if c.config.Expectations != nil {
			c.config.Expectations.Forget(old.GetUID())
		}
		new = old
	}
	c.Queue.Add(cache.MetaObjectToName(new))
}

// dependentChanged handles an event of a dependent. It enqueues the current and
// the previous owner, or the owners that may adopt the dependent.
func (c *Controller[O, D]) dependentChanged(old, new D) {
	var none D
	if old != none && new != none && old.GetResourceVersion() == new.GetResourceVersion() {
		return
	}
	x := c.config.Expectations
	before, after := c.ControllerRef(old), c.ControllerRef(new)
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

// orphaned enqueues the owners that may adopt an orphan.
func (c *Controller[O, D]) orphaned(orphan D) {
	for _, owner := range c.Adopters(orphan) {
		c.Queue.Add(cache.MetaObjectToName(owner))
	}
}

// ControllerRef returns the reference to the controlling owner of an object, or
// nil if there is none of the owners' kind. object may be nil.
func (c *Controller[O, D]) ControllerRef(object D) *metav1.OwnerReference {
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

// UpdateStatus calls set on a copy of owner and writes the copy's status. After
// a conflict, it does the same with the latest version, so set must not depend
// on the previous status. It is not an error if the owner has been deleted or
// replaced.
func (c *Controller[O, D]) UpdateStatus(ctx context.Context, owner O, set func(owner O)) error {
	client := c.config.Client(owner.GetNamespace())
	update := func(owner O) error {
		next := owner.DeepCopyObject().(O)
		set(next)
		updated, err := client.UpdateStatus(ctx, next, metav1.UpdateOptions{})
		if err == nil && c.config.ReadsStatus {
			c.mu.Lock()
			c.written[cache.MetaObjectToName(owner)] = updated.GetResourceVersion()
			c.mu.Unlock()
		}
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
	return controller.IgnoreNotFound(err)
}
