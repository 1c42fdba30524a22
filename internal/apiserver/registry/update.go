package registry

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"

	"github.com/coracle-io/coracle/internal/apiserver/status"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// Update replaces an object, or the part of it that the request's subresource
// covers. decode returns the client's object as a defaulted hub object. It is
// called again, for another copy, if the stored object changes before the
// write. created reports whether the object was new.
func (q *Request) Update(options *metav1.UpdateOptions, decode func() (resource.Object, error)) (e *watchcache.Entry, created bool, err error) {
	obj, err := q.replacement(decode)
	if err != nil {
		return nil, false, err
	}
	uid := obj.GetUID()
	return (&update{
		q:           q,
		options:     options,
		uid:         uid,
		allowCreate: q.Endpoint.Resource.Strategy.AllowCreateOnUpdate && q.Subresource == nil,
		next: func(current *watchcache.Entry) (resource.Object, error) {
			// A retry needs a new copy, because the first try has changed the
			// object.
			next := obj
			if obj = nil; next == nil {
				var err error
				if next, err = q.replacement(decode); err != nil {
					return nil, err
				}
			}
			live, err := q.live(current)
			if err != nil {
				return nil, err
			}
			return next, q.manage(live, next, options.FieldManager)
		},
	}).store()
}

// replacement decodes and checks the new object.
func (q *Request) replacement(decode func() (resource.Object, error)) (resource.Object, error) {
	obj, err := decode()
	if err != nil {
		return nil, err
	}
	if err := q.PlaceInNamespace(obj); err != nil {
		return nil, err
	}
	if err := q.checkName(obj); err != nil {
		return nil, err
	}
	q.dedupOwnerReferences(obj, duplicateOwners)
	return obj, nil
}

// UpdateUnchecked writes the object that next returns for the object that
// the request names. It calls next again with the latest state after a
// conflicting write. If next returns nil, the object stays as it is. uid is
// the required UID of the object, or "". A dry run writes nothing.
// UpdateUnchecked calls neither field managers nor admission nor the
// resource's rules.
func (q *Request) UpdateUnchecked(uid types.UID, dryRun []string, next func(current resource.Object) (resource.Object, error)) (*watchcache.Entry, error) {
	e, _, err := (&update{
		q:        q,
		options:  &metav1.UpdateOptions{DryRun: dryRun},
		uid:      uid,
		internal: true,
		next:     func(current *watchcache.Entry) (resource.Object, error) { return next(current.Object) },
	}).store()
	return e, err
}

// update is a write to an object that exists, or may exist.
type update struct {
	q           *Request
	options     *metav1.UpdateOptions
	uid         types.UID // required UID of the object; "" is any
	allowCreate bool      // create the object if there is none
	// next returns the new object, given the current one (nil if there is
	// none), or nil to leave the object unchanged. If the current object
	// turns out to be outdated, next is called again with the latest one, and
	// must not reuse its earlier result.
	next func(current *watchcache.Entry) (resource.Object, error)
	// internal changes (bindings, finalizers) bypass the field manager,
	// admission and the resource's rules. The caller is responsible for them.
	internal bool
}

// store runs the update, and retries it after conflicts.
func (u *update) store() (e *watchcache.Entry, created bool, err error) {
	q := u.q
	err = q.Endpoint.guaranteed(q.Context, "update", q.Namespace(), q.Info.Name, func(current *watchcache.Entry) (err error) {
		e, created, err = u.try(current)
		return err
	})
	return e, created, err
}

// try runs the update against one state of the object.
func (u *update) try(current *watchcache.Entry) (*watchcache.Entry, bool, error) {
	q := u.q
	gr := q.Endpoint.GroupResource()
	if current == nil && !u.allowCreate {
		return nil, false, apierrors.NewNotFound(gr, q.Info.Name)
	}
	if u.uid != "" && (current == nil || current.Object.GetUID() != u.uid) {
		return nil, false, u.uidConflict(current)
	}
	obj, err := u.next(current)
	if err != nil {
		return nil, false, err
	}
	if obj == nil {
		return current, false, nil
	}
	if current == nil {
		e, err := u.create(obj)
		return e, err == nil, err
	}
	if err := u.checkRevision(obj, current); err != nil {
		return nil, false, err
	}
	dryRun := len(u.options.DryRun) > 0
	finish := nothing
	if !u.internal {
		if finish, err = u.prepare(obj, current, dryRun); err != nil {
			return nil, false, err
		}
	}
	stored := false
	defer func() { finish(stored) }()
	e, err := u.write(obj, current, dryRun)
	if mayBeStored(err) {
		finish = nothing
	}
	stored = err == nil && !dryRun
	return e, false, err
}

// prepare passes the new object through admission and the resource's rules.
func (u *update) prepare(obj resource.Object, current *watchcache.Entry, dryRun bool) (finish func(bool), err error) {
	q, r := u.q, u.q.Endpoint.Resource
	old, err := q.live(current)
	if err != nil {
		return nothing, err
	}
	g := q.Admitter(admission.Update, u.options, dryRun)
	if !isScale(q.Subresource) { // admission has already seen the Scale
		if err := g.Mutate(obj, old, q.Info.Name); err != nil {
			return nothing, err
		}
	}
	if err := q.PlaceInNamespace(obj); err != nil { // admission may have moved it
		return nothing, err
	}
	q.dedupOwnerReferences(obj, duplicateOwnersAdmitted)
	rules := q.rules()
	resource.PrepareUpdate(r, q.Subresource, rules, obj, old)
	finish = nothing
	if q.Subresource == nil {
		if finish, err = q.Endpoint.begin(q.Context, obj, old, dryRun); err != nil {
			return nothing, err
		}
	}
	checked := false
	defer func() { // also after a panic
		if !checked {
			finish(false)
		}
	}()
	if err := u.check(g, rules, obj, old); err != nil {
		return nothing, err
	}
	checked = true
	return finish, nil
}

func (u *update) check(g *Admitter, rules *resource.RequestContext, obj, old resource.Object) error {
	q, r := u.q, u.q.Endpoint.Resource
	if errs := resource.ValidateUpdate(r, q.Subresource, rules, obj, old); len(errs) > 0 {
		return invalid(q.Context, kindOf(r, obj), obj.GetName(), errs)
	}
	for _, w := range resource.UpdateWarnings(r, q.Subresource, rules, obj, old) {
		q.warn(w)
	}
	if m := q.Registry.Managers; m != nil {
		m.KeepTimes(old, obj)
	}
	return g.Validate(admitted(q.Subresource, obj), admitted(q.Subresource, old), q.Info.Name)
}

// write stores the new object. It deletes the object if that was waiting only
// for its last finalizer, and does nothing if nothing changed. An object that is
// stored in an older version, or encrypted with an older key, is written in any
// case: this is how stored data is migrated.
func (u *update) write(obj resource.Object, current *watchcache.Entry, dryRun bool) (*watchcache.Entry, error) {
	q := u.q
	obj.SetResourceVersion(current.Object.GetResourceVersion())
	obj, err := q.Endpoint.stored(obj)
	if err != nil {
		return nil, err
	}
	if resource.DeletesDuringUpdate(q.Endpoint.Resource, obj, current.Object) {
		if dryRun {
			return Unstored(obj), nil
		}
		return u.remove(obj, current)
	}
	if resource.Same(obj, current.Object) {
		if dryRun {
			return current, nil
		}
		// The store is asked also because the cached object may be outdated.
		if stored, err := q.Endpoint.Kind.IsStored(q.Context, obj, current); err != nil || stored {
			return current, q.Endpoint.writeError(err, "update", q.Info.Name)
		}
	}
	if dryRun {
		return Unstored(obj), nil
	}
	e, err := q.Endpoint.Kind.Update(q.Context, obj, current)
	return e, q.Endpoint.writeError(err, "update", q.Info.Name)
}

// remove deletes an object whose last finalizer the update removed. It
// returns the entry that answers the update.
func (u *update) remove(obj resource.Object, current *watchcache.Entry) (*watchcache.Entry, error) {
	q := u.q
	answer := Unstored(obj.DeepCopyObject().(resource.Object))
	_, err := q.Endpoint.Kind.Delete(q.Context, current, obj)
	switch {
	case err == nil:
		q.Endpoint.afterDelete(q.Context, answer.Object)
	case !errors.Is(err, store.ErrNotFound): // another request has deleted it
		return nil, q.Endpoint.writeError(err, "delete", q.Info.Name)
	}
	return answer, nil
}

// checkRevision compares the client's resourceVersion with the current one.
// It sets the current one on an object of an unconditional update.
func (u *update) checkRevision(obj resource.Object, current *watchcache.Entry) error {
	q := u.q
	seen, err := status.ParseRevision(obj.GetResourceVersion())
	switch {
	case err != nil:
		return err
	case seen == current.Revision:
		return nil
	case seen != 0:
		return status.Modified(q.Endpoint.GroupResource(), q.Info.Name)
	case !q.Endpoint.Resource.Strategy.AllowsUnconditionalUpdate(q.Endpoint.Version.Version):
		return apierrors.NewInvalid(schema.GroupKind{Group: q.Endpoint.Version.Group, Kind: q.Endpoint.Resource.Plural}, q.Info.Name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "resourceVersion"), uint64(0), "must be specified for an update"),
		})
	}
	obj.SetResourceVersion(current.Object.GetResourceVersion())
	return nil
}

// create creates an object for a PUT or an apply. The user needs the
// permission to create.
func (u *update) create(obj resource.Object) (*watchcache.Entry, error) {
	q := u.q
	a := q.Attributes()
	a.Verb = "create"
	if err := q.Authorize(a); err != nil {
		return nil, err
	}
	if err := q.Endpoint.mayCreate(obj); err != nil {
		return nil, err
	}
	wipeObjectMetaSystemFields(obj)
	obj.SetResourceVersion("")
	g := q.Admitter(admission.Create, createOptionsOf(u.options), len(u.options.DryRun) > 0)
	if err := g.Mutate(obj, nil, obj.GetName()); err != nil {
		return nil, err
	}
	if err := q.checkName(obj); err != nil { // admission may have changed it
		return nil, err
	}
	q.dedupOwnerReferences(obj, duplicateOwnersAdmitted)
	e, err := creation{g}.storeNamed(obj)
	if apierrors.IsAlreadyExists(err) {
		return nil, errRetry
	}
	return e, err
}

func (u *update) uidConflict(current *watchcache.Entry) error {
	q := u.q
	var actual types.UID
	if current != nil {
		actual = current.Object.GetUID()
	}
	return apierrors.NewConflict(q.Endpoint.GroupResource(), q.Info.Name, fmt.Errorf(
		"StorageError: invalid object, Code: 4, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: %s, UID in object meta: %s",
		q.Endpoint.Resource.Key(q.Namespace(), q.Info.Name), u.uid, actual))
}

// live returns the object that a write changes, a custom resource in the version of the
// request; nil for a nil entry. It is shared.
func (q *Request) live(current *watchcache.Entry) (resource.Object, error) {
	if current == nil {
		return nil, nil
	}
	return current.Shown(q.Endpoint.Version)
}

func createOptionsOf(o *metav1.UpdateOptions) *metav1.CreateOptions {
	return &metav1.CreateOptions{
		TypeMeta:        metav1.TypeMeta{Kind: "CreateOptions", APIVersion: "meta.k8s.io/v1"},
		DryRun:          o.DryRun,
		FieldManager:    o.FieldManager,
		FieldValidation: o.FieldValidation,
	}
}
