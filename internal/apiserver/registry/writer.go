package registry

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// Writer writes objects for parts of the server itself. It uses the
// operations of requests, but without a user, authorization and admission. It
// returns the errors of requests.
type Writer struct {
	// Managers tracks the ownership of fields; nil keeps what is stored.
	Managers FieldManagers
	Clock    clock.PassiveClock
}

// request returns a request for an object of a kind. name is "" for a new
// object.
func (w Writer) request(ctx context.Context, kind *watchcache.Kind, namespace, name string) *Request {
	r := kind.Resource()
	return &Request{
		Registry: &Registry{Config: Config{Managers: w.Managers, Clock: w.Clock, AllowPrivileged: true, GarbageCollector: true}},
		Endpoint: &Endpoint{Resource: r, Version: r.Hub(), Kind: kind},
		Context:  ctx, Info: apirequest.RequestInfo{Namespace: namespace, Name: name}, Now: w.Clock.Now(),
	}
}

// Create stores a new object that is a copy of obj. obj may have been stored
// before.
func (w Writer) Create(ctx context.Context, kind *watchcache.Kind, obj resource.Object) error {
	q := w.request(ctx, kind, obj.GetNamespace(), "")
	obj = obj.DeepCopyObject().(resource.Object)
	obj.SetResourceVersion("")
	obj.GetObjectKind().SetGroupVersionKind(q.Endpoint.Version.WithKind(q.Endpoint.Resource.Kind))
	q.Endpoint.Version.Default(obj)
	_, err := q.Create(obj, &metav1.CreateOptions{})
	return err
}

// Update is like Request.UpdateUnchecked, but follows the rules of the kind.
// next is responsible for the ownership of fields.
func (w Writer) Update(ctx context.Context, kind *watchcache.Kind, namespace, name string, next func(current resource.Object) (resource.Object, error)) error {
	_, _, err := (&update{
		q:       w.request(ctx, kind, namespace, name),
		options: &metav1.UpdateOptions{},
		next:    func(current *watchcache.Entry) (resource.Object, error) { return next(current.Object) },
	}).store()
	return err
}

// UpdateUnchecked calls Request.UpdateUnchecked.
func (w Writer) UpdateUnchecked(ctx context.Context, kind *watchcache.Kind, namespace, name string, next func(current resource.Object) (resource.Object, error)) error {
	_, err := w.request(ctx, kind, namespace, name).UpdateUnchecked("", nil, next)
	return err
}

// UpdateStatus is like UpdateUnchecked for the status of an object. The
// manager owns the fields that next changes.
func (w Writer) UpdateStatus(ctx context.Context, kind *watchcache.Kind, namespace, name, manager string, next func(current resource.Object) (resource.Object, error)) error {
	q := w.request(ctx, kind, namespace, name)
	q.Info.Subresource = "status"
	_, err := q.UpdateUnchecked("", nil, func(current resource.Object) (resource.Object, error) {
		obj, err := next(current)
		if err != nil || obj == nil {
			return nil, err
		}
		return obj, q.manage(current, obj, manager)
	})
	return err
}

// Delete deletes an object, or sets its deletion timestamp.
func (w Writer) Delete(ctx context.Context, kind *watchcache.Kind, namespace, name string, preconditions *metav1.Preconditions) error {
	_, _, err := w.request(ctx, kind, namespace, name).DeleteAdmitted(&metav1.DeleteOptions{Preconditions: preconditions})
	return err
}
