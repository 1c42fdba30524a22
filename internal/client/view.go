package client

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// view lists and watches a part of a kind in the watch cache. Nothing is
// copied or encoded: a list is pointers into the cache, a watch is a cursor.
// Objects of the hub version are the cache's own; another version is converted.
type view struct {
	cache    *watchcache.Cache
	kind     *watchcache.Kind
	version  resource.Version
	selected watchcache.Selection
}

// list returns everything that the view shows, as of a revision.
func (v *view) list() (objects []runtime.Object, revision int64) {
	snapshot := v.kind.Snapshot()
	_ = v.selected.Visit(context.Background(), snapshot, watchcache.Position{}, func(e *watchcache.Entry) bool { // which does not end
		objects = append(objects, v.version.FromHub(e.Object))
		return true
	})
	return objects, snapshot.Revision
}

// watch returns a cursor on what may change in the view after a revision.
func (v *view) watch(after int64) (*watchcache.Cursor, error) {
	return v.kind.WatchScope(after, v.selected.Scope())
}
