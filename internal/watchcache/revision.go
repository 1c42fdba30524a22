package watchcache

import (
	"context"
	"sync"
	"sync/atomic"
)

// revision is a number that only increases and that goroutines can wait for.
type revision struct {
	value   atomic.Int64
	waiting atomic.Int32
	mu      sync.Mutex    // guards reached
	reached chan struct{} // closed when value increases; nil without waiters
}

func (r *revision) load() int64 { return r.value.Load() }

// raise sets the value and wakes the waiters. Only one goroutine calls it.
func (r *revision) raise(to int64) {
	if to <= r.value.Load() {
		return
	}
	r.value.Store(to)
	if r.waiting.Load() == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reached != nil {
		close(r.reached)
		r.reached = nil
	}
}

// wait blocks until the value is at least atLeast, or ctx is done.
func (r *revision) wait(ctx context.Context, atLeast int64) error {
	if r.value.Load() >= atLeast {
		return nil
	}
	r.waiting.Add(1)
	defer r.waiting.Add(-1)
	for {
		r.mu.Lock()
		if r.value.Load() >= atLeast {
			r.mu.Unlock()
			return nil
		}
		if r.reached == nil {
			r.reached = make(chan struct{})
		}
		reached := r.reached
		r.mu.Unlock()
		select {
		case <-reached:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
