package registry

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// Writer writes objects for parts of the server itself: by the operations of
// requests, but without a user, so that neither authorization nor admission is
// asked. Errors are those of requests.
type Writer struct {
	// Managers tracks the ownership of fields; nil keeps what is stored.
	Managers FieldManagers
	Clock    clock.PassiveClock
}

// request is one about an object of a kind; name is "" for a new one.
func (w Writer) request(ctx context.Context, kind *watchcache.Kind, namespace, name string) *Request {
	r := kind.Resource()
	return &Request{
		Registry: &Registry{Config: Config{Managers: w.Managers, Clock: w.Clock}},
		Endpoint: &Endpoint{Resource: r, Version: r.Hub(), Kind: kind},
		Context:  ctx, Info: apirequest.RequestInfo{Namespace: namespace, Name: name}, Now: w.Clock.Now(),
	}
}

// Create stores a new object like obj, which may have been stored before.
func (w Writer) Create(ctx context.Context, kind *watchcache.Kind, obj resource.Object) error {
	q := w.request(ctx, kind, obj.GetNamespace(), "")
	obj = obj.DeepCopyObject().(resource.Object)
	obj.SetResourceVersion("")
	obj.GetObjectKind().SetGroupVersionKind(q.Endpoint.Version.WithKind(q.Endpoint.Resource.Kind))
	q.Endpoint.Version.Default(obj)
	_, err := q.Create(obj, &metav1.CreateOptions{})
	return err
}

// Update writes what next makes of an object, as Request.GuaranteedUpdate does,
// but by the rules of its kind. The ownership of fields is for next to note.
func (w Writer) Update(ctx context.Context, kind *watchcache.Kind, namespace, name string, next func(current resource.Object) (resource.Object, error)) error {
	_, _, err := (&update{
		options: &metav1.UpdateOptions{},
		next:    func(current *watchcache.Entry) (resource.Object, error) { return next(current.Object) },
	}).store(w.request(ctx, kind, namespace, name))
	return err
}

// GuaranteedUpdate is Request.GuaranteedUpdate.
func (w Writer) GuaranteedUpdate(ctx context.Context, kind *watchcache.Kind, namespace, name string, next func(current resource.Object) (resource.Object, error)) error {
	_, err := w.request(ctx, kind, namespace, name).GuaranteedUpdate("", nil, next)
	return err
}

// UpdateStatus is GuaranteedUpdate of an object's status, in which the manager
// owns what next changes.
func (w Writer) UpdateStatus(ctx context.Context, kind *watchcache.Kind, namespace, name, manager string, next func(current resource.Object) (resource.Object, error)) error {
	q := w.request(ctx, kind, namespace, name)
	q.Info.Subresource = "status"
	_, err := q.GuaranteedUpdate("", nil, func(current resource.Object) (resource.Object, error) {
		obj, err := next(current)
		if err != nil || obj == nil {
			return nil, err
		}
		return obj, q.manage(current, obj, manager)
	})
	return err
}

// Delete deletes an object, or marks it as being deleted.
func (w Writer) Delete(ctx context.Context, kind *watchcache.Kind, namespace, name string, preconditions *metav1.Preconditions) error {
	_, _, err := w.request(ctx, kind, namespace, name).DeleteAdmitted(&metav1.DeleteOptions{Preconditions: preconditions})
	return err
}
