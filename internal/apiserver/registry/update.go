package registry

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// Update replaces an object, or the part of it that the request's subresource
// is. decode returns the new object as the client sent it, as a hub object with
// its defaults; it is called again, for another copy, if the stored object
// changes meanwhile. created says that there was none.
func (q *Request) Update(options *metav1.UpdateOptions, decode func() (resource.Object, error)) (e *watchcache.Entry, created bool, err error) {
	obj, err := q.replacement(decode)
	if err != nil {
		return nil, false, err
	}
	uid := obj.GetUID()
	return (&update{
		options:     options,
		uid:         uid,
		allowCreate: q.Endpoint.Resource.AllowCreateOnUpdate && q.Subresource == nil,
		next: func(current *watchcache.Entry) (resource.Object, error) {
			// A retry begins with the body again: the first try has changed the object.
			next := obj
			if obj = nil; next == nil {
				var err error
				if next, err = q.replacement(decode); err != nil {
					return nil, err
				}
			}
			return next, q.manage(objectOf(current), next, options.FieldManager)
		},
	}).store(q)
}

// replacement decodes the object that is to be the new one.
func (q *Request) replacement(decode func() (resource.Object, error)) (resource.Object, error) {
	obj, err := decode()
	if err != nil {
		return nil, err
	}
	if err := q.PlaceInNamespace(obj); err != nil {
		return nil, err
	}
	if err := q.CheckName(obj); err != nil {
		return nil, err
	}
	q.dedupOwnerReferences(obj, duplicateOwners)
	return obj, nil
}

// objectOf returns an entry's object; nil for none.
func objectOf(e *watchcache.Entry) resource.Object {
	if e == nil {
		return nil
	}
	return e.Object
}

func createOptionsOf(o *metav1.UpdateOptions) *metav1.CreateOptions {
	return &metav1.CreateOptions{
		TypeMeta:        metav1.TypeMeta{Kind: "CreateOptions", APIVersion: "meta.k8s.io/v1"},
		DryRun:          o.DryRun,
		FieldManager:    o.FieldManager,
		FieldValidation: o.FieldValidation,
	}
}
