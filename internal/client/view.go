package client

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// view lists and watches selected objects of a kind in the watch cache. It does not copy
// or encode objects: a list contains pointers into the cache, and a watch is a cursor.
// Objects in other versions than the hub version are converted.
type view struct {
	cache    *watchcache.Cache
	kind     *watchcache.Kind
	version  resource.Version
	selected watchcache.Selection
}

// list returns the selected objects and the revision of the list.
func (v *view) list() (objects []runtime.Object, revision int64) {
	snapshot := v.kind.Snapshot()
	_ = v.selected.Visit(context.Background(), snapshot, watchcache.Position{}, func(e *watchcache.Entry) bool { // the context never ends
		objects = append(objects, v.version.FromHub(e.Object))
		return true
	})
	return objects, snapshot.Revision
}

// watch returns a cursor for the events of the view's scope after a revision.
func (v *view) watch(after int64) (*watchcache.Cursor, error) {
	return v.kind.WatchScope(after, v.selected.Scope())
}
