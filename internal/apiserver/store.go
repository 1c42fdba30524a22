package apiserver

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"

	"github.com/coracle-io/coracle/internal/apiserver/faults"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// change is a write to an object that is there, or may be.
type change struct {
	options     *metav1.UpdateOptions
	uid         types.UID // the object must have it, if set
	allowCreate bool      // an object that is not there is created
	// next makes the new object from the current one (nil for none). It is
	// called again when the current one turns out to have changed, and must
	// then begin anew.
	next func(current *watchcache.Entry) (resource.Object, error)
	// internal changes (bindings, finalizers) skip the field manager, admission
	// and the endpoint's rules, which the caller has followed.
	internal bool
}

// errRetry says that an object changed under a write.
var errRetry = errors.New("the object changed during the write")

// store carries out a change:
//
//	cached object ─► next ─► rules, admission ─► write if unchanged
//	      ▲                                         │ conflict, or any refusal
//	      └──── read from the store ◄───────────────┘ of a cached object
//
// The cached object may be old. A refusal that is based on it counts only if
// the store holds the same.
func (q *request) store(c *change) (e *watchcache.Entry, created bool, err error) {
	kind := q.endpoint.kind
	current, cached := kind.Get(q.namespace(), q.info.Name)
	if !cached {
		current = nil
	}
	fresh := false
	for {
		e, created, err = q.try(c, current)
		if err == nil || outcomeUnknown(err) || fresh && !errors.Is(err, errRetry) {
			return e, created, err
		}
		if ctxErr := q.ctx.Err(); ctxErr != nil {
			return nil, false, ctxErr
		}
		latest, readErr := kind.Read(q.ctx, q.namespace(), q.info.Name)
		switch {
		case errors.Is(readErr, store.ErrNotFound):
			latest = nil
		case readErr != nil:
			return nil, false, storeError(readErr, "update", q.endpoint.groupResource(), q.info.Name)
		}
		if !errors.Is(err, errRetry) && sameEntry(latest, current) {
			return nil, false, err
		}
		current, fresh = latest, true
	}
}

// outcomeUnknown says that a write may have happened. It must not be tried
// again: the second attempt would meet the first one's result and refuse what
// was done.
func outcomeUnknown(err error) bool { return apierrors.IsServerTimeout(err) }

func sameEntry(a, b *watchcache.Entry) bool {
	return a == b || a != nil && b != nil && a.Revision == b.Revision
}

// try carries out a change against one state of the object.
func (q *request) try(c *change, current *watchcache.Entry) (*watchcache.Entry, bool, error) {
	gr := q.endpoint.groupResource()
	if current == nil && !c.allowCreate {
		return nil, false, apierrors.NewNotFound(gr, q.info.Name)
	}
	if c.uid != "" && (current == nil || current.Object.GetUID() != c.uid) {
		return nil, false, q.uidConflict(c.uid, current)
	}
	obj, err := c.next(current)
	if err != nil {
		return nil, false, err
	}
	if current == nil {
		e, err := q.createByUpdate(c, obj)
		return e, err == nil, err
	}
	if err := q.checkRevision(obj, current); err != nil {
		return nil, false, err
	}
	dryRun := len(c.options.DryRun) > 0
	finish := nothing
	if !c.internal {
		if finish, err = q.prepareUpdate(c, obj, current, dryRun); err != nil {
			return nil, false, err
		}
	}
	stored := false
	defer func() { finish(stored) }()
	e, err := q.write(obj, current, dryRun)
	stored = err == nil
	return e, false, err
}

// prepareUpdate passes the new object through admission and the rules.
func (q *request) prepareUpdate(c *change, obj resource.Object, current *watchcache.Entry, dryRun bool) (finish func(bool), err error) {
	old, r := current.Object, q.endpoint.resource
	g := q.gate(admission.Update, c.options, dryRun)
	if !q.scales() { // a Scale was shown to admission before the object was made
		if err := g.mutate(obj, old, q.info.Name); err != nil {
			return nothing, err
		}
	}
	if err := q.placeInNamespace(obj); err != nil { // where admission may have taken it from
		return nothing, err
	}
	q.dropDuplicateOwners(obj, duplicateOwnersAdmitted)
	if q.sub == nil {
		if finish, err = q.beginUpdate(obj, old, dryRun); err != nil {
			return nothing, err
		}
	} else {
		finish = nothing
	}
	checked := false
	defer func() { // after a panic, too
		if !checked {
			finish(false)
		}
	}()
	if err := q.checkUpdate(g, r, obj, old); err != nil {
		return nothing, err
	}
	checked = true
	return finish, nil
}

func (q *request) checkUpdate(g *gate, r *resource.Resource, obj, old resource.Object) error {
	rules := q.rules()
	var errs field.ErrorList
	if q.sub != nil && q.sub.PrepareForUpdate != nil {
		errs = resource.BeforeSubresourceUpdate(r, q.sub, rules, obj, old)
	} else {
		errs = resource.BeforeUpdate(r, rules, obj, old)
	}
	if len(errs) > 0 {
		return faults.Invalid(kindOf(r, obj), obj.GetName(), errs)
	}
	if q.sub == nil {
		for _, w := range r.Warnings(rules, obj, old) {
			q.warnings.AddWarning("", w)
		}
	}
	if m := q.server.Managers; m != nil {
		m.KeepTimes(old, obj)
	}
	return g.validate(q.admitted(obj), q.admitted(old), q.info.Name)
}

// write stores the new object, deletes it if it was waiting only for its last
// finalizer, or does nothing if nothing changed.
func (q *request) write(obj resource.Object, current *watchcache.Entry, dryRun bool) (*watchcache.Entry, error) {
	obj.SetResourceVersion(current.Object.GetResourceVersion())
	obj, err := q.stored(obj)
	if err != nil {
		return nil, err
	}
	if finalized(obj, current.Object) {
		if dryRun {
			return unstored(obj), nil
		}
		return q.remove(obj, current)
	}
	if resource.Same(obj, current.Object) {
		return current, nil
	}
	if dryRun {
		return unstored(obj), nil
	}
	e, err := q.endpoint.kind.Update(q.ctx, obj, current)
	return e, q.writeError(err, "update")
}

// remove deletes an object whose last finalizer an update took away. The
// answer is the update's.
func (q *request) remove(obj resource.Object, current *watchcache.Entry) (*watchcache.Entry, error) {
	answer := unstored(obj.DeepCopyObject().(resource.Object))
	_, err := q.endpoint.kind.Delete(q.ctx, current, obj)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, q.writeError(err, "delete")
	}
	q.afterDelete(answer.Object)
	return answer, nil
}

// writeError turns a lost race into errRetry.
func (q *request) writeError(err error, verb string) error {
	if errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotFound) {
		return errRetry
	}
	return storeError(err, verb, q.endpoint.groupResource(), q.info.Name)
}

// checkRevision compares the revision that the client saw with the current
// one. An unconditional update is given the current one.
func (q *request) checkRevision(obj resource.Object, current *watchcache.Entry) error {
	seen, err := parseRevision(obj.GetResourceVersion())
	switch {
	case err != nil:
		return err
	case seen == current.Revision:
		return nil
	case seen != 0:
		return errModified(q.endpoint.groupResource(), q.info.Name)
	case !q.endpoint.resource.AllowUnconditionalUpdate:
		return apierrors.NewInvalid(schema.GroupKind{Group: q.endpoint.version.Group, Kind: q.endpoint.resource.Plural}, q.info.Name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "resourceVersion"), uint64(0), "must be specified for an update"),
		})
	}
	obj.SetResourceVersion(current.Object.GetResourceVersion())
	return nil
}

// createByUpdate creates an object by PUT or apply. The user must be allowed
// to create.
func (q *request) createByUpdate(c *change, obj resource.Object) (*watchcache.Entry, error) {
	a := q.attributes()
	a.Verb = "create"
	if err := q.allowed(a); err != nil {
		return nil, err
	}
	if err := q.mayCreate(obj); err != nil {
		return nil, err
	}
	wipeSystemMetadata(obj)
	obj.SetResourceVersion("")
	g := q.gate(admission.Create, createOptionsOf(c.options), len(c.options.DryRun) > 0)
	if err := g.mutate(obj, nil, obj.GetName()); err != nil {
		return nil, err
	}
	if err := q.checkName(obj); err != nil { // which admission may have changed
		return nil, err
	}
	q.dropDuplicateOwners(obj, duplicateOwnersAdmitted)
	e, err := q.storeNamed(g, obj)
	if apierrors.IsAlreadyExists(err) {
		return nil, errRetry
	}
	return e, err
}

func (q *request) uidConflict(wanted types.UID, current *watchcache.Entry) error {
	var actual types.UID
	if current != nil {
		actual = current.Object.GetUID()
	}
	return apierrors.NewConflict(q.endpoint.groupResource(), q.info.Name, fmt.Errorf(
		"StorageError: invalid object, Code: 4, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: %s, UID in object meta: %s",
		q.endpoint.resource.Key(q.namespace(), q.info.Name), wanted, actual))
}
