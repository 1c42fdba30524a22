package registry

import (
	"context"

	"github.com/coracle-io/coracle/internal/resource"
)

// Lifecycle takes part in the writes of one resource, for what must be
// allocated outside the object (cluster IPs, node ports). Begin functions may
// change obj, which the resource's own rules have prepared; finish is called
// with whether the object was stored.
type Lifecycle interface {
	BeginCreate(ctx context.Context, obj resource.Object, dryRun bool) (finish func(stored bool), err error)
	BeginUpdate(ctx context.Context, obj, old resource.Object, dryRun bool) (finish func(stored bool), err error)
	AfterDelete(ctx context.Context, obj resource.Object)
}

// lifecycle returns what takes part in the writes of a resource; nil for nothing.
func (g *Registry) lifecycle(r *resource.Resource) Lifecycle {
	if r.Group == "" && r.Plural == "services" {
		return g.Services
	}
	return nil
}

func nothing(bool) {}

func (c creation) begin(q *Request, obj resource.Object, dryRun bool) (func(bool), error) {
	if l := q.Registry.lifecycle(q.Endpoint.Resource); l != nil {
		q.Endpoint.Resource.PrepareForCreate(q.rules(), obj)
		return l.BeginCreate(q.Context, obj, dryRun)
	}
	return nothing, nil
}

func (u *update) begin(q *Request, obj, old resource.Object, dryRun bool) (func(bool), error) {
	if l := q.Registry.lifecycle(q.Endpoint.Resource); l != nil {
		q.Endpoint.Resource.PrepareForUpdate(q.rules(), obj, old)
		return l.BeginUpdate(q.Context, obj, old, dryRun)
	}
	return nothing, nil
}

func (q *Request) afterDelete(obj resource.Object) {
	if l := q.Registry.lifecycle(q.Endpoint.Resource); l != nil {
		l.AfterDelete(context.WithoutCancel(q.Context), obj)
	}
}
