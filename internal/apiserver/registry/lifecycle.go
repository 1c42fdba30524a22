package registry

import (
	"context"
	"errors"

	"github.com/coracle-io/coracle/internal/resource"
)

// Lifecycle takes part in the writes of one resource that needs allocations
// outside the object, such as cluster IPs and node ports. The Begin functions
// may change obj, which the resource's own rules have prepared. finish must
// be called with whether the object was stored. It is not called if that is
// unknown: the object may have the allocations, so they stay until a repair.
type Lifecycle interface {
	BeginCreate(ctx context.Context, obj resource.Object, dryRun bool) (finish func(stored bool), err error)
	BeginUpdate(ctx context.Context, obj, old resource.Object, dryRun bool) (finish func(stored bool), err error)
	AfterDelete(ctx context.Context, obj resource.Object)
}

func nothing(bool) {}

// mayBeStored reports whether a write that failed with err may have been
// stored all the same.
func mayBeStored(err error) bool {
	return outcomeUnknown(err) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// begin calls the lifecycle of the resource for a write. old is nil for a new
// object.
func (e *Endpoint) begin(ctx context.Context, obj, old resource.Object, dryRun bool) (finish func(stored bool), err error) {
	switch {
	case e.lifecycle == nil:
		return nothing, nil
	case old == nil:
		return e.lifecycle.BeginCreate(ctx, obj, dryRun)
	}
	return e.lifecycle.BeginUpdate(ctx, obj, old, dryRun)
}

// afterDelete calls the lifecycle of the resource after a deletion.
func (e *Endpoint) afterDelete(ctx context.Context, obj resource.Object) {
	if e.lifecycle != nil {
		e.lifecycle.AfterDelete(context.WithoutCancel(ctx), obj)
	}
}
