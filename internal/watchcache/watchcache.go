// Package watchcache is the API server's typed, revisioned view of the store.
// One ordered watch over /registry/ feeds all kinds. Reads take an immutable
// snapshot in O(1); every watcher has a cursor of its own into one event log
// per kind, so nothing is copied per watcher and a slow one delays nobody.
//
// Objects in the cache are shared and must never be changed.
package watchcache

import (
	"context"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/store"
)

// Cache holds every kind.
type Cache struct{ _ store.Store }

// New makes a cache of the stored (not virtual) resources among rs. It is empty until Run.
func New(s store.Store, rs []*resource.Resource) *Cache { return nil }

// Run fills the cache and follows the store until ctx ends. It recovers by
// itself from every error of the store; while the store is away the cache
// keeps answering from what it has.
func (c *Cache) Run(ctx context.Context) error { return nil }

// Synced is closed once the first fill is complete.
func (c *Cache) Synced() <-chan struct{} { return nil }

// Add and Remove take a custom resource in and out while running. Add on a
// storage path that is there already (another version of the schema) swaps
// the resource and keeps watches.
func (c *Cache) Add(r *resource.Resource) *Kind { return nil }
func (c *Cache) Remove(r *resource.Resource)    {}

// Kind returns the part of the cache for r (by storage path), or nil.
func (c *Cache) Kind(r *resource.Resource) *Kind { return nil }

// Revision is how far the cache knows everything.
func (c *Cache) Revision() int64 { return 0 }

// Fresh waits until the cache has reached the revision the store has now, and
// returns it. Concurrent callers share one read of the store.
func (c *Cache) Fresh(ctx context.Context) (int64, error) { return 0, nil }

// WaitFor waits until the cache has reached revision.
func (c *Cache) WaitFor(ctx context.Context, revision int64) error { return nil }

// Kind is the cache of one resource and the way to write it.
type Kind struct{}

// Entry is one object at one revision, with its encodings made at most once.
type Entry struct {
	Object          resource.Object // hub version, TypeMeta and resourceVersion set
	Namespace, Name string
	Revision        int64
}

// Encoded returns the encoding kept under slot (a small number that the
// caller gives to a served version and media type), calling make the first
// time. The result is shared and must not be changed.
func (e *Entry) Encoded(slot int, make func() ([]byte, error)) ([]byte, error) { return nil, nil }

// Get returns the object as of now in the cache.
func (k *Kind) Get(namespace, name string) (*Entry, bool) { return nil, false }

// Snapshot returns an immutable view of all objects, in O(1).
func (k *Kind) Snapshot() Snapshot { return Snapshot{} }

// SnapshotAt returns the view as of a past revision, as long as the event log reaches
// back to it; ok is false otherwise.
func (k *Kind) SnapshotAt(revision int64) (s Snapshot, ok bool) { return Snapshot{}, false }

// Snapshot is the state of a kind at Revision.
type Snapshot struct{ Revision int64 }

// Len is the number of objects.
func (s Snapshot) Len() int { return 0 }

// Ascend visits the objects of one namespace ("" is all) in key order, from
// the one after (namespace, name) given in after ("" is the start) until
// visit returns false.
func (s Snapshot) Ascend(namespace string, after Position, visit func(*Entry) bool) {}

// Position is a place in key order.
type Position struct{ Namespace, Name string }

// Lookup visits the objects whose indexed field (resource.Indexed) has value,
// as of now. ok is false if there is no such index.
func (k *Kind) Lookup(field, value string, visit func(*Entry) bool) (ok bool) { return false }

// EventType is what happened to an object.
type EventType int8

// Kinds of Event. Bookmark carries only a revision.
const (
	Added EventType = iota + 1
	Modified
	Deleted
)

// Event is one change. Entry is the object after it; for Deleted it is the
// last state with the resourceVersion of the deletion. Previous is nil for Added.
type Event struct {
	Type            EventType
	Entry, Previous *Entry
	Revision        int64
}

// Watch returns a cursor that stands after revision. It fails with
// store.ErrCompacted if the log no longer reaches back so far.
func (k *Kind) Watch(after int64) (*Cursor, error) { return nil, nil }

// Cursor reads the log of a kind. It needs no closing.
type Cursor struct{}

// Next waits for events after the cursor and returns them all, and the
// revision up to which the kind is known now (for bookmarks). It returns
// without events when only the wait ended: ctx done (its error) or wake
// received. store.ErrCompacted says that the log has moved past the cursor.
func (c *Cursor) Next(ctx context.Context, wake <-chan struct{}) (events []*Event, revision int64, err error) {
	return nil, 0, nil
}

// Create, Update and Delete write through to the store and hand the object to
// the cache, so that it is decoded nowhere. obj must not be changed
// afterwards; its resourceVersion is set. Errors are the store's.
func (k *Kind) Create(ctx context.Context, obj resource.Object) (*Entry, error) { return nil, nil }

// Update replaces old, which may come from the cache or from Read.
func (k *Kind) Update(ctx context.Context, obj resource.Object, old *Entry) (*Entry, error) {
	return nil, nil
}

// Delete removes old for good; last is the final state to show watchers (nil: old's object).
func (k *Kind) Delete(ctx context.Context, old *Entry, last resource.Object) (*Entry, error) {
	return nil, nil
}

// Read returns the object linearizably from the store, for a writer whose
// cached copy was too old. store.ErrNotFound if it does not exist.
func (k *Kind) Read(ctx context.Context, namespace, name string) (*Entry, error) { return nil, nil }
