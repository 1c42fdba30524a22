// Package watchcache is the API server's typed, revisioned view of the store.
// One ordered watch over /registry/ feeds all kinds. Reads take an immutable
// snapshot in O(1); every watcher has a cursor of its own into one event log
// per kind, so nothing is copied per watcher and a slow one delays nobody.
//
//	           store.Watch("/registry/")          Kind.Create, Update, Delete
//	                    │ batches                      │ lend the typed object
//	                    ▼                              ▼ (matched by its bytes)
//	Cache.Run ── apply(batch) ──► Kind ◄───────────── loans
//	  one goroutine writes        │
//	                              ├─ state: copy-on-write B-trees    ◄── Snapshot, Lookup
//	                              │    by (namespace, name) and by indexed field
//	                              ├─ log: 41 Added │ 42 Modified │ 45 Deleted
//	                              │          ▲ cursor      ▲ cursor  ◄── Watch
//	                              └─ scoped logs: the same events of one namespace,
//	                                   one name or one field value   ◄── WatchScope
//
// Revisions: Cache.Revision is how far everything is known. A kind is never
// behind it, so a read may wait for a revision (Fresh, WaitFor) and then take
// what is there. SnapshotAt undoes the log to look back.
//
// Objects in the cache are shared and must never be changed; the build tag
// `invariants` makes every read check that nobody did.
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

// Prefix is the part of the store that the cache follows.
const Prefix = "/registry/"

// ErrRemoved ends the cursors of a kind that was taken out of the cache.
var ErrRemoved = errors.New("resource has been removed")

// Cache holds every kind.
type Cache struct {
	store    store.Store
	revision revision      // how far every kind is known
	kinds    atomic.Value  // map[string]*Kind by storage path, never changed in place
	kindsMu  sync.Mutex    // serializes the writers of kinds
	requests chan addition // resources to fill while running
	fresh    *freshness
	horizon  horizon
	// history is what the events of all kinds take in bytes, by estimate. It
	// belongs to who applies batches.
	history, historyLimit int64

	synced  chan struct{}
	stopped chan struct{} // closed when Run returns
}

// New makes a cache of the stored (not virtual) resources among rs. It is empty until Run.
func New(s store.Store, rs []*resource.Resource) *Cache {
	c := &Cache{
		store:    s,
		requests: make(chan addition),
		fresh:    newFreshness(),
		synced:   make(chan struct{}),
		stopped:  make(chan struct{}),

		historyLimit: historyCost,
	}
	kinds := make(map[string]*Kind, len(rs))
	for _, r := range rs {
		if !r.Virtual() {
			kinds[r.StoragePath] = newKind(c, r)
		}
	}
	c.kinds.Store(kinds)
	return c
}

// Synced is closed once the first fill is complete.
func (c *Cache) Synced() <-chan struct{} { return c.synced }

// Kind returns the part of the cache for r, or nil.
func (c *Cache) Kind(r *resource.Resource) *Kind { return c.At(r.StoragePath) }

// At returns the part of the cache that is stored at a path
// (resource.StoragePath), or nil.
func (c *Cache) At(storagePath string) *Kind { return c.byPath()[storagePath] }

// Kinds returns every kind, in no order.
func (c *Cache) Kinds() []*Kind { return slices.Collect(maps.Values(c.byPath())) }

// Revision is how far the cache knows everything.
func (c *Cache) Revision() int64 { return c.revision.load() }

// WaitFor waits until the cache has reached revision.
func (c *Cache) WaitFor(ctx context.Context, revision int64) error {
	return c.revision.wait(ctx, revision)
}

// Undecodable counts the stored values, now and before, that could not be
// decoded and are therefore invisible.
func (c *Cache) Undecodable() int64 {
	var n int64
	for _, k := range c.byPath() {
		n += k.undecodable.Load()
	}
	return n
}

func (c *Cache) byPath() map[string]*Kind { return c.kinds.Load().(map[string]*Kind) }

// replaceKinds changes a copy of the table of kinds and publishes it.
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
