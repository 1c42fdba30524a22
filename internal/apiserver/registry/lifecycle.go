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

func nothing(bool) {}

func (q *Request) beginCreate(obj resource.Object, dryRun bool) (finish func(stored bool), err error) {
	if l := q.Endpoint.lifecycle; l != nil {
		return l.BeginCreate(q.Context, obj, dryRun)
	}
	return nothing, nil
}

func (q *Request) beginUpdate(obj, old resource.Object, dryRun bool) (finish func(stored bool), err error) {
	if l := q.Endpoint.lifecycle; l != nil && q.Subresource == nil {
		return l.BeginUpdate(q.Context, obj, old, dryRun)
	}
	return nothing, nil
}

func (q *Request) afterDelete(obj resource.Object) {
	if l := q.Endpoint.lifecycle; l != nil {
		l.AfterDelete(context.WithoutCancel(q.Context), obj)
	}
}
