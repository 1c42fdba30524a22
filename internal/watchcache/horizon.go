package watchcache

import (
	"sync/atomic"
	"time"
)

// horizon is the oldest revision for which the cache answers. For older revisions,
// only the store knows whether they are compacted, even if nothing has changed
// since: clients rely on an expired continue token being rejected.
type horizon struct {
	revision atomic.Int64
	marks    []mark // oldest first; used only by Run
}

// mark is the revision that the cache had reached at a time.
type mark struct {
	at       time.Time
	revision int64
}

func (h *horizon) load() int64 { return h.revision.Load() }

// since returns the revision that the cache had reached at a time, or 0 if that is
// unknown.
func (h *horizon) since(t time.Time) (revision int64) {
	for _, m := range h.marks {
		if m.at.After(t) {
			break
		}
		revision = m.revision
	}
	return revision
}

// advance records the current revision and moves the horizon to the revision of
// logAge ago.
func (h *horizon) advance(now time.Time, revision int64) {
	h.marks = append(h.marks, mark{now, revision})
	n := 0
	for !h.marks[n].at.After(now.Add(-logAge)) {
		h.revision.Store(h.marks[n].revision)
		n++
	}
	h.marks = append(h.marks[:0], h.marks[n:]...)
}
