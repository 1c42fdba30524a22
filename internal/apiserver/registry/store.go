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

// update is a write to an object that is there, or may be.
type update struct {
	options     *metav1.UpdateOptions
	uid         types.UID // the object must have it, if set
	allowCreate bool      // an object that is not there is created
	// next makes the new object from the current one (nil for none); nil leaves
	// that one as it is. It is called again when the current one turns out to
	// have changed, and must then begin anew.
	next func(current *watchcache.Entry) (resource.Object, error)
	// internal changes (bindings, finalizers) skip the field manager, admission
	// and the endpoint's rules, which the caller has followed.
	internal bool
}

// GuaranteedUpdate writes what next makes of the object that the request
// names, and makes it anew from the latest state should another write come
// first; nil leaves the object as it is. uid, if given, is the object's that it must be; a dry run writes
// nothing. Field managers, admission and the endpoint's rules are for the
// caller to follow.
func (q *Request) GuaranteedUpdate(uid types.UID, dryRun []string, next func(current resource.Object) (resource.Object, error)) (*watchcache.Entry, error) {
	e, _, err := (&update{
		options:  &metav1.UpdateOptions{DryRun: dryRun},
		uid:      uid,
		internal: true,
		next:     func(current *watchcache.Entry) (resource.Object, error) { return next(current.Object) },
	}).store(q)
	return e, err
}

// store carries out a change.
func (u *update) store(q *Request) (e *watchcache.Entry, created bool, err error) {
	err = q.Endpoint.guaranteed(q.Context, "update", q.Namespace(), q.Info.Name, func(current *watchcache.Entry) (err error) {
		e, created, err = u.try(q, current)
		return err
	})
	return e, created, err
}

// try carries out a change against one state of the object.
func (u *update) try(q *Request, current *watchcache.Entry) (*watchcache.Entry, bool, error) {
	gr := q.Endpoint.GroupResource()
	if current == nil && !u.allowCreate {
		return nil, false, apierrors.NewNotFound(gr, q.Info.Name)
	}
	if u.uid != "" && (current == nil || current.Object.GetUID() != u.uid) {
		return nil, false, u.uidConflict(q, current)
	}
	obj, err := u.next(current)
	if err != nil {
		return nil, false, err
	}
	if obj == nil {
		return current, false, nil
	}
	if current == nil {
		e, err := u.create(q, obj)
		return e, err == nil, err
	}
	if err := u.checkRevision(q, obj, current); err != nil {
		return nil, false, err
	}
	dryRun := len(u.options.DryRun) > 0
	finish := nothing
	if !u.internal {
		if finish, err = u.prepare(q, obj, current, dryRun); err != nil {
			return nil, false, err
		}
	}
	stored := false
	defer func() { finish(stored) }()
	e, err := u.write(q, obj, current, dryRun)
	stored = err == nil
	return e, false, err
}

// prepare passes the new object through admission and the rules.
func (u *update) prepare(q *Request, obj resource.Object, current *watchcache.Entry, dryRun bool) (finish func(bool), err error) {
	old, r := current.Object, q.Endpoint.Resource
	g := q.Gate(admission.Update, u.options, dryRun)
	if !isScale(q.Subresource) { // a Scale was shown to admission before the object was made
		if err := g.Mutate(obj, old, q.Info.Name); err != nil {
			return nothing, err
		}
	}
	if err := q.PlaceInNamespace(obj); err != nil { // where admission may have taken it from
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
	defer func() { // after a panic, too
		if !checked {
			finish(false)
		}
	}()
	if err := u.check(q, g, rules, obj, old); err != nil {
		return nothing, err
	}
	checked = true
	return finish, nil
}

func (u *update) check(q *Request, g *Gate, rules *resource.Request, obj, old resource.Object) error {
	r := q.Endpoint.Resource
	if errs := resource.ValidateUpdate(r, q.Subresource, rules, obj, old); len(errs) > 0 {
		return q.invalid(kindOf(r, obj), obj.GetName(), errs)
	}
	if q.Subresource == nil {
		for _, w := range r.Warnings(rules, obj, old) {
			q.warn(w)
		}
	}
	if m := q.Registry.Managers; m != nil {
		m.KeepTimes(old, obj)
	}
	return g.Validate(q.admitted(obj), q.admitted(old), q.Info.Name)
}

// write stores the new object, deletes it if it was waiting only for its last
// finalizer, or does nothing if nothing changed.
func (u *update) write(q *Request, obj resource.Object, current *watchcache.Entry, dryRun bool) (*watchcache.Entry, error) {
	obj.SetResourceVersion(current.Object.GetResourceVersion())
	obj, err := q.Endpoint.stored(obj)
	if err != nil {
		return nil, err
	}
	if resource.DeletesDuringUpdate(q.Endpoint.Resource, obj, current.Object) {
		if dryRun {
			return Unstored(obj), nil
		}
		return u.remove(q, obj, current)
	}
	if resource.Same(obj, current.Object) {
		return current, nil
	}
	if dryRun {
		return Unstored(obj), nil
	}
	e, err := q.Endpoint.Kind.Update(q.Context, obj, current)
	return e, q.writeError(err, "update")
}

// remove deletes an object whose last finalizer an update took away. The
// answer is the update's.
func (u *update) remove(q *Request, obj resource.Object, current *watchcache.Entry) (*watchcache.Entry, error) {
	answer := Unstored(obj.DeepCopyObject().(resource.Object))
	_, err := q.Endpoint.Kind.Delete(q.Context, current, obj)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, q.writeError(err, "delete")
	}
	q.Endpoint.afterDelete(q.Context, answer.Object)
	return answer, nil
}

// writeError turns a lost race into errRetry.
func (q *Request) writeError(err error, verb string) error {
	if errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotFound) {
		return errRetry
	}
	return status.FromStore(err, verb, q.Endpoint.GroupResource(), q.Info.Name)
}

// checkRevision compares the revision that the client saw with the current
// one. An unconditional update is given the current one.
func (u *update) checkRevision(q *Request, obj resource.Object, current *watchcache.Entry) error {
	seen, err := status.ParseRevision(obj.GetResourceVersion())
	switch {
	case err != nil:
		return err
	case seen == current.Revision:
		return nil
	case seen != 0:
		return status.Modified(q.Endpoint.GroupResource(), q.Info.Name)
	case !q.Endpoint.Resource.AllowUnconditionalUpdate:
		return apierrors.NewInvalid(schema.GroupKind{Group: q.Endpoint.Version.Group, Kind: q.Endpoint.Resource.Plural}, q.Info.Name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "resourceVersion"), uint64(0), "must be specified for an update"),
		})
	}
	obj.SetResourceVersion(current.Object.GetResourceVersion())
	return nil
}

// create creates an object by PUT or apply. The user must be allowed
// to create.
func (u *update) create(q *Request, obj resource.Object) (*watchcache.Entry, error) {
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
	g := q.Gate(admission.Create, createOptionsOf(u.options), len(u.options.DryRun) > 0)
	if err := g.Mutate(obj, nil, obj.GetName()); err != nil {
		return nil, err
	}
	if err := q.CheckName(obj); err != nil { // which admission may have changed
		return nil, err
	}
	q.dedupOwnerReferences(obj, duplicateOwnersAdmitted)
	e, err := creation{g}.storeNamed(q, obj)
	if apierrors.IsAlreadyExists(err) {
		return nil, errRetry
	}
	return e, err
}

func (u *update) uidConflict(q *Request, current *watchcache.Entry) error {
	var actual types.UID
	if current != nil {
		actual = current.Object.GetUID()
	}
	return apierrors.NewConflict(q.Endpoint.GroupResource(), q.Info.Name, fmt.Errorf(
		"StorageError: invalid object, Code: 4, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: %s, UID in object meta: %s",
		q.Endpoint.Resource.Key(q.Namespace(), q.Info.Name), u.uid, actual))
}
