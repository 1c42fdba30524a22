package watchcache

import (
	"reflect"
	"time"
)

// Objects that live for a while and then go by themselves, as events do, are
// what a load leaves behind: each in a dozen pieces, among others that have
// gone, so that a few bytes keep whole pages of memory.
//
//	before  [e.......][...e....][.e......][......e.]
//	after   [eeee....]
//
// Copied once the load is over they lie together, and the pages are given back.
const (
	// repackQuiet is how many events between two sweeps are no load.
	repackQuiet = 1000
	// repackCount is how many objects are worth it.
	repackCount = 500
	// repackSlice is how long events may wait for copies, every repackPause.
	repackSlice = 5 * time.Millisecond
	repackPause = 50 * time.Millisecond
)

// repacking is the entries that are still to be copied.
type repacking struct {
	applied int64 // events at the last sweep
	entries []*Entry
	kinds   []*Kind // of entries
}

// collect finds what is to be copied: what has been there since before
// revision, in kinds whose objects go by themselves.
func (r *repacking) collect(kinds map[string]*Kind, revision int64) {
	if revision == 0 {
		return
	}
	var applied int64
	for _, k := range kinds {
		applied += k.received.Load()
	}
	quiet := applied-r.applied < repackQuiet
	r.applied = applied
	if !quiet || len(r.entries) > 0 {
		return
	}
	for _, k := range kinds {
		if k.Resource().TTL == 0 || k.packed >= k.Changed() {
			continue
		}
		k.packed = min(revision, k.Changed())
		if entries := k.scattered(revision); len(entries) >= repackCount {
			// The log has them too: it lets go of what is not fresh any more.
			k.forget(func(l *log) int { return l.index(revision) })
			for _, e := range entries {
				r.entries, r.kinds = append(r.entries, e), append(r.kinds, k)
			}
		}
	}
}

// scattered is the entries from before a revision that are no copies.
func (k *Kind) scattered(revision int64) (entries []*Entry) {
	k.Snapshot().state.entries.Scan(func(e *Entry) bool {
		if !e.packed && e.Revision <= revision {
			entries = append(entries, e)
		}
		return true
	})
	return entries
}

// step copies for a moment, and tells whether there is more to do.
func (r *repacking) step() (more bool) {
	for begun := time.Now(); len(r.entries) > 0 && time.Since(begun) < repackSlice; {
		k, n := r.kinds[0], 1
		for n < min(len(r.entries), packObjects) && r.kinds[n] == k {
			n++
		}
		k.repack(r.entries[:n])
		clear(r.entries[:n])
		r.entries, r.kinds = r.entries[n:], r.kinds[n:]
	}
	if len(r.entries) == 0 {
		r.entries, r.kinds = nil, nil
		return false
	}
	return true
}

// repack puts copies in the place of entries, those that are still there.
// Nobody is told, for nothing has changed.
func (k *Kind) repack(entries []*Entry) {
	copies := packEntries(entries)
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, e := range entries {
		if now, ok := k.state.get(e.Position()); ok && now == e {
			k.state.set(copies[i])
		}
	}
	k.shared.Store(nil)
}

// packEntries returns copies of entries that lie together.
func packEntries(entries []*Entry) []*Entry {
	p := newPacker()
	pieces := make([]Entry, len(entries))
	copies := make([]*Entry, len(entries))
	for i, e := range entries {
		c := &pieces[i]
		c.Object, c.Namespace, c.Name = p.object(e.Object), p.string(e.Namespace), p.string(e.Name)
		c.Revision, c.size, c.packed = e.Revision, e.size, true
		p.copy(reflect.ValueOf(&c.index).Elem(), reflect.ValueOf(e.index))
		c.seal.close(c.Object)
		copies[i] = c
	}
	return copies
}
