package resourcetest

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
)

// BeforeCreate prepares obj for storage, or returns the reasons why it cannot
// be created. The caller has defaulted and converted obj, run admission, and
// set its name, namespace, uid and creationTimestamp.
func BeforeCreate(r *resource.Resource, req *resource.RequestContext, obj resource.Object) field.ErrorList {
	r.Strategy.PrepareForCreate(req, obj)
	return resource.ValidateCreate(r, req, obj)
}

// BeforeUpdate prepares obj to replace old, or returns the reasons why it
// cannot. The caller has defaulted and converted obj and run admission. obj
// has old's name, namespace and managed fields.
func BeforeUpdate(r *resource.Resource, req *resource.RequestContext, obj, old resource.Object) field.ErrorList {
	return BeforeSubresourceUpdate(r, nil, req, obj, old)
}

// BeforeSubresourceUpdate is BeforeUpdate for a write to a subresource. If s
// is nil or has no PrepareForUpdate, the rules of the object itself apply.
func BeforeSubresourceUpdate(r *resource.Resource, s *resource.Subresource, req *resource.RequestContext, obj, old resource.Object) field.ErrorList {
	resource.PrepareUpdate(r, s, req, obj, old)
	return resource.ValidateUpdate(r, s, req, obj, old)
}
