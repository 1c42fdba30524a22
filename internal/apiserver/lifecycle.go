package apiserver

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

// lifecycle returns what takes part in the writes of this request's resource.
func (q *request) lifecycle() Lifecycle {
	if r := q.endpoint.resource; r.Group == "" && r.Plural == "services" {
		return q.server.Services
	}
	return nil
}

func nothing(bool) {}

func (q *request) beginCreate(obj resource.Object, dryRun bool) (func(bool), error) {
	if l := q.lifecycle(); l != nil {
		q.endpoint.resource.PrepareForCreate(q.rules(), obj)
		return l.BeginCreate(q.ctx, obj, dryRun)
	}
	return nothing, nil
}

func (q *request) beginUpdate(obj, old resource.Object, dryRun bool) (func(bool), error) {
	if l := q.lifecycle(); l != nil {
		q.endpoint.resource.PrepareForUpdate(q.rules(), obj, old)
		return l.BeginUpdate(q.ctx, obj, old, dryRun)
	}
	return nothing, nil
}

func (q *request) afterDelete(obj resource.Object) {
	if l := q.lifecycle(); l != nil {
		l.AfterDelete(context.WithoutCancel(q.ctx), obj)
	}
}
