package watchcache

import (
	"context"

	"github.com/coracle-io/coracle/internal/store"
)

// Cursor reads the event log of a kind or scope. It need not be closed. It must not
// be used by several goroutines at the same time.
type Cursor struct {
	kind  *Kind
	log   *log
	next  int64 // sequence number of the next event to read
	after int64 // events up to this revision are skipped
	batch []*Event
	atEnd bool // batch contains the last event of the log
}

// A cursor holds at most this much of the log, so that a cursor that is not read
// does not keep old events in memory.
const (
	readCount = 256
	readSize  = 256 << 10 // bytes of stored objects
)

// Watch returns a cursor for the events after a revision. It fails with
// store.ErrCompacted if the log no longer contains all of them.
func (k *Kind) Watch(after int64) (*Cursor, error) { return k.WatchScope(after, Scope{}) }

// WatchScope is like Watch for the events of a scope. Other events do not wake the
// cursor.
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

// Floor returns the oldest revision at which a cursor of a scope can start.
func (k *Kind) Floor(scope Scope) int64 {
	k.mu.RLock()
	defer k.mu.RUnlock()
	key, _ := scope.key(k.state.fields)
	return k.floor(key)
}

// Next waits for events and returns the next of them, and the revision up to which
// the watcher then knows all events (for bookmarks). The events are valid until the
// next call. Next returns without events if ctx is done (with its error) or if it
// receives from wake; it still returns events that arrived until then. It returns
// store.ErrCompacted if the cursor has fallen behind the log, and ErrRemoved if the
// resource has been removed.
func (c *Cursor) Next(ctx context.Context, wake <-chan struct{}) (events []*Event, revision int64, err error) {
	for woken := false; ; {
		// Read known before the log, so that the log contains all events up to
		// known.
		known := c.kind.cache.revision.load()
		more, err := c.read()
		n := len(c.batch)
		switch {
		case err != nil:
			return nil, known, err
		case n > 0 && !c.atEnd:
			return c.batch, c.batch[n-1].Revision, nil
		case n > 0:
			return c.batch, max(known, c.batch[n-1].Revision), ctx.Err()
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

// read reads events from the log, or returns the channel that the next append
// closes.
func (c *Cursor) read() (more <-chan struct{}, err error) {
	// Release the previous events, also while waiting.
	clear(c.batch)
	c.batch = c.batch[:0]
	k := c.kind
	k.mu.RLock()
	more, err = c.take()
	k.mu.RUnlock()
	if err == nil && len(c.batch) == 0 && more == nil {
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
	for size := 0; c.next < end && len(c.batch) < readCount && size < readSize; c.next++ {
		e := c.log.events[c.next-c.log.base]
		if e.Revision <= c.after {
			continue
		}
		e.Entry.seal.check(e.Entry.Object)
		c.batch = append(c.batch, e)
		if size += e.Entry.size; e.Previous != nil {
			size += e.Previous.size
		}
	}
	c.atEnd = c.next == end
	return c.log.more, nil
}
