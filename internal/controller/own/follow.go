package own

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// Ledger is told what the informer shows of the writes that a controller
// waits for.
type Ledger interface {
	ObserveCreation(owner types.UID)
	ObserveDeletion(owner, object types.UID)
}

// Follower tells a controller which of its objects a change to something that
// they own, or might own, concerns.
type Follower[T interface {
	comparable
	metav1.Object
}] struct {
	// Kind is the owners' kind.
	Kind schema.GroupVersionKind
	// Wake queues an owner.
	Wake func(owner cache.ObjectName)
	// Orphaned queues those who may adopt an object that nobody controls.
	Orphaned func(object T)
	// Ledger may be nil.
	Ledger Ledger
}

// Changed takes an informer's event: old is nil for what was added, new for
// what was deleted.
func (f *Follower[T]) Changed(old, new T) {
	var none T
	if old != none && new != none && old.GetResourceVersion() == new.GetResourceVersion() {
		return
	}
	before, after := f.owner(old), f.owner(new)
	if before != nil && (after == nil || after.UID != before.UID) {
		if new == none && f.Ledger != nil {
			f.Ledger.ObserveDeletion(before.UID, old.GetUID())
		}
		f.Wake(cache.ObjectName{Namespace: old.GetNamespace(), Name: before.Name})
	}
	switch {
	case new == none:
	case after != nil:
		if f.Ledger != nil && old == none {
			f.Ledger.ObserveCreation(after.UID)
		}
		if f.Ledger != nil && new.GetDeletionTimestamp() != nil {
			f.Ledger.ObserveDeletion(after.UID, new.GetUID())
		}
		f.Wake(cache.ObjectName{Namespace: new.GetNamespace(), Name: after.Name})
	case metav1.GetControllerOfNoCopy(new) == nil:
		if old == none || metav1.GetControllerOfNoCopy(old) != nil || !labels.Equals(old.GetLabels(), new.GetLabels()) {
			f.Orphaned(new)
		}
	}
}

// owner returns the reference to an object's controlling owner if that is of
// the followed kind.
func (f *Follower[T]) owner(object T) *metav1.OwnerReference {
	var none T
	if object == none {
		return nil
	}
	ref := metav1.GetControllerOfNoCopy(object)
	if ref == nil || ref.Kind != f.Kind.Kind {
		return nil
	}
	if gv, err := schema.ParseGroupVersion(ref.APIVersion); err != nil || gv.Group != f.Kind.Group {
		return nil
	}
	return ref
}

// Selects reports whether a workload's selector matches an object. An empty
// selector and one that does not parse select nothing.
func Selects(selector *metav1.LabelSelector, object metav1.Object) bool {
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && !s.Empty() && s.Matches(labels.Set(object.GetLabels()))
}
