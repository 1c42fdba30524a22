// Package own decides and writes which objects a controller owns, by the
// controllerRef rules of the API: an object has at most one owner reference
// with controller=true; a controller adopts what matches its selector and has
// none, and releases what it owns and does not match any longer.
package own

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// ByController is the name of the index by the UID of the controlling owner.
// Objects without one are found under Orphans of their namespace.
const ByController = "controllerUID"

// Orphans is the key of the index ByController under which a namespace's
// objects without a controlling owner are found.
func Orphans(namespace string) string { return "orphan/" + namespace }

// ControllerKeys is the index function of ByController.
func ControllerKeys(o any) ([]string, error) {
	object, ok := o.(metav1.Object)
	if !ok {
		return nil, fmt.Errorf("cannot index a %T by its controller", o)
	}
	if ref := metav1.GetControllerOfNoCopy(object); ref != nil {
		return []string{string(ref.UID)}, nil
	}
	return []string{Orphans(object.GetNamespace())}, nil
}

// Candidates returns what owner owns and what nobody in its namespace owns,
// from an indexer with the index ByController. All objects in it are a T.
func Candidates[T metav1.Object](indexer cache.Indexer, owner metav1.Object) ([]T, error) {
	var candidates []T
	for _, key := range []string{string(owner.GetUID()), Orphans(owner.GetNamespace())} {
		objects, err := indexer.ByIndex(ByController, key)
		if err != nil {
			return nil, err
		}
		for _, o := range objects {
			candidates = append(candidates, o.(T))
		}
	}
	return candidates, nil
}

// Verdict is what a controller does about its claim to one object.
type Verdict int

const (
	// Ignore: it is none of the controller's business.
	Ignore Verdict = iota
	// Keep: the controller owns it.
	Keep
	// Adopt: the controller should become its owner.
	Adopt
	// Release: the controller owns it and should not any longer.
	Release
)

// Judge says what owner does about object. matches is whether the object
// matches owner's selector.
func Judge(owner, object metav1.Object, matches bool) Verdict {
	ref := metav1.GetControllerOfNoCopy(object)
	switch {
	case ref != nil && ref.UID != owner.GetUID():
		return Ignore
	case ref != nil && matches:
		return Keep
	case owner.GetDeletionTimestamp() != nil:
		return Ignore
	case ref != nil:
		return Release
	case !matches, object.GetDeletionTimestamp() != nil, object.GetNamespace() != owner.GetNamespace():
		return Ignore
	}
	return Adopt
}

// Claim is one controller's claim to objects of one kind.
type Claim[T metav1.Object] struct {
	Owner    metav1.Object
	Kind     schema.GroupVersionKind
	Selector labels.Selector
	// Matches narrows the selector further; nil is no further rule.
	Matches func(T) bool
	// Patch sends a strategic merge patch for an object of the kind claimed.
	Patch func(ctx context.Context, object T, patch []byte) error
	// Fresh reads the owner from the API server, for the check that it is
	// still there before it adopts anything.
	Fresh func(ctx context.Context) (metav1.Object, error)
	// Finalizers are added to what is adopted.
	Finalizers []string
}

// Objects adopts and releases as needed and returns the objects that the
// owner owns afterwards. Objects that vanished meanwhile are left out. With
// an error, the objects that it does return are owned nonetheless.
func (c *Claim[T]) Objects(ctx context.Context, candidates []T) ([]T, error) {
	var owned []T
	var errs []error
	checked := false
	for _, o := range candidates {
		matches := c.Selector.Matches(labels.Set(o.GetLabels())) && (c.Matches == nil || c.Matches(o))
		switch Judge(c.Owner, o, matches) {
		case Keep:
			owned = append(owned, o)
		case Release:
			if err := c.Patch(ctx, o, releasePatch(c.Owner, o)); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsInvalid(err) {
				errs = append(errs, err)
			}
		case Adopt:
			if !checked {
				if err := c.mayAdopt(ctx); err != nil {
					errs = append(errs, fmt.Errorf("can't adopt %s/%s: %w", o.GetNamespace(), o.GetName(), err))
					return owned, errors.Join(errs...)
				}
				checked = true
			}
			switch err := c.Patch(ctx, o, c.adoptPatch(o)); {
			case err == nil:
				owned = append(owned, o)
			case !apierrors.IsNotFound(err):
				errs = append(errs, err)
			}
		}
	}
	return owned, errors.Join(errs...)
}

// mayAdopt makes sure, at the API server, that the owner is still the same
// object and is not being deleted.
func (c *Claim[T]) mayAdopt(ctx context.Context) error {
	fresh, err := c.Fresh(ctx)
	if err != nil {
		return err
	}
	if fresh.GetUID() != c.Owner.GetUID() {
		return fmt.Errorf("original %s %s/%s is gone: got uid %s, wanted %s",
			c.Kind.Kind, c.Owner.GetNamespace(), c.Owner.GetName(), fresh.GetUID(), c.Owner.GetUID())
	}
	if t := fresh.GetDeletionTimestamp(); t != nil {
		return fmt.Errorf("%s/%s has just been deleted at %v", c.Owner.GetNamespace(), c.Owner.GetName(), t)
	}
	return nil
}

func (c *Claim[T]) adoptPatch(o metav1.Object) []byte {
	metadata := map[string]any{
		"ownerReferences": []metav1.OwnerReference{*metav1.NewControllerRef(c.Owner, c.Kind)},
		"uid":             o.GetUID(),
	}
	if len(c.Finalizers) > 0 {
		metadata["finalizers"] = c.Finalizers
	}
	return encode(metadata)
}

func releasePatch(owner, o metav1.Object) []byte {
	return encode(map[string]any{
		"ownerReferences": []map[string]any{{"$patch": "delete", "uid": owner.GetUID()}},
		"uid":             o.GetUID(),
	})
}

func encode(metadata map[string]any) []byte {
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		panic(err) // maps of strings always encode
	}
	return patch
}
