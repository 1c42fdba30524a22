package watchcache

import (
	"context"
	"errors"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/supervise"
)

const (
	sweepEvery = 15 * time.Second       // for expired events; every second sweep also drops encodings
	retryAfter = 100 * time.Millisecond // while the store is unavailable
)

// Run initializes the cache and follows the store until ctx is done. It recovers
// from all errors of the store. While the store is unavailable, the cache answers
// with its current state. If the cache falls behind a compaction, or is found to have
// other objects than the store, it is initialized again, and all cursors fail with
// store.ErrCompacted.
func (c *Cache) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg supervise.WaitGroup
	wg.Go(ctx, func() { c.fresh.run(ctx, c.store) })
	wg.Go(ctx, func() { c.compareAll(ctx) })
	defer wg.Wait()
	defer close(c.stopped)
	defer cancel()
	away := outage{log: klog.FromContext(ctx), cache: c}
	for filled := false; ctx.Err() == nil; {
		if err := c.initialize(ctx); err != nil {
			away.pause(ctx, err)
			continue
		}
		away.over()
		if !filled {
			filled = true
			close(c.synced)
		}
		for ctx.Err() == nil {
			known := c.Revision()
			err := c.follow(ctx)
			if errors.Is(err, store.ErrCompacted) {
				away.log.Info("Fell behind a compaction of the store, initializing again", "revision", c.Revision())
				break
			}
			if errors.Is(err, errInconsistent) {
				break
			}
			if c.Revision() > known {
				away.over()
			}
			away.pause(ctx, err)
		}
	}
	return nil
}

// outage logs when the store becomes unavailable and when it is available again.
type outage struct {
	log   klog.Logger
	cache *Cache
	since time.Time // zero while the store is available
}

// pause records a failure and waits before the next attempt.
func (o *outage) pause(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	if o.since.IsZero() {
		o.since = time.Now()
		o.log.Error(err, "The store is unavailable, answering from the cache and retrying", "revision", o.cache.Revision(), "every", retryAfter)
	}
	supervise.Pause(ctx, retryAfter)
}

func (o *outage) over() {
	if !o.since.IsZero() {
		o.log.Info("The store is available again", "revision", o.cache.Revision(), "unavailable", time.Since(o.since))
		o.since = time.Time{}
	}
}

// errWatchClosed is the error for a store that closes a watch without an error.
var errWatchClosed = errors.New("watch closed without an error")

// follow applies the events of the store after the cache's revision until the watch
// ends, and returns the error of the watch.
func (c *Cache) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	batches := c.store.Watch(ctx, Prefix, c.Revision())
	defer func() {
		cancel()
		for range batches {
		}
	}()
	sweep := time.NewTicker(sweepEvery)
	defer sweep.Stop()
	var copies repacking
	for encodings, more := false, false; ; {
		var retry, repack <-chan time.Time
		if more {
			repack = time.After(repackPause)
		}
		if c.waiting = c.add(ctx, c.waiting); len(c.waiting) > 0 {
			retry = time.After(retryAfter)
		}
		select {
		case batch, ok := <-batches:
			switch {
			case !ok && ctx.Err() != nil:
				return ctx.Err()
			case !ok:
				return errWatchClosed
			case batch.Err != nil:
				return batch.Err
			}
			c.apply(ctx, batch)
		case a := <-c.requests:
			c.waiting = append(c.waiting, a)
		case <-c.inconsistent:
			return errInconsistent
		case now := <-sweep.C:
			c.horizon.advance(now, c.Revision())
			room := conversionRoom
			for _, k := range c.byPath() {
				k.sweep(now, encodings, &room)
			}
			encodings = !encodings
			c.trim()
			copies.collect(c.byPath(), c.horizon.since(now.Add(-freshAge)))
			more = len(copies.entries) > 0
		case <-repack:
			more = copies.step()
		case <-retry:
		}
	}
}

// apply makes a batch visible, for each kind atomically.
func (c *Cache) apply(ctx context.Context, batch store.Batch) {
	kinds := c.byPath()
	now := time.Now()
	for start := 0; start < len(batch.Events); {
		k, _ := route(kinds, batch.Events[start].Key)
		changes, end := c.collect(ctx, kinds, k, batch.Events[start:])
		if k != nil {
			c.history += int64(k.commit(changes, now))
		}
		start += end
	}
	c.revision.raise(batch.Revision)
	if c.history > c.historyLimit {
		c.trim()
	}
}

// collect decodes the leading events that belong to k.
func (c *Cache) collect(ctx context.Context, kinds map[string]*Kind, k *Kind, events []store.Event) (changes []change, end int) {
	for i, e := range events {
		other, at := route(kinds, e.Key)
		if other != k {
			return changes, i
		}
		if k == nil {
			continue
		}
		ch, err := k.decode(at, e, changes)
		if err != nil {
			supervise.RecordPanic(ctx, err)
			klog.FromContext(ctx).Error(err, "Stored value is hidden from the API until it is overwritten or deleted", "key", e.Key, "revision", e.Revision)
		}
		changes = append(changes, ch)
	}
	return changes, len(events)
}

// route returns the kind and position of a key, or nil if it belongs to no kind:
//
//	/registry/pods/default/web           storage path "pods"
//	/registry/services/specs/default/db  storage path "services/specs"
//	/registry/minions/node-1             storage path "minions", no namespace
func route(kinds map[string]*Kind, key string) (*Kind, Position) {
	rest, ok := strings.CutPrefix(key, Prefix)
	if !ok {
		return nil, Position{}
	}
	end := strings.IndexByte(rest, '/')
	if end < 0 {
		return nil, Position{}
	}
	k := kinds[rest[:end]]
	if k == nil {
		second := strings.IndexByte(rest[end+1:], '/')
		if second < 0 {
			return nil, Position{}
		}
		end += 1 + second
		if k = kinds[rest[:end]]; k == nil {
			return nil, Position{}
		}
	}
	rest = rest[end+1:]
	if !k.Resource().Namespaced {
		return k, Position{Name: rest}
	}
	namespace, name, ok := strings.Cut(rest, "/")
	if !ok {
		return nil, Position{}
	}
	return k, Position{Namespace: namespace, Name: name}
}
