package apiserver

import (
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// update replaces an object, or one part of it if the request names a subresource.
func (q *request) update() error {
	o, err := q.negotiate()
	if err != nil {
		return err
	}
	in, err := q.input()
	if err != nil {
		return err
	}
	options, err := updateOptions(q.query())
	if err != nil {
		return err
	}
	decode := func() (resource.Object, error) {
		obj, err := q.decode(in, options.FieldValidation)
		if err != nil {
			return nil, err
		}
		if err := q.placeInNamespace(obj); err != nil {
			return nil, err
		}
		if err := q.checkName(obj); err != nil {
			return nil, err
		}
		q.dropDuplicateOwners(obj, duplicateOwners)
		return obj, nil
	}
	obj, err := decode()
	if err != nil {
		return err
	}
	uid := obj.GetUID()
	change := &change{
		options:     options,
		uid:         uid,
		allowCreate: q.endpoint.resource.AllowCreateOnUpdate && q.sub == nil,
		next: func(current *watchcache.Entry) (resource.Object, error) {
			// A retry begins with the body again: the first try has changed the object.
			next := obj
			if obj = nil; next == nil {
				var err error
				if next, err = decode(); err != nil {
					return nil, err
				}
			}
			return next, q.manage(objectOf(current), next, options.FieldManager)
		},
	}
	e, created, err := q.store(change)
	if err != nil {
		return err
	}
	return q.sendEntry(createdOr(created, http.StatusOK), e, o)
}

// objectOf returns an entry's object; nil for none.
func objectOf(e *watchcache.Entry) resource.Object {
	if e == nil {
		return nil
	}
	return e.Object
}

func createdOr(created bool, code int) int {
	if created {
		return http.StatusCreated
	}
	return code
}

func createOptionsOf(o *metav1.UpdateOptions) *metav1.CreateOptions {
	return &metav1.CreateOptions{
		TypeMeta:        metav1.TypeMeta{Kind: "CreateOptions", APIVersion: "meta.k8s.io/v1"},
		DryRun:          o.DryRun,
		FieldManager:    o.FieldManager,
		FieldValidation: o.FieldValidation,
	}
}
