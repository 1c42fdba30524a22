package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/podquery"
)

// byController is the name of the index by the UID of the controlling owner.
// Orphans are indexed by orphansKey of their namespace.
const byController = "controllerUID"

func orphansKey(namespace string) string { return "orphan/" + namespace }

// IndexByController adds the index that Controlled needs to an informer.
func IndexByController(env *controller.Env, informer cache.SharedIndexInformer) error {
	return env.Index(informer, byController, func(o any) ([]string, error) {
		object, ok := o.(metav1.Object)
		if !ok {
			return nil, fmt.Errorf("cannot index a %T by its controller", o)
		}
		if ref := metav1.GetControllerOfNoCopy(object); ref != nil {
			return []string{string(ref.UID)}, nil
		}
		return []string{orphansKey(object.GetNamespace())}, nil
	})
}

// Controlled returns the objects of an informer that are controlled by the
// owner with a UID. The informer must have been passed to IndexByController.
func Controlled[D metav1.Object](informer cache.SharedIndexInformer, owner types.UID) ([]D, error) {
	return indexed[D](informer, string(owner))
}

// Orphans returns the objects of an informer in a namespace that have no
// controlling owner. The informer must have been passed to IndexByController.
func Orphans[D metav1.Object](informer cache.SharedIndexInformer, namespace string) ([]D, error) {
	return indexed[D](informer, orphansKey(namespace))
}

func indexed[D metav1.Object](informer cache.SharedIndexInformer, key string) ([]D, error) {
	objects, err := informer.GetIndexer().ByIndex(byController, key)
	if err != nil {
		return nil, err
	}
	found := make([]D, len(objects))
	for i, o := range objects {
		found[i] = o.(D)
	}
	return found, nil
}

// Adopters returns the owners that may adopt an orphan, which are those that
// match it and are not being deleted.
func (c *Controller[O, D]) Adopters(orphan D) []O {
	if c.config.Selector == nil {
		return nil
	}
	var adopters []O
	_ = cache.ListAllByNamespace(c.config.Owners.GetIndexer(), orphan.GetNamespace(), labels.Everything(), func(o any) {
		owner := o.(O)
		selector := c.config.Selector(owner)
		isEmpty := selector != nil && len(selector.MatchLabels)+len(selector.MatchExpressions) == 0
		if owner.GetDeletionTimestamp() == nil && !isEmpty && podquery.Selects(selector, orphan.GetLabels()) && c.accepts(owner, orphan) {
			adopters = append(adopters, owner)
		}
	})
	return adopters
}

func (c *Controller[O, D]) matches(owner O, selector labels.Selector, dependent D) bool {
	return selector.Matches(labels.Set(dependent.GetLabels())) && c.accepts(owner, dependent)
}

// accepts reports whether a dependent that the selector of an owner matches is one that it
// selects.
func (c *Controller[O, D]) accepts(owner O, dependent D) bool {
	return c.config.Matches == nil || c.config.Matches(owner, dependent)
}

// claimAction is an owner's decision about an object.
type claimAction int

const (
	ignore claimAction = iota
	keep
	adopt
	release
)

// claimActionFor applies the controllerRef rules of the API. An object has at
// most one controlling owner. An owner adopts orphans that it matches, and
// releases objects that it controls but no longer matches.
func claimActionFor(owner, object metav1.Object, matches bool) claimAction {
	ref := metav1.GetControllerOfNoCopy(object)
	switch {
	case ref != nil && ref.UID != owner.GetUID():
		return ignore
	case ref != nil && matches:
		return keep
	case owner.GetDeletionTimestamp() != nil:
		return ignore
	case ref != nil:
		return release
	case !matches, object.GetDeletionTimestamp() != nil, object.GetNamespace() != owner.GetNamespace():
		return ignore
	}
	return adopt
}

// Claim adopts and releases dependents (upstream's ControllerRefManager) and
// returns those that the owner controls afterwards. Before the first adoption
// it calls CanAdopt. Dependents that no longer exist are skipped. The returned
// dependents are valid even if there is an error.
func (c *Controller[O, D]) Claim(ctx context.Context, owner O) ([]D, error) {
	selector, err := metav1.LabelSelectorAsSelector(c.config.Selector(owner))
	if err != nil {
		return nil, fmt.Errorf("selector of %s %s/%s: %w", c.config.Kind.Kind, owner.GetNamespace(), owner.GetName(), err)
	}
	var candidates []D
	for _, key := range []string{string(owner.GetUID()), orphansKey(owner.GetNamespace())} {
		found, err := indexed[D](c.config.Dependents, key)
		if err != nil {
			return nil, err
		}
		candidates = append(candidates, found...)
	}
	var claimed []D
	var errs []error
	checked := false
	for _, d := range candidates {
		switch claimActionFor(owner, d, c.matches(owner, selector, d)) {
		case keep:
			claimed = append(claimed, d)
		case release:
			if err := c.config.Patch(ctx, d, releasePatch(owner, d)); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsInvalid(err) {
				errs = append(errs, err)
			}
		case adopt:
			if !checked {
				if err := c.CanAdopt(ctx, owner); err != nil {
					errs = append(errs, fmt.Errorf("can't adopt %s/%s: %w", d.GetNamespace(), d.GetName(), err))
					return claimed, errors.Join(errs...)
				}
				checked = true
			}
			switch err := c.config.Patch(ctx, d, c.adoptPatch(owner, d)); {
			case err == nil:
				claimed = append(claimed, d)
			case !apierrors.IsNotFound(err):
				errs = append(errs, err)
			}
		}
	}
	return claimed, errors.Join(errs...)
}

// CanAdopt reads the owner from the API server. It returns an error if the owner
// has been replaced or is being deleted, and so must not adopt objects.
func (c *Controller[O, D]) CanAdopt(ctx context.Context, owner O) error {
	fresh, err := c.config.Client(owner.GetNamespace()).Get(ctx, owner.GetName(), metav1.GetOptions{})
	if err != nil {
		return err
	}
	if fresh.GetUID() != owner.GetUID() {
		return fmt.Errorf("original %s %s/%s is gone: got uid %s, wanted %s",
			c.config.Kind.Kind, owner.GetNamespace(), owner.GetName(), fresh.GetUID(), owner.GetUID())
	}
	if t := fresh.GetDeletionTimestamp(); t != nil {
		return fmt.Errorf("%s/%s has just been deleted at %v", owner.GetNamespace(), owner.GetName(), t)
	}
	return nil
}

func (c *Controller[O, D]) adoptPatch(owner O, d D) []byte {
	metadata := map[string]any{
		"ownerReferences": []metav1.OwnerReference{*metav1.NewControllerRef(owner, c.config.Kind)},
		"uid":             d.GetUID(),
	}
	if len(c.config.Finalizers) > 0 {
		metadata["finalizers"] = c.config.Finalizers
	}
	return encode(metadata)
}

func releasePatch(owner, d metav1.Object) []byte {
	return encode(map[string]any{
		"ownerReferences": []map[string]any{{"$patch": "delete", "uid": owner.GetUID()}},
		"uid":             d.GetUID(),
	})
}

func encode(metadata map[string]any) []byte {
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		panic(err) // maps of strings always encode
	}
	return patch
}
