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
	sweepEvery = 15 * time.Second       // of what is too old; of encodings, each second time
	retryAfter = 100 * time.Millisecond // while the store is away
)

// Run fills the cache and follows the store until ctx ends. It recovers by
// itself from every error of the store; while the store is away the cache
// keeps answering from what it has. After a compaction overtook the cache it
// is filled again and every cursor fails with store.ErrCompacted.
func (c *Cache) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg supervise.WaitGroup
	wg.Go(ctx, func() { c.fresh.run(ctx, c.store) })
	defer wg.Wait()
	defer close(c.stopped)
	defer cancel()
	away := outage{log: klog.FromContext(ctx), cache: c}
	for filled := false; ctx.Err() == nil; {
		if err := c.fill(ctx); err != nil {
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
				away.log.Info("Fell behind the store's compaction, reading everything again", "revision", c.Revision())
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

// outage reports once that the store went away, and once that it is back.
type outage struct {
	log   klog.Logger
	cache *Cache
	since time.Time // zero while the store is there
}

// pause notes a failure and waits before the next attempt.
func (o *outage) pause(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	if o.since.IsZero() {
		o.since = time.Now()
		o.log.Error(err, "Lost the store, answering from the cache and trying again", "revision", o.cache.Revision(), "every", retryAfter)
	}
	t := time.NewTimer(retryAfter)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func (o *outage) over() {
	if !o.since.IsZero() {
		o.log.Info("The store is back", "revision", o.cache.Revision(), "away", time.Since(o.since))
		o.since = time.Time{}
	}
}

// errWatchClosed is a store that broke its promise to say why a watch ended.
var errWatchClosed = errors.New("watch closed without an error")

// follow applies what the store reports after the cache's revision until the
// watch ends, and returns why.
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
	var waiting []addition
	var copies repacking
	for encodings, more := false, false; ; {
		var retry, repack <-chan time.Time
		if more {
			repack = time.After(repackPause)
		}
		if waiting = c.add(ctx, waiting); len(waiting) > 0 {
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
			waiting = append(waiting, a)
		case now := <-sweep.C:
			c.horizon.pass(now, c.Revision())
			for _, k := range c.byPath() {
				k.sweep(now, encodings)
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

// apply makes a batch visible, each kind's part of it at once.
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

// collect decodes the events of k at the start of events.
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
			supervise.Note(ctx, err)
			klog.FromContext(ctx).Error(err, "Stored value is hidden from the API until it is overwritten or deleted", "key", e.Key, "revision", e.Revision)
		}
		changes = append(changes, ch)
	}
	return changes, len(events)
}

// route finds the kind and position of a key:
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
