package watchcache

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/coracle-io/coracle/internal/store"
)

// freshTimeout limits one read of the store's revision, so that callers with a
// distant deadline get an error when the store is unavailable.
const freshTimeout = 3 * time.Second

// freshness shares linearizable reads of the store's revision. A caller that arrives
// during a read waits for the next one, which starts after all its callers have
// arrived. There is one goroutine, so there is at most one read at a time.
type freshness struct {
	mu     sync.Mutex // guards next
	next   *reading
	wanted chan struct{}
}

// reading is one read of the store's revision, shared by several callers.
type reading struct {
	done     chan struct{}
	revision int64
	err      error
}

func newFreshness() *freshness { return &freshness{wanted: make(chan struct{}, 1)} }

// join returns a reading that has not started.
func (f *freshness) join() *reading {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.next == nil {
		f.next = &reading{done: make(chan struct{})}
		f.wanted <- struct{}{}
	}
	return f.next
}

// run performs readings until ctx is done.
func (f *freshness) run(ctx context.Context, s store.Store) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.wanted:
		}
		f.mu.Lock()
		r := f.next
		f.next = nil
		f.mu.Unlock()
		read, cancel := context.WithTimeout(ctx, freshTimeout)
		r.revision, r.err = s.CurrentRevision(read)
		if r.err != nil && read.Err() != nil {
			r.err = fmt.Errorf("%w: no answer within %s", store.ErrUnavailable, freshTimeout)
		}
		cancel()
		close(r.done)
	}
}

// Fresh waits until the cache has reached the current revision of the store, and
// returns it. Concurrent callers share a read of the store.
func (c *Cache) Fresh(ctx context.Context) (int64, error) {
	r := c.fresh.join()
	select {
	case <-r.done:
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-c.stopped:
		return 0, fmt.Errorf("%w: watch cache has stopped", store.ErrUnavailable)
	}
	if r.err != nil {
		return 0, fmt.Errorf("read the store's revision: %w", r.err)
	}
	if err := c.WaitFor(ctx, r.revision); err != nil {
		return 0, err
	}
	return r.revision, nil
}
