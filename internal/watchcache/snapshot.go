package watchcache

import "sort"

// Snapshot is the state of a kind at Revision. It never changes.
type Snapshot struct {
	Revision int64
	last     int64 // revision of the last change it contains
	state    *state
}

// Len is the number of objects.
func (s Snapshot) Len() int { return s.state.entries.Len() }

// Get returns one object.
func (s Snapshot) Get(namespace, name string) (*Entry, bool) {
	return s.state.get(Position{namespace, name})
}

// Ascend visits the objects of one namespace ("" is all) in key order, from
// the one after (namespace, name) given in after ("" is the start) until
// visit returns false.
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

// Count is how many objects of one namespace ("" is all) come after a
// position. It costs the same however many they are, but for a logarithm.
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

// rank is how many objects come before the first that is beyond a border.
func (s Snapshot) rank(beyond func(*Entry) bool) int {
	return sort.Search(s.state.entries.Len(), func(i int) bool {
		e, _ := s.state.entries.GetAt(i)
		return beyond(e)
	})
}

// Lookup visits the objects after a position whose indexed field
// (resource.Indexed) has value, in key order, until visit returns false. ok is
// false if there is no such index.
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
	// Known is read before the state, which is never behind it.
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

// SnapshotAt returns the view as of a past revision of the last few minutes, as
// long as the event log reaches back to it; ok is false otherwise, and for a
// revision that the cache has not reached.
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
