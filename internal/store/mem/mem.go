// Package mem implements store.Store in memory, for tests and for clusters that
// end with their process. It is deterministic: the same calls in the same order
// give the same revisions and events, also under testing/synctest.
//
//	keys      a ── 8:"v2" ── 5:"v1"        newest version first
//	          b ── 7:deleted ── 6:"w"
//	log       5 a created │ 6 b created │ 7 b deleted │ 8 a updated
//	              ▲ a watch is a position in the log
//
// Compact removes old versions of the keys and the first events of the log.
package mem

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/tidwall/btree"

	"github.com/coracle-io/coracle/internal/store"
)

// version is one state of a key.
type version struct {
	revision int64
	value    []byte
	deleted  bool
	previous *version
}

// history holds the versions of a key.
type history struct {
	key    string
	newest *version
	expiry *time.Timer // nil without a ttl
}

// at returns the version that was current at revision, or nil.
func (h *history) at(revision int64) *version {
	for v := h.newest; v != nil; v = v.previous {
		if v.revision <= revision {
			if v.deleted {
				return nil
			}
			return v
		}
	}
	return nil
}

// Store implements store.Store in memory.
type Store struct {
	mu        sync.RWMutex // guards everything below
	revision  int64
	compacted int64 // reads and watches below this revision fail
	keys      *btree.BTreeG[*history]
	log       []store.Event // everything after compacted
	changed   chan struct{} // closed at the next write
}

var _ store.Store = (*Store)(nil)

// New returns an empty store at revision 1, like a new etcd.
func New() *Store {
	return &Store{
		revision: 1,
		keys:     btree.NewBTreeGOptions(func(a, b *history) bool { return a.key < b.key }, btree.Options{NoLocks: true}),
		changed:  make(chan struct{}),
	}
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, key string) (store.KeyValue, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err := ctx.Err(); err != nil {
		return store.KeyValue{}, err
	}
	h, ok := s.keys.Get(&history{key: key})
	if !ok || h.newest.deleted {
		return store.KeyValue{}, store.ErrNotFound
	}
	return store.KeyValue{Key: key, Value: h.newest.value, Revision: h.newest.revision}, nil
}

// List implements store.Store.
func (s *Store) List(ctx context.Context, prefix string, opts store.ListOptions) (store.Page, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err := ctx.Err(); err != nil {
		return store.Page{}, err
	}
	page := store.Page{Revision: s.revision}
	switch {
	case opts.Revision == 0:
	case opts.Revision > s.revision:
		return store.Page{}, store.ErrFutureRevision
	case opts.Revision < s.compacted:
		return store.Page{}, store.ErrCompacted
	default:
		page.Revision = opts.Revision
	}
	s.keys.Ascend(&history{key: max(prefix, opts.From)}, func(h *history) bool {
		if !strings.HasPrefix(h.key, prefix) {
			return false
		}
		v := h.at(page.Revision)
		if v == nil {
			return true
		}
		page.Count++
		if opts.Limit > 0 && len(page.Items) == opts.Limit {
			page.More = true
			return true
		}
		page.Items = append(page.Items, store.KeyValue{Key: h.key, Value: v.value, Revision: v.revision})
		return true
	})
	return page, nil
}

// Create implements store.Store.
func (s *Store) Create(ctx context.Context, key string, value []byte, ttl time.Duration) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	h, ok := s.keys.Get(&history{key: key})
	if ok && !h.newest.deleted {
		return 0, store.ErrExists
	}
	if !ok {
		h = &history{key: key}
		s.keys.Set(h)
	}
	return s.write(h, store.Event{Key: key, Value: value, Created: true}, ttl), nil
}

// Update implements store.Store.
func (s *Store) Update(ctx context.Context, key string, value []byte, revision int64, ttl time.Duration) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, err := s.existing(ctx, key, revision)
	if err != nil {
		return 0, err
	}
	return s.write(h, store.Event{Key: key, Value: value}, ttl), nil
}

// Delete implements store.Store.
func (s *Store) Delete(ctx context.Context, key string, revision int64) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, err := s.existing(ctx, key, revision)
	if err != nil {
		return 0, err
	}
	return s.write(h, store.Event{Key: key, Deleted: true}, 0), nil
}

// existing returns the key if its last write has the revision. Callers hold mu.
func (s *Store) existing(ctx context.Context, key string, revision int64) (*history, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	h, ok := s.keys.Get(&history{key: key})
	switch {
	case !ok || h.newest.deleted:
		return nil, store.ErrNotFound
	case h.newest.revision != revision:
		return nil, store.ErrConflict
	}
	return h, nil
}

// write makes e the newest version of h and wakes the watches. Callers hold mu.
func (s *Store) write(h *history, e store.Event, ttl time.Duration) int64 {
	s.revision++
	e.Revision = s.revision
	h.newest = &version{revision: e.Revision, value: e.Value, deleted: e.Deleted, previous: h.newest}
	if h.expiry != nil {
		h.expiry.Stop()
		h.expiry = nil
	}
	if ttl > 0 {
		h.expiry = time.AfterFunc(ttl, func() { s.expire(h, e.Revision) })
	}
	s.log = append(s.log, e)
	close(s.changed)
	s.changed = make(chan struct{})
	return e.Revision
}

func (s *Store) expire(h *history, revision int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !h.newest.deleted && h.newest.revision == revision {
		s.write(h, store.Event{Key: h.key, Deleted: true}, 0)
	}
}

// CurrentRevision implements store.Store.
func (s *Store) CurrentRevision(ctx context.Context) (int64, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.revision, ctx.Err()
}

// Compact implements store.Store.
func (s *Store) Compact(_ context.Context, revision int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if revision > s.revision {
		return store.ErrFutureRevision
	}
	if revision <= s.compacted {
		return fmt.Errorf("compact %d: %w", revision, store.ErrCompacted)
	}
	var gone []*history
	for _, e := range s.log[:s.logIndex(revision)] {
		h, ok := s.keys.Get(&history{key: e.Key})
		if ok && h.cut(revision) {
			gone = append(gone, h)
		}
	}
	for _, h := range gone {
		s.keys.Delete(h)
	}
	s.log = append([]store.Event(nil), s.log[s.logIndex(revision):]...)
	s.compacted = revision
	return nil
}

// cut drops the versions that were replaced up to revision. It returns true if
// the key has no version left.
func (h *history) cut(revision int64) (gone bool) {
	for v := h.newest; v != nil; v = v.previous {
		if v.revision <= revision {
			v.previous = nil
			return v.deleted && v == h.newest
		}
	}
	return false
}
