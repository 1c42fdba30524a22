package registry

import (
	"context"

	"github.com/coracle-io/coracle/internal/watchcache"
)

// view is the objects of a kind at one revision, from the cache or, where the
// cache does not reach back so far, from the store.
type view struct {
	snapshot *watchcache.Snapshot
	past     watchcache.Past // if snapshot is nil
}

func (v *view) revision() int64 {
	if v.snapshot != nil {
		return v.snapshot.Revision
	}
	return v.past.Revision
}

// visit calls a function with every selected entry after a position, in key
// order, until it returns false. about is how many entries are wanted; 0 is all.
func (v *view) visit(ctx context.Context, s *watchcache.Selection, after watchcache.Position, about int, visit func(*watchcache.Entry) bool) error {
	if v.snapshot != nil {
		return s.Visit(ctx, *v.snapshot, after, visit)
	}
	return s.VisitPast(ctx, v.past, after, about, visit)
}

// count is how many objects of a namespace ("" is all) come after a position.
func (v *view) count(ctx context.Context, namespace string, after watchcache.Position) (int64, error) {
	if v.snapshot != nil {
		return int64(v.snapshot.Count(namespace, after)), nil
	}
	return v.past.Count(ctx, namespace, after)
}
