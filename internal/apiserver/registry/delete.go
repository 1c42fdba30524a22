package registry

import (
	"cmp"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/apiserver/status"
	"github.com/coracle-io/coracle/internal/compute"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/supervise"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// Delete deletes the object that the request names, or sets its deletion
// timestamp. gone reports whether the object was removed; otherwise e is the
// object that waits for finalizers or the end of its grace period.
func (q *Request) Delete(options *metav1.DeleteOptions) (e *watchcache.Entry, gone bool, err error) {
	if forbid := q.Endpoint.Resource.DeleteStrategy.ForbidDelete; forbid != nil {
		if why := forbid(q.Info.Name); why != "" {
			return nil, false, apierrors.NewForbidden(q.Endpoint.GroupResource(), q.Info.Name, errors.New(why))
		}
	}
	return newDeletion(q, options).store(q.Info.Name)
}

// DeleteAdmitted is like Delete, but calls no admission plugins and ignores
// ForbidDelete. It is for deletions that follow from a write that admission
// has seen.
func (q *Request) DeleteAdmitted(options *metav1.DeleteOptions) (e *watchcache.Entry, gone bool, err error) {
	d := newDeletion(q, options)
	d.gate.skip = true
	return d.store(q.Info.Name)
}

// unsafeDelete is the verb that DeleteUndecodable needs besides delete.
const unsafeDelete = "unsafe-delete-ignore-read-errors"

// DeleteUndecodable deletes what the store has for the object that the request
// names, if it cannot be decoded (KEP-3926). A broken value has no finalizers and
// no preconditions, and no admission plugin sees it.
func (q *Request) DeleteUndecodable(options *metav1.DeleteOptions) error {
	gr := q.Endpoint.GroupResource()
	a := q.Attributes()
	a.Verb = unsafeDelete
	decision, reason, err := q.Registry.Authorizer.Authorize(q.Context, a)
	switch {
	case decision == authorizer.DecisionAllow:
	case err != nil:
		return apierrors.NewForbidden(gr, q.Info.Name, fmt.Errorf("error while checking permission for %q, %w", unsafeDelete, err))
	default:
		return apierrors.NewForbidden(gr, q.Info.Name, fmt.Errorf("not permitted to do %q, reason: %s", unsafeDelete, reason))
	}
	err = q.Endpoint.Kind.DeleteUndecodable(q.Context, q.Namespace(), q.Info.Name, len(options.DryRun) > 0)
	if errors.Is(err, watchcache.ErrDecodable) {
		return apierrors.NewConflict(gr, q.Info.Name, err)
	}
	return status.FromStore(err, "delete", gr, q.Info.Name)
}

// deletionsAtATime is how many objects of a collection are deleted concurrently.
// Each deletion waits for the store most of the time.
const deletionsAtATime = 16

// DeleteCollection deletes the objects of entries, several at a time. Objects
// that are already gone count as deleted. After another error it begins no
// further deletions, and returns the error when those that it began have ended.
func (q *Request) DeleteCollection(entries []*watchcache.Entry, options *metav1.DeleteOptions) error {
	ctx := q.AdmissionContext()
	resume := compute.Yield(q.Context) // the deletions are small, and may wait for webhooks
	tasks, stopped := supervise.WithContext(q.Context)
	tasks.SetLimit(deletionsAtATime)
	for _, e := range entries {
		if stopped.Err() != nil {
			break
		}
		tasks.Go(func() error {
			if stopped.Err() != nil {
				return nil
			}
			d := newDeletion(q, options)
			d.gate.ctx, d.gate.nameless = ctx, true
			_, _, err := d.store(e.Name)
			if apierrors.IsNotFound(err) {
				return nil
			}
			return err
		})
	}
	err := cmp.Or(tasks.Wait(), resume(), q.Context.Err())
	if p, ok := errors.AsType[*supervise.Panic](err); ok { // handled as in a single deletion
		klog.FromContext(q.Context).Error(p, "Panic while deleting an object of a collection", "stack", string(p.Stack))
		panic(p.Value)
	}
	return err
}

// deletion deletes an object once gate admits it.
type deletion struct {
	gate    *Admitter
	options *metav1.DeleteOptions
}

func newDeletion(q *Request, options *metav1.DeleteOptions) deletion {
	return deletion{q.Admitter(admission.Delete, options, len(options.DryRun) > 0), options}
}

// store deletes the object with a name, and retries if the object changes
// between the decision and the write.
func (d deletion) store(name string) (e *watchcache.Entry, gone bool, err error) {
	q := d.gate.q
	err = q.Endpoint.guaranteed(q.Context, "delete", q.Namespace(), name, func(current *watchcache.Entry) (err error) {
		if current == nil {
			return apierrors.NewNotFound(q.Endpoint.GroupResource(), name)
		}
		e, gone, err = d.attempt(current)
		return err
	})
	return e, gone, err
}

// attempt tries the deletion against one state of the object.
func (d deletion) attempt(current *watchcache.Entry) (*watchcache.Entry, bool, error) {
	q, options := d.gate.q, d.options
	if err := CheckPreconditions(q.Endpoint, current.Object, options); err != nil {
		return nil, false, err
	}
	if err := d.gate.admitDeletion(current.Object, current.Name); err != nil {
		return nil, false, err
	}
	if !q.Registry.GarbageCollector {
		options = resource.KeepFinalizers(current.Object, options)
	}
	decision := resource.BeforeDelete(q.Endpoint.Resource, current.Object, options, q.Now)
	switch {
	case decision.Action == resource.LeaveAsIs:
		return current, false, nil
	case d.gate.dryRun && decision.Object != nil:
		return Unstored(decision.Object), decision.Action == resource.DeleteNow, nil
	case d.gate.dryRun:
		return current, true, nil
	case decision.Action == resource.MarkObject:
		e, err := q.Endpoint.Kind.Update(q.Context, decision.Object, current)
		return e, false, q.Endpoint.writeError(err, "delete", current.Name)
	}
	last, err := q.Endpoint.Kind.Delete(q.Context, current, decision.Object)
	if err != nil {
		if errors.Is(err, store.ErrConflict) {
			return nil, false, errRetry
		}
		return nil, false, status.FromStore(err, "delete", q.Endpoint.GroupResource(), current.Name)
	}
	q.Endpoint.afterDelete(q.Context, current.Object)
	return last, true, nil
}

// CheckPreconditions returns a Conflict if an object does not meet the
// preconditions of a deletion.
func CheckPreconditions(e *Endpoint, obj resource.Object, options *metav1.DeleteOptions) error {
	p := options.Preconditions
	if p == nil {
		return nil
	}
	gr := schema.GroupResource{Group: e.Version.Group, Resource: e.Resource.Kind}
	if p.UID != nil && *p.UID != obj.GetUID() {
		return apierrors.NewConflict(gr, obj.GetName(), fmt.Errorf("the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated", *p.UID, obj.GetUID()))
	}
	if p.ResourceVersion != nil && *p.ResourceVersion != obj.GetResourceVersion() {
		return apierrors.NewConflict(gr, obj.GetName(), fmt.Errorf("the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified", *p.ResourceVersion, obj.GetResourceVersion()))
	}
	return nil
}
