package watchcache

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Kind is the cache of one resource and the way to write it.
type Kind struct {
	cache         *Cache
	resource      atomic.Pointer[resource.Resource]
	pendingWrites pendingWrites
	packed        int64 // entries up to this revision are repacked; used only by Run

	mu       sync.RWMutex // guards the following
	state    state
	revision int64 // of the last change
	log      log
	scopes   scopes
	floors   map[Scope]int64 // of scopes with fewer events than the log
	removed  bool

	shared          atomic.Pointer[Snapshot] // of state; nil after a change
	past            atomic.Pointer[Snapshot] // the last result of SnapshotAt, for the next page
	stored          atomic.Int64             // bytes of the values of the state
	undecodable     atomic.Int64
	received        atomic.Int64 // changes made visible
	initial         atomic.Int64 // objects read by initializations
	initializations atomic.Int64
	compared        comparisons
}

// Stats holds the counters of a kind.
type Stats struct {
	Events          int64 // changes since the process started
	Initial         int64 // objects read by initializations
	Initializations int64
	Undecodable     int64 // stored values that could not be decoded
	Compared        Comparisons
}

// Stats returns the current counters.
func (k *Kind) Stats() Stats {
	return Stats{k.received.Load(), k.initial.Load(), k.initializations.Load(), k.undecodable.Load(), Comparisons{
		k.compared.same.Load(), k.compared.different.Load(), k.compared.failed.Load(),
	}}
}

func newKind(c *Cache, r *resource.Resource) *Kind {
	k := &Kind{cache: c, state: newState(r.FieldSelectors.Indexed), scopes: scopes{}, floors: map[Scope]int64{}}
	k.pendingWrites.pending = map[Position][]*pendingWrite{}
	k.resource.Store(r)
	return k
}

// Stored returns the total size of the stored values in bytes.
func (k *Kind) Stored() int64 { return k.stored.Load() }

// Resource returns the current definition of the resource.
func (k *Kind) Resource() *resource.Resource { return k.resource.Load() }

// Get returns the current object in the cache.
func (k *Kind) Get(namespace, name string) (*Entry, bool) {
	k.mu.RLock()
	e, ok := k.state.get(Position{namespace, name})
	k.mu.RUnlock()
	if ok {
		e.seal.check(e.Object)
	}
	return e, ok
}

// Lookup calls visit for the current objects whose indexed field (resource.Indexed)
// has value, until it returns false. ok is false if there is no such index.
func (k *Kind) Lookup(field, value string, visit func(*Entry) bool) (ok bool) {
	return k.Snapshot().Lookup(field, value, Position{}, visit)
}

// change is a decoded write. entry is nil for a deletion, for which last may be the
// final state that the writer provided.
type change struct {
	at       Position
	revision int64
	entry    *Entry
	last     *Entry
}

// decode converts a write of the store to a change. It uses the object of a pending
// write if there is one. A value that cannot be decoded, also because of a panic,
// hides the object. before holds the changes of this kind that are decoded but not
// yet visible.
func (k *Kind) decode(at Position, e store.Event, before []change) (c change, err error) {
	r := k.Resource()
	c = change{at: at, revision: e.Revision}
	defer func() {
		if err != nil {
			k.undecodable.Add(1)
		}
	}()
	defer supervise.Catch(&err)
	if e.Deleted {
		c.last = k.pendingWrites.take(r, at, nil, e.Revision, func() int64 { return k.revisionAt(at, before) })
		return c, nil
	}
	if c.entry = k.pendingWrites.take(r, at, e.Value, e.Revision, nil); c.entry != nil {
		return c, nil
	}
	c.entry, err = k.decodeEntry(r, at, e.Value, e.Revision)
	return c, err
}

// revisionAt returns the revision of the object at a position after changes are
// applied, or 0 if there is none.
func (k *Kind) revisionAt(at Position, changes []change) int64 {
	for i := len(changes) - 1; i >= 0; i-- {
		if changes[i].at != at {
			continue
		}
		if changes[i].entry == nil {
			return 0
		}
		return changes[i].revision
	}
	k.mu.RLock()
	defer k.mu.RUnlock()
	if e, ok := k.state.get(at); ok {
		return e.Revision
	}
	return 0
}

// commit makes changes visible atomically and returns the added cost of the history.
// Only one goroutine calls it.
func (k *Kind) commit(changes []change, now time.Time) (added int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.received.Add(int64(len(changes)))
	var touched []*log
	before := k.log.cost
	for _, c := range changes {
		// Allocate events separately, so that a reference to one does not keep others.
		e := &Event{Entry: c.entry, Revision: c.revision, seconds: now.Unix()}
		if !k.replace(e, c) {
			continue
		}
		k.revision = e.Revision
		k.log.append(e)
		touched = k.scopes.append(e, k.state.fields, touched)
	}
	if len(k.log.events) > logCount {
		k.thinLog(logCount/2, func(*Event) int { return 1 })
	}
	k.shared.Store(nil)
	k.log.wake()
	for _, l := range touched {
		l.wake()
	}
	return k.log.cost - before
}

// replace applies c to the state and completes e. It returns false for a deletion of
// an object that was not visible.
func (k *Kind) replace(e *Event, c change) bool {
	if c.entry == nil {
		e.Type = Deleted
		e.Previous = k.state.remove(c.at)
		if e.Previous == nil {
			return false
		}
		k.stored.Add(-int64(e.Previous.size))
		if e.Entry = c.last; e.Entry == nil {
			e.Entry = newEntry(k.Resource(), atRevision(e.Previous.Object, c.revision), c.at, c.revision, 0)
		}
		return true
	}
	e.Type = Added
	k.stored.Add(int64(c.entry.size))
	if e.Previous = k.state.set(c.entry); e.Previous != nil {
		k.stored.Add(-int64(e.Previous.size))
		e.Type = Modified
		e.Previous.seal.check(e.Previous.Object)
	}
	return true
}

// reset replaces the state by a listing at a revision. All cursors fail with
// store.ErrCompacted, because the events in between are unknown.
func (k *Kind) reset(r *resource.Resource, entries []*Entry, revision int64) {
	k.replaceState(r, entries, revision, true)
}

func (k *Kind) replaceState(r *resource.Resource, entries []*Entry, revision int64, forget bool) {
	s := newState(r.FieldSelectors.Indexed)
	stored := 0
	for _, e := range entries {
		s.load(e)
		stored += e.size
	}
	k.initializations.Add(1)
	k.initial.Add(int64(len(entries)))
	k.pendingWrites.forgetUpTo(revision)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.resource.Store(r)
	k.state = s
	k.stored.Store(int64(stored))
	if forget {
		k.revision = revision
		k.log.reset(revision)
		clear(k.floors)
		k.scopes.each(func(_ Scope, l *log) { l.reset(revision) })
	}
	k.shared.Store(nil)
	k.past.Store(nil)
	k.wakeAll()
}

// remove empties the kind and ends all cursors.
func (k *Kind) remove() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.removed = true
	k.state = newState(nil)
	k.stored.Store(0)
	k.cut(len(k.log.events))
	k.shared.Store(nil)
	k.past.Store(nil)
	k.wakeAll()
}

func (k *Kind) wakeAll() {
	k.log.wake()
	k.scopes.each(func(_ Scope, l *log) { l.wake() })
}

// sweep drops expired events and, if encodings is true, unused encodings, and unused
// conversions that do not fit into room.
func (k *Kind) sweep(now time.Time, encodings bool, room *int) {
	k.past.Store(nil)
	k.mu.Lock()
	k.cut(k.log.expiredCount(now))
	events := k.log.events
	k.mu.Unlock()
	if !encodings {
		return
	}
	for _, e := range events {
		if e.Previous != nil {
			e.Previous.sweep(room)
		}
		if e.Type == Deleted {
			e.Entry.sweep(room)
		}
	}
	k.Snapshot().state.entries.Scan(func(e *Entry) bool { e.sweep(room); return true })
}
