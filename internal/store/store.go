// Package store defines the interface between the API server and the storage of
// its objects. A store holds keys, bytes and revisions, and knows no Kubernetes
// types.
//
// A store has one revision counter. Each write raises it by one. Each key has the
// revision of its last write:
//
//	revision   5          6            7          8
//	key a      created    .            updated    .
//	key b      .          created      .          deleted
//
// Implementations: store/etcd (embedded or external etcd v3) and store/mem.
// store/storetest is the test suite for both.
package store

import (
	"context"
	"errors"
	"time"
)

var (
	// ErrNotFound means that the key does not exist.
	ErrNotFound = errors.New("key not found")
	// ErrExists means that the key of a Create exists.
	ErrExists = errors.New("key exists")
	// ErrConflict means that the last write of the key has another revision than
	// the given one.
	ErrConflict = errors.New("key changed since the given revision")
	// ErrCompacted means that the requested revision has been compacted.
	ErrCompacted = errors.New("revision has been compacted")
	// ErrFutureRevision means that the requested revision does not exist yet.
	ErrFutureRevision = errors.New("revision is in the future")
	// ErrUnavailable means that the store does not answer. A write that fails with
	// it may or may not have been made.
	ErrUnavailable = errors.New("store unavailable")
	// ErrFull means that a write was not made because there is no space. It is also
	// an ErrUnavailable.
	ErrFull = errors.New("store full")
)

// KeyValue is a key at a revision. Value must not be changed.
type KeyValue struct {
	Key      string
	Value    []byte
	Revision int64 // of the last write of this key
	// Outdated reports that a write of the same value would store other bytes,
	// because it is to be encrypted in another way.
	Outdated bool
}

// ListOptions restricts a List.
type ListOptions struct {
	Revision int64  // revision to read; 0 means the current one
	Limit    int    // maximum number of keys; 0 means no limit
	From     string // first key (inclusive); "" means the start of the prefix
}

// Page is a part of a listing, in key order.
type Page struct {
	Items    []KeyValue
	Revision int64 // revision at which the page was read
	More     bool  // there are keys after the page
	Count    int64 // number of keys from From to the end of the prefix, including the page
}

// Event is a write that a watch delivers.
type Event struct {
	Key      string
	Value    []byte // nil for a deletion
	Revision int64
	Created  bool // the key did not exist before
	Deleted  bool
}

// Batch is an element of a watch. Events are in revision order, and all events of a
// revision are in the same batch. After the batch, the watch has delivered all
// events up to Revision. A batch without events reports progress. A batch with Err
// (ErrCompacted or ErrUnavailable) is the last one, and its other fields are not
// set. When the context is done, the channel is closed without an error.
type Batch struct {
	Events   []Event
	Revision int64
	Err      error
}

// Store stores keys durably: a write that returned without error survives a
// SIGKILL of all processes. All methods may be called concurrently. Values are
// shared in both directions and must not be changed.
type Store interface {
	// Get returns the current value of key (a linearizable read), or ErrNotFound.
	Get(ctx context.Context, key string) (KeyValue, error)
	// List returns the keys that start with prefix.
	List(ctx context.Context, prefix string, opts ListOptions) (Page, error)
	// Create stores value under a key that does not exist. It returns ErrExists if
	// it does. If ttl is above zero, the key is deleted after that time.
	Create(ctx context.Context, key string, value []byte, ttl time.Duration) (revision int64, err error)
	// Update replaces the value of key if its revision is the given one. Otherwise
	// it returns ErrConflict, or ErrNotFound if the key does not exist.
	Update(ctx context.Context, key string, value []byte, revision int64, ttl time.Duration) (newRevision int64, err error)
	// Delete removes key if its revision is the given one. It returns the same
	// errors as Update, and the revision of the deletion.
	Delete(ctx context.Context, key string, revision int64) (deletion int64, err error)
	// Watch delivers all writes under prefix after the given revision, in order,
	// until ctx is done or a batch has an error. Then it closes the channel.
	Watch(ctx context.Context, prefix string, after int64) <-chan Batch
	// CurrentRevision returns the store's revision (a linearizable read). Watches
	// soon report progress up to it, even if no key under their prefix changed.
	CurrentRevision(ctx context.Context) (int64, error)
	// Compact drops the history before revision. The state at revision can still
	// be read. It returns ErrCompacted if revision was already compacted.
	Compact(ctx context.Context, revision int64) error
}
