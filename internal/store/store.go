// Package store is the contract between the API server and the place where
// objects are kept: keys, bytes and revisions, nothing of Kubernetes.
//
// A store has one revision counter. Every write raises it by one, and every
// key remembers the revision of its last write:
//
//	revision   5          6            7          8
//	key a      created    .            updated    .
//	key b      .          created      .          deleted
//
// Implementations: store/etcd (embedded or external etcd v3) and store/mem.
// store/storetest holds the one suite that both pass.
package store

import (
	"context"
	"errors"
	"time"
)

var (
	// ErrNotFound says that the key does not exist.
	ErrNotFound = errors.New("key not found")
	// ErrExists says that Create found the key in place.
	ErrExists = errors.New("key exists")
	// ErrConflict says that the key exists, but not at the revision the caller named.
	ErrConflict = errors.New("key changed since the given revision")
	// ErrCompacted says that the revision asked for is no longer kept.
	ErrCompacted = errors.New("revision has been compacted")
	// ErrFutureRevision says that the revision asked for has not been reached.
	ErrFutureRevision = errors.New("revision is in the future")
	// ErrUnavailable says that the store cannot answer now. A write that fails
	// with it may or may not have happened.
	ErrUnavailable = errors.New("store unavailable")
	// ErrFull says that there is no room for what was to be written, which was
	// not. It is an ErrUnavailable too.
	ErrFull = errors.New("store full")
)

// KeyValue is one key at one revision. Value must not be changed.
type KeyValue struct {
	Key      string
	Value    []byte
	Revision int64 // of the last write of this key
}

// ListOptions narrows a List.
type ListOptions struct {
	Revision int64  // read as of this revision; 0 is the current one
	Limit    int    // at most so many keys; 0 is all
	From     string // start at this key (inclusive); "" is the start of the prefix
}

// Page is a part of a listing, in key order.
type Page struct {
	Items    []KeyValue
	Revision int64 // the revision the page was read at
	More     bool  // keys beyond the page exist
	Count    int64 // keys from From to the end of the prefix, this page included
}

// Event is one write as a watch delivers it.
type Event struct {
	Key      string
	Value    []byte // nil for a deletion
	Revision int64
	Created  bool // the key did not exist before
	Deleted  bool
}

// Batch is what a watch delivers at a time. Events are in revision order and
// never split a revision. Revision says how far the watcher now knows
// everything; a batch without events reports progress only. A batch with Err
// set (ErrCompacted or ErrUnavailable) is the last one and carries nothing
// else. When the context ends the channel is just closed.
type Batch struct {
	Events   []Event
	Revision int64
	Err      error
}

// Store keeps keys durably: once a write returns without error it survives a
// kill -9 of everything. All methods may be called from any goroutine. Values,
// passed in or returned, are shared and must not be changed by anyone.
type Store interface {
	// Get returns the current value of key, linearizably, or ErrNotFound.
	Get(ctx context.Context, key string) (KeyValue, error)
	// List returns the keys that begin with prefix.
	List(ctx context.Context, prefix string, opts ListOptions) (Page, error)
	// Create stores value under a key that does not exist, or fails with
	// ErrExists. A ttl above zero removes the key after that time.
	Create(ctx context.Context, key string, value []byte, ttl time.Duration) (revision int64, err error)
	// Update replaces the value of key if its revision is the given one; else
	// ErrConflict, or ErrNotFound if the key is gone.
	Update(ctx context.Context, key string, value []byte, revision int64, ttl time.Duration) (newRevision int64, err error)
	// Delete removes key if its revision is the given one; errors as Update.
	// The returned revision is that of the deletion.
	Delete(ctx context.Context, key string, revision int64) (deletion int64, err error)
	// Watch delivers every write under prefix after the given revision, in
	// order, without a gap, until ctx ends. The channel is closed at the end.
	Watch(ctx context.Context, prefix string, after int64) <-chan Batch
	// CurrentRevision returns the store's revision, linearizably. Watches
	// report progress up to it soon, even if nothing under their prefix changed.
	CurrentRevision(ctx context.Context) (int64, error)
	// Compact forgets what was before revision, whose state stays readable.
	// ErrCompacted says that it was done before.
	Compact(ctx context.Context, revision int64) error
}
