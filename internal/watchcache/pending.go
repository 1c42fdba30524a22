package watchcache

import (
	"bytes"
	"strconv"
	"sync"

	"github.com/coracle-io/coracle/internal/resource"
)

// pendingWrites holds the objects of writes in progress, so that the cache need not decode
// them. The store reports a write to the writer and to the watch in either order. The first
// to learn the revision completes the object:
//
//	writer   add ─── store.Create ─────────────► succeeded (revision 7)
//	watch                       event 7 ──► take ── or ──► take
//
// An event belongs to a pending write if key and bytes are equal. Equal bytes mean equal
// objects, so it does not matter which of two equal writes is taken. A deletion has no
// bytes. It belongs to the write that deletes the revision that existed before it, because
// other deletions of the key will fail.
type pendingWrites struct {
	mu      sync.Mutex // guards everything, and the objects until they are complete
	pending map[Position][]*pendingWrite
	seen    int64 // events up to this revision have been taken or decoded
}

// pendingWrite is the object of one write. value is nil for a deletion.
type pendingWrite struct {
	r       *resource.Resource // as of the start of the write
	at      Position
	obj     resource.Object
	value   []byte
	deletes int64  // the revision that a deletion is of
	entry   *Entry // set once the revision is known
}

// add registers a write before it is sent to the store.
func (p *pendingWrites) add(w *pendingWrite) *pendingWrite {
	at := w.at
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending[at] = append(p.pending[at], w)
	return w
}

// complete creates the entry of a write. Callers hold mu.
func (w *pendingWrite) complete(revision int64) *Entry {
	if w.entry == nil {
		w.obj.SetResourceVersion(strconv.FormatInt(revision, 10))
		w.entry = newEntry(w.r, w.obj, w.at, revision, len(w.value))
	}
	return w.entry
}

// succeeded is called by the writer with the revision of its write. The write stays
// registered until its event arrives.
func (p *pendingWrites) succeeded(w *pendingWrite, revision int64) *Entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	if revision <= p.seen {
		p.drop(w)
	}
	if w.entry != nil && w.entry.Revision != revision {
		// The event of an equal write by another server took this one.
		return newEntry(w.r, atRevision(w.obj, revision), w.at, revision, len(w.value))
	}
	return w.complete(revision)
}

// failed removes a write that has failed.
func (p *pendingWrites) failed(w *pendingWrite) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop(w)
}

// take returns the entry for an event, or nil if there is no pending write for it,
// and forgets the writes before this event. A write that began with an earlier
// definition of the resource has an entry of another form, and does not count.
// previous returns the revision of the object before a deletion.
func (p *pendingWrites) take(r *resource.Resource, at Position, value []byte, revision int64, previous func() int64) *Entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = max(p.seen, revision)
	pending := p.pending[at]
	if len(pending) == 0 {
		return nil
	}
	var match *pendingWrite
	for _, w := range pending {
		switch {
		case w.r != r && !sameEntries(w.r, r):
		case w.entry != nil && w.entry.Revision == revision:
			match = w
		case match == nil && w.entry == nil && w.matches(value, previous):
			match = w
		}
	}
	if match == nil {
		p.forgetAt(at, revision)
		return nil
	}
	e := match.complete(revision)
	p.forgetAt(at, revision)
	return e
}

// matches reports whether an event may belong to this write.
func (w *pendingWrite) matches(value []byte, previous func() int64) bool {
	if w.value == nil || value == nil {
		return w.value == nil && value == nil && w.deletes == previous()
	}
	return bytes.Equal(w.value, value)
}

// forgetUpTo forgets the writes whose events are not after revision.
func (p *pendingWrites) forgetUpTo(revision int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = max(p.seen, revision)
	for at := range p.pending {
		p.forgetAt(at, revision)
	}
}

func (p *pendingWrites) forgetAt(at Position, revision int64) {
	for _, w := range p.pending[at] {
		if w.entry != nil && w.entry.Revision <= revision {
			p.drop(w)
		}
	}
}

// drop removes a write. It replaces the list and does not change it in place.
func (p *pendingWrites) drop(w *pendingWrite) {
	var rest []*pendingWrite
	for _, other := range p.pending[w.at] {
		if other != w {
			rest = append(rest, other)
		}
	}
	if len(rest) == 0 {
		delete(p.pending, w.at)
	} else {
		p.pending[w.at] = rest
	}
}
