package watchcache

import (
	"bytes"
	"strconv"
	"sync"

	"github.com/coracle-io/coracle/internal/resource"
)

// loans holds the objects of writes that are under way. The store reports a
// write to the writer and to the watch in either order; whichever comes first
// learns the revision and completes the object:
//
//	writer   lend ─── store.Create ─────────────► settled (revision 7)
//	watch                       event 7 ──► take ── or ──► take
//
// An event belongs to a loan if key and bytes are the same. Equal bytes are
// an equal object, so that it does not matter whose of two equal loans it is.
// A deletion has no bytes; it belongs to a loan that deletes the very revision
// that was there before it, since others with the same key are going to fail.
type loans struct {
	mu      sync.Mutex // guards everything, and the objects until they are complete
	pending map[Position][]*loan
	seen    int64 // events up to this revision have been taken or decoded
}

// loan is the object of one write. value is nil for a deletion.
type loan struct {
	at      Position
	obj     resource.Object
	value   []byte
	deletes int64  // the revision that a deletion is of
	entry   *Entry // set once the revision is known
}

// lend announces a write.
func (l *loans) lend(lent *loan) *loan {
	at := lent.at
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending[at] = append(l.pending[at], lent)
	return lent
}

// complete makes the entry of a loan. Callers hold mu.
func (lent *loan) complete(r *resource.Resource, revision int64) *Entry {
	if lent.entry == nil {
		lent.obj.SetResourceVersion(strconv.FormatInt(revision, 10))
		lent.entry = newEntry(r, lent.obj, lent.at, revision, len(lent.value))
	}
	return lent.entry
}

// succeeded is the writer learning the revision. The loan stays for the event
// if that is still to come.
func (l *loans) succeeded(r *resource.Resource, lent *loan, revision int64) *Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	if revision <= l.seen {
		l.drop(lent)
	}
	if lent.entry != nil && lent.entry.Revision != revision {
		// An equal write of someone else took this loan.
		return newEntry(r, atRevision(lent.obj, revision), lent.at, revision, len(lent.value))
	}
	return lent.complete(r, revision)
}

// failed takes a loan back.
func (l *loans) failed(lent *loan) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(lent)
}

// take returns the entry for an event, or nil if nobody lent it, and forgets
// the loans that this event has overtaken. previous tells the revision that
// was at the position before a deletion.
func (l *loans) take(r *resource.Resource, at Position, value []byte, revision int64, previous func() int64) *Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = max(l.seen, revision)
	pending := l.pending[at]
	if len(pending) == 0 {
		return nil
	}
	var match *loan
	for _, lent := range pending {
		switch {
		case lent.entry != nil && lent.entry.Revision == revision:
			match = lent
		case match == nil && lent.entry == nil && lent.fits(value, previous):
			match = lent
		}
	}
	if match == nil {
		l.settlePosition(at, revision)
		return nil
	}
	e := match.complete(r, revision)
	l.settlePosition(at, revision)
	return e
}

// fits says whether an event may be that of this loan.
func (lent *loan) fits(value []byte, previous func() int64) bool {
	if lent.value == nil || value == nil {
		return lent.value == nil && value == nil && lent.deletes == previous()
	}
	return bytes.Equal(lent.value, value)
}

// settle forgets the loans that events up to revision would have taken.
func (l *loans) settle(revision int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = max(l.seen, revision)
	for at := range l.pending {
		l.settlePosition(at, revision)
	}
}

func (l *loans) settlePosition(at Position, revision int64) {
	for _, lent := range l.pending[at] {
		if lent.entry != nil && lent.entry.Revision <= revision {
			l.drop(lent)
		}
	}
}

// drop removes a loan; its list is replaced, never changed in place.
func (l *loans) drop(lent *loan) {
	var rest []*loan
	for _, other := range l.pending[lent.at] {
		if other != lent {
			rest = append(rest, other)
		}
	}
	if len(rest) == 0 {
		delete(l.pending, lent.at)
	} else {
		l.pending[lent.at] = rest
	}
}
