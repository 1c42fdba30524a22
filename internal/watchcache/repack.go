package watchcache

import (
	"reflect"
	"time"
)

// After a load, objects that expire, such as Events, are scattered in memory: each
// consists of a dozen allocations between freed ones, so that few bytes keep whole
// pages in use.
//
//	before  [e.......][...e....][.e......][......e.]
//	after   [eeee....]
//
// Copying them after the load to contiguous memory frees the pages.
const (
	// repackQuiet is the maximum number of events between two sweeps without load.
	repackQuiet = 1000
	// repackCount is the minimum number of objects to repack.
	repackCount = 500
	// repackSlice is the maximum time of one step, every repackPause.
	repackSlice = 5 * time.Millisecond
	repackPause = 50 * time.Millisecond
)

// repacking holds the entries that remain to be copied.
type repacking struct {
	applied int64 // events at the last sweep
	entries []*Entry
	kinds   []*Kind // of entries
}

// collect finds the entries to copy: those from before revision of kinds whose
// objects expire. It does nothing under load.
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
		if k.Resource().Storage.TTL == 0 || k.packed >= k.Changed() {
			continue
		}
		k.packed = min(revision, k.Changed())
		if entries := k.unpacked(revision); len(entries) >= repackCount {
			// The log refers to the entries, too. Drop its events up to revision.
			k.forget(func(l *log) int { return l.index(revision) })
			for _, e := range entries {
				r.entries, r.kinds = append(r.entries, e), append(r.kinds, k)
			}
		}
	}
}

// unpacked returns the entries up to a revision that are not copies.
func (k *Kind) unpacked(revision int64) (entries []*Entry) {
	k.Snapshot().state.entries.Scan(func(e *Entry) bool {
		if !e.packed && e.Revision <= revision {
			entries = append(entries, e)
		}
		return true
	})
	return entries
}

// step copies entries for up to repackSlice and reports whether there are more.
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

// repack replaces entries by copies unless they have changed. It does not notify
// watchers, because the objects are equal.
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

// packEntries returns copies of entries in contiguous memory.
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
