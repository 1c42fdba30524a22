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

// begin lets the resource's lifecycle take part in a write; old is nil for a
// new object.
func (e *Endpoint) begin(ctx context.Context, obj, old resource.Object, dryRun bool) (finish func(stored bool), err error) {
	switch {
	case e.lifecycle == nil:
		return nothing, nil
	case old == nil:
		return e.lifecycle.BeginCreate(ctx, obj, dryRun)
	}
	return e.lifecycle.BeginUpdate(ctx, obj, old, dryRun)
}

// afterDelete tells the resource's lifecycle of an object that is gone.
func (e *Endpoint) afterDelete(ctx context.Context, obj resource.Object) {
	if e.lifecycle != nil {
		e.lifecycle.AfterDelete(context.WithoutCancel(ctx), obj)
	}
}
