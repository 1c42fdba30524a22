package watchcache

import "sort"

// Snapshot is the immutable state of a kind at Revision.
type Snapshot struct {
	Revision int64
	last     int64 // revision of the last change it contains
	state    *state
}

// Len returns the number of objects.
func (s Snapshot) Len() int { return s.state.entries.Len() }

// Get returns an object.
func (s Snapshot) Get(namespace, name string) (*Entry, bool) {
	return s.state.get(Position{namespace, name})
}

// Ascend calls visit for the objects of a namespace ("" means all) after a position,
// in key order, until visit returns false. The zero position is the start.
func (s Snapshot) Ascend(namespace string, after Position, visit func(*Entry) bool) {
	start := after
	if first := (Position{Namespace: namespace}); start.Compare(first) < 0 {
		start = first
	}
	s.state.entries.Ascend(&Entry{Namespace: start.Namespace, Name: start.Name}, func(e *Entry) bool {
		if namespace != "" && e.Namespace != namespace {
			return false
		}
		if e.Position() == after {
			return true
		}
		e.seal.check(e.Object)
		return visit(e)
	})
}

// Count returns the number of objects of a namespace ("" means all) after a
// position, in logarithmic time.
func (s Snapshot) Count(namespace string, after Position) int {
	entries := s.state.entries
	begin := s.rank(func(e *Entry) bool { return e.Position().Compare(after) > 0 })
	if namespace == "" {
		return entries.Len() - begin
	}
	first := Position{Namespace: namespace}
	begin = max(begin, s.rank(func(e *Entry) bool { return e.Position().Compare(first) > 0 }))
	return s.rank(func(e *Entry) bool { return e.Namespace != namespace && e.Position().Compare(first) > 0 }) - begin
}

// rank returns the number of objects before the first for which beyond is true.
func (s Snapshot) rank(beyond func(*Entry) bool) int {
	return sort.Search(s.state.entries.Len(), func(i int) bool {
		e, _ := s.state.entries.GetAt(i)
		return beyond(e)
	})
}

// Lookup calls visit for the objects after a position whose indexed field
// (resource.Indexed) has value, in key order, until visit returns false. ok is false
// if there is no such index.
func (s Snapshot) Lookup(field, value string, after Position, visit func(*Entry) bool) (ok bool) {
	for i, f := range s.state.fields {
		if f != field {
			continue
		}
		s.state.indexes[i].Ascend(indexed{value, &Entry{Namespace: after.Namespace, Name: after.Name}}, func(x indexed) bool {
			if x.value != value {
				return false
			}
			if x.entry.Position() == after {
				return true
			}
			x.entry.seal.check(x.entry.Object)
			return visit(x.entry)
		})
		return true
	}
	return false
}

// Snapshot returns an immutable view of all objects, in O(1).
func (k *Kind) Snapshot() Snapshot {
	// Read known before the state, so that the state is not older.
	known := k.cache.revision.load()
	shared := k.shared.Load()
	if shared == nil {
		k.mu.Lock()
		if shared = k.shared.Load(); shared == nil {
			shared = &Snapshot{last: k.revision}
			state := k.state.copy()
			shared.state = &state
			k.shared.Store(shared)
		}
		k.mu.Unlock()
	}
	return Snapshot{Revision: max(known, shared.last), last: shared.last, state: shared.state}
}

// SnapshotAt returns the state at a past revision. ok is false if the log does not
// reach back to it, or if the cache has not reached it.
func (k *Kind) SnapshotAt(revision int64) (s Snapshot, ok bool) {
	now := k.Snapshot()
	if revision > now.Revision || revision < k.cache.horizon.load() {
		return Snapshot{}, false
	}
	if revision >= now.last {
		return Snapshot{Revision: revision, last: now.last, state: now.state}, true
	}
	if past := k.past.Load(); past != nil && past.Revision == revision {
		return *past, true
	}
	k.mu.Lock()
	if revision < k.log.floor {
		k.mu.Unlock()
		return Snapshot{}, false
	}
	state := k.state.copy()
	events := k.log.events[k.log.index(revision):]
	k.mu.Unlock()
	state.undo(events)
	past := &Snapshot{Revision: revision, last: revision, state: &state}
	k.past.Store(past)
	return *past, true
}
