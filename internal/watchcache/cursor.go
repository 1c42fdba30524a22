package watchcache

import (
	"context"

	"github.com/coracle-io/coracle/internal/store"
)

// Cursor reads the log of a kind. It needs no closing. It must not be used by
// two goroutines at a time.
type Cursor struct {
	kind  *Kind
	log   *log
	next  int64 // sequence number of the next event to read
	after int64 // events up to this revision are not for this cursor
	taken []*Event
	atEnd bool // nothing was left in the log
}

// A cursor holds no more of the log than a part of these sizes, so that one
// that is not read further lets go of the rest.
const (
	takenCount = 256
	takenSize  = 256 << 10 // bytes of stored objects
)

// Watch returns a cursor that stands after revision. It fails with
// store.ErrCompacted if the log no longer reaches back so far.
func (k *Kind) Watch(after int64) (*Cursor, error) { return k.WatchScope(after, Scope{}) }

// WatchScope is Watch for the events of a scope. Nothing else wakes the
// cursor, however many of them there are.
func (k *Kind) WatchScope(after int64, scope Scope) (*Cursor, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.removed {
		return nil, ErrRemoved
	}
	key, ok := scope.key(k.state.fields)
	if after < k.floor(key) {
		return nil, store.ErrCompacted
	}
	l := &k.log
	if ok {
		l = k.scopes.open(key, l, k.state.fields, after)
	}
	return &Cursor{kind: k, log: l, next: l.base + int64(l.index(after)), after: after}, nil
}

// Floor is the oldest revision after which a cursor of a scope can begin.
func (k *Kind) Floor(scope Scope) int64 {
	k.mu.RLock()
	defer k.mu.RUnlock()
	key, _ := scope.key(k.state.fields)
	return k.floor(key)
}

// Next waits for events after the cursor and returns the next of them, and the
// revision up to which the kind is known with them (for bookmarks). The events
// are the caller's until the next call. It returns without events when only the wait ended: ctx done (its error) or wake
// received; what came until then it returns all the same. store.ErrCompacted
// says that the log has moved past the cursor, ErrRemoved that the resource
// is gone.
func (c *Cursor) Next(ctx context.Context, wake <-chan struct{}) (events []*Event, revision int64, err error) {
	for woken := false; ; {
		// Known is read before the log, so that no event up to it is missed.
		known := c.kind.cache.revision.load()
		more, err := c.read()
		n := len(c.taken)
		switch {
		case err != nil:
			return nil, known, err
		case n > 0 && !c.atEnd:
			return c.taken, c.taken[n-1].Revision, nil
		case n > 0:
			return c.taken, max(known, c.taken[n-1].Revision), ctx.Err()
		case woken || ctx.Err() != nil:
			return nil, known, ctx.Err()
		}
		select {
		case <-more:
		case <-wake:
			woken = true
		case <-ctx.Done():
		}
	}
}

// read takes what is in the log beyond the cursor, or returns the channel that
// the next append closes.
func (c *Cursor) read() (more <-chan struct{}, err error) {
	// What was taken before is let go of, also while waiting.
	clear(c.taken)
	c.taken = c.taken[:0]
	k := c.kind
	k.mu.RLock()
	more, err = c.take()
	k.mu.RUnlock()
	if err == nil && len(c.taken) == 0 && more == nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		if c.log.more == nil {
			c.log.more = make(chan struct{})
		}
		return c.take()
	}
	return more, err
}

// take advances the cursor. Callers hold the kind's mutex.
func (c *Cursor) take() (more <-chan struct{}, err error) {
	if c.kind.removed {
		return nil, ErrRemoved
	}
	if c.next < c.log.whole {
		return nil, store.ErrCompacted
	}
	end := c.log.end()
	for size := 0; c.next < end && len(c.taken) < takenCount && size < takenSize; c.next++ {
		e := c.log.events[c.next-c.log.base]
		if e.Revision <= c.after {
			continue
		}
		e.Entry.seal.check(e.Entry.Object)
		c.taken = append(c.taken, e)
		if size += e.Entry.size; e.Previous != nil {
			size += e.Previous.size
		}
	}
	c.atEnd = c.next == end
	return c.log.more, nil
}
