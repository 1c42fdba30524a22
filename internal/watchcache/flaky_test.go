package watchcache_test

import (
	"context"
	"sync"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// flaky is a store that can become unavailable and whose watches can be ended.
type flaky struct {
	store.Store
	mu          sync.Mutex // guards the following
	unavailable bool
	next        error // the next watch ends with it immediately
	watches     []*flakyWatch
}

// flakyWatch is a watch that returns end as its last error when it is canceled.
type flakyWatch struct {
	cancel context.CancelFunc
	end    error
}

// breakWatches ends each watch with err, or with ErrUnavailable if err is nil.
func (f *flaky) breakWatches(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		err = store.ErrUnavailable
	}
	if len(f.watches) == 0 {
		f.next = err // the cache is between two watches
	}
	for _, w := range f.watches {
		w.end = err
		w.cancel()
	}
	f.watches = nil
}

// setUnavailable makes the store return ErrUnavailable, or makes it available
// again.
func (f *flaky) setUnavailable(unavailable bool) {
	f.mu.Lock()
	f.unavailable = unavailable
	f.mu.Unlock()
	if unavailable {
		f.breakWatches(nil)
	}
}

func (f *flaky) isUnavailable() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.unavailable
}

func (f *flaky) CurrentRevision(ctx context.Context) (int64, error) {
	if f.isUnavailable() {
		return 0, store.ErrUnavailable
	}
	return f.Store.CurrentRevision(ctx)
}

func (f *flaky) List(ctx context.Context, prefix string, opts store.ListOptions) (store.Page, error) {
	if f.isUnavailable() {
		return store.Page{}, store.ErrUnavailable
	}
	return f.Store.List(ctx, prefix, opts)
}

func (f *flaky) Watch(ctx context.Context, prefix string, after int64) <-chan store.Batch {
	out := make(chan store.Batch)
	inner, cancel := context.WithCancel(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	w := &flakyWatch{cancel: cancel, end: f.next}
	f.next = nil
	if f.unavailable {
		w.end = store.ErrUnavailable
	}
	if w.end == nil {
		f.watches = append(f.watches, w)
	} else {
		cancel()
	}
	in := f.Store.Watch(inner, prefix, after)
	go func() {
		defer close(out)
		defer cancel()
		for batch := range in {
			select {
			case out <- batch:
			case <-ctx.Done():
			}
		}
		f.mu.Lock()
		end := store.Batch{Err: w.end}
		f.mu.Unlock()
		select {
		case out <- end:
		case <-ctx.Done():
		}
	}()
	return out
}

// start runs a new cache until stop is called. It returns once the cache has
// synced.
func start(s store.Store, rs ...*resource.Resource) (c *watchcache.Cache, stop func()) {
	c = watchcache.New(s, rs)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.Run(ctx)
	}()
	<-c.Synced()
	return c, func() { cancel(); <-done }
}
