package registry

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/coracle-io/coracle/internal/apiserver/status"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// Delete deletes the object that the request names, or marks it as being
// deleted. gone says that the object is no more; otherwise e is the object
// that waits for finalizers or its grace period.
func (q *Request) Delete(options *metav1.DeleteOptions) (e *watchcache.Entry, gone bool, err error) {
	if forbid := q.Endpoint.Resource.ForbidDelete; forbid != nil {
		if why := forbid(q.Info.Name); why != "" {
			return nil, false, apierrors.NewForbidden(q.Endpoint.GroupResource(), q.Info.Name, errors.New(why))
		}
	}
	return q.deleteObject(q.Gate(admission.Delete, options, len(options.DryRun) > 0), q.Info.Name, options)
}

// DeleteAdmitted is Delete for what follows from a write that admission has
// seen, and for kinds whose deletion nothing forbids.
func (q *Request) DeleteAdmitted(options *metav1.DeleteOptions) (e *watchcache.Entry, gone bool, err error) {
	g := q.Gate(admission.Delete, options, len(options.DryRun) > 0)
	g.skip = true
	return q.deleteObject(g, q.Info.Name, options)
}

// DeleteCollection deletes the objects of entries. Those that others delete
// meanwhile count as deleted; the first other error ends it.
func (q *Request) DeleteCollection(entries []*watchcache.Entry, options *metav1.DeleteOptions) error {
	for _, e := range entries {
		g := q.Gate(admission.Delete, options, len(options.DryRun) > 0)
		g.nameless = true
		if _, _, err := q.deleteObject(g, e.Name, options); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// deleteObject deletes an object, again if it changes meanwhile.
func (q *Request) deleteObject(g *Gate, name string, options *metav1.DeleteOptions) (e *watchcache.Entry, gone bool, err error) {
	err = q.Endpoint.guaranteed(q.Context, "delete", q.Namespace(), name, func(current *watchcache.Entry) (err error) {
		if current == nil {
			return apierrors.NewNotFound(q.Endpoint.GroupResource(), name)
		}
		e, gone, err = q.tryDelete(g, current, options)
		return err
	})
	return e, gone, err
}

// tryDelete deletes one state of the object.
func (q *Request) tryDelete(g *Gate, current *watchcache.Entry, options *metav1.DeleteOptions) (*watchcache.Entry, bool, error) {
	if err := CheckPreconditions(q.Endpoint, current.Object, options); err != nil {
		return nil, false, err
	}
	if err := g.admitDeletion(current.Object, current.Name); err != nil {
		return nil, false, err
	}
	decision := resource.BeforeDelete(q.Endpoint.Resource, current.Object, options, q.Now)
	switch {
	case decision.Action == resource.LeaveAsIs:
		return current, false, nil
	case g.dryRun && decision.Object != nil:
		return Unstored(decision.Object), decision.Action == resource.DeleteNow, nil
	case g.dryRun:
		return current, true, nil
	case decision.Action == resource.MarkObject:
		e, err := q.Endpoint.Kind.Update(q.Context, decision.Object, current)
		return e, false, q.writeError(err, "delete")
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

// CheckPreconditions compares an object with what a deletion demands of it.
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
