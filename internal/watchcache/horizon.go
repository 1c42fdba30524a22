package watchcache

import (
	"sync/atomic"
	"time"
)

// horizon is the oldest revision as of which the cache answers. Of older ones
// only the store can say whether they are still kept, however little has
// changed since: clients count on it that a list which they continue too late,
// after a compaction, is refused.
type horizon struct {
	revision atomic.Int64
	marks    []mark // oldest first; belong to who calls pass
}

// mark is which revision the cache had reached at a time.
type mark struct {
	at       time.Time
	revision int64
}

func (h *horizon) load() int64 { return h.revision.Load() }

// since is the revision that the cache had reached by a time, of those that
// were noted; 0 if that is not known.
func (h *horizon) since(t time.Time) (revision int64) {
	for _, m := range h.marks {
		if m.at.After(t) {
			break
		}
		revision = m.revision
	}
	return revision
}

// pass notes how far the cache is now and moves on to where it was logAge ago.
func (h *horizon) pass(now time.Time, revision int64) {
	h.marks = append(h.marks, mark{now, revision})
	n := 0
	for !h.marks[n].at.After(now.Add(-logAge)) {
		h.revision.Store(h.marks[n].revision)
		n++
	}
	h.marks = append(h.marks[:0], h.marks[n:]...)
}
