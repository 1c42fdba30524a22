package registry

import (
	"context"

	"github.com/coracle-io/coracle/internal/watchcache"
)

// view is the objects of a kind at one revision. It reads the cache or, for
// revisions that the cache no longer has, the store.
type view struct {
	snapshot *watchcache.Snapshot
	past     watchcache.HistoricalSnapshot // if snapshot is nil
}

func (v *view) revision() int64 {
	if v.snapshot != nil {
		return v.snapshot.Revision
	}
	return v.past.Revision
}

// visit calls a function with each selected entry after a position, in key
// order, until it returns false. about is the number of entries that the
// caller wants; 0 is all.
func (v *view) visit(ctx context.Context, s *watchcache.Selection, after watchcache.Position, about int, visit func(*watchcache.Entry) bool) error {
	if v.snapshot != nil {
		return s.Visit(ctx, *v.snapshot, after, visit)
	}
	return s.VisitHistorical(ctx, v.past, after, about, visit)
}

// count returns how many objects of a namespace come after a position. The
// namespace "" means all.
func (v *view) count(ctx context.Context, namespace string, after watchcache.Position) (int64, error) {
	if v.snapshot != nil {
		return int64(v.snapshot.Count(namespace, after)), nil
	}
	return v.past.Count(ctx, namespace, after)
}
