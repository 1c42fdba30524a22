// Package watchcache is the API server's typed, revisioned view of the store
// (upstream's cacher). One ordered watch of /registry/ feeds all kinds. Reads take an
// immutable snapshot in O(1). Every watcher has a cursor into the event log of its
// kind, so that nothing is copied for a watcher and a slow one does not delay others.
//
//	           store.Watch("/registry/")          Kind.Create, Update, Delete
//	                    │ batches                      │ the typed object
//	                    ▼                              ▼ (matched by its bytes)
//	Cache.Run ── apply(batch) ──► Kind ◄─────── pendingWrites
//	  one goroutine writes        │
//	                              ├─ state: copy-on-write B-trees    ◄── Snapshot, Lookup
//	                              │    by (namespace, name) and by indexed field
//	                              ├─ log: 41 Added │ 42 Modified │ 45 Deleted
//	                              │          ▲ cursor      ▲ cursor  ◄── Watch
//	                              └─ scoped logs: the same events of one namespace,
//	                                   one name or one field value   ◄── WatchScope
//
// Revisions: The cache knows all changes up to Cache.Revision. A kind is never older, so
// a consistent read waits for a revision (Fresh, WaitFor) and then uses the current
// state. SnapshotAt reverts events of the log to return past states.
//
// Objects in the cache are shared and must not be changed. With the build tag
// invariants, every read checks that.
package watchcache

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/store"
)

// Prefix is the prefix of the store's keys that the cache follows.
const Prefix = "/registry/"

// ErrRemoved is the error of cursors of a kind that was removed from the cache.
var ErrRemoved = errors.New("resource has been removed")

// Cache holds the objects of all kinds.
type Cache struct {
	store    store.Store
	revision revision      // all kinds contain the changes up to it
	kinds    atomic.Value  // map[string]*Kind by storage path, never changed in place
	kindsMu  sync.Mutex    // serializes the writers of kinds
	requests chan addition // resources to fill while running
	waiting  []addition    // accepted requests that are not done; used only by Run
	// inconsistent says that the cache has other objects than the store.
	inconsistent chan struct{}
	fresh        *freshness
	horizon      horizon
	// history is the estimated memory of all events in bytes. It is used only by Run.
	history, historyLimit int64

	synced  chan struct{}
	stopped chan struct{} // closed when Run returns
}

// New returns a cache of the stored (not virtual) resources among rs. It is empty
// until Run is called.
func New(s store.Store, rs []*resource.Resource) *Cache {
	c := &Cache{
		store:    s,
		requests: make(chan addition),
		fresh:    newFreshness(),
		synced:   make(chan struct{}),
		stopped:  make(chan struct{}),

		inconsistent: make(chan struct{}, 1),

		historyLimit: historyCost,
	}
	kinds := make(map[string]*Kind, len(rs))
	for _, r := range rs {
		if !r.Virtual() {
			kinds[r.Storage.Path] = newKind(c, r)
		}
	}
	c.kinds.Store(kinds)
	return c
}

// Synced returns a channel that is closed after the first initialization.
func (c *Cache) Synced() <-chan struct{} { return c.synced }

// Kind returns the kind of r, or nil.
func (c *Cache) Kind(r *resource.Resource) *Kind { return c.At(r.Storage.Path) }

// At returns the kind with a storage path (resource.Storage.Path), or nil.
func (c *Cache) At(storagePath string) *Kind { return c.byPath()[storagePath] }

// Kinds returns all kinds in no particular order.
func (c *Cache) Kinds() []*Kind { return slices.Collect(maps.Values(c.byPath())) }

// Revision returns the revision up to which the cache knows all changes.
func (c *Cache) Revision() int64 { return c.revision.load() }

// WaitFor waits until the cache has reached revision.
func (c *Cache) WaitFor(ctx context.Context, revision int64) error {
	return c.revision.wait(ctx, revision)
}

// Undecodable returns the number of stored values that could not be decoded since
// the start and are therefore hidden.
func (c *Cache) Undecodable() int64 {
	var n int64
	for _, k := range c.byPath() {
		n += k.undecodable.Load()
	}
	return n
}

func (c *Cache) byPath() map[string]*Kind { return c.kinds.Load().(map[string]*Kind) }

// replaceKinds changes a copy of the map of kinds and publishes it.
func (c *Cache) replaceKinds(change func(kinds map[string]*Kind)) {
	c.kindsMu.Lock()
	defer c.kindsMu.Unlock()
	old := c.byPath()
	kinds := make(map[string]*Kind, len(old)+1)
	for path, k := range old {
		kinds[path] = k
	}
	change(kinds)
	c.kinds.Store(kinds)
}
