package watchcache

import (
	"context"

	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/store"
)

// addition is a resource to take in while running.
type addition struct {
	resource *resource.Resource
	done     chan struct{}
}

// Add takes a custom resource in while the cache runs and returns once it is
// filled. On a storage path that is there already (another version of the
// schema) it swaps the resource and keeps watches, unless the hub version
// changed: then they fail with store.ErrCompacted. It returns nil if the
// cache stops before.
func (c *Cache) Add(r *resource.Resource) *Kind {
	a := addition{resource: r, done: make(chan struct{})}
	select {
	case c.requests <- a:
	case <-c.stopped:
		return nil
	}
	select {
	case <-a.done:
		return c.Kind(r)
	case <-c.stopped:
		return nil
	}
}

// Remove takes a custom resource out. Its cursors fail with ErrRemoved.
func (c *Cache) Remove(r *resource.Resource) {
	k := c.Kind(r)
	if k == nil {
		return
	}
	c.replaceKinds(func(kinds map[string]*Kind) { delete(kinds, r.StoragePath) })
	k.remove()
}

// add fills the waiting resources as of the cache's own revision, so that the
// watch continues where they begin, and returns those that failed.
func (c *Cache) add(ctx context.Context, waiting []addition) (failed []addition) {
	for _, a := range waiting {
		if err := c.addOne(ctx, a.resource); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot read a resource from the store, trying again", "resource", a.resource.GroupResource(), "after", retryAfter)
			// The cache's revision may be one that was compacted since nothing
			// it follows was written: asking for the current one moves it on.
			_, _ = c.store.CurrentRevision(ctx)
			failed = append(failed, a)
			continue
		}
		close(a.done)
	}
	return failed
}

func (c *Cache) addOne(ctx context.Context, r *resource.Resource) error {
	k := c.Kind(r)
	isNew := k == nil
	if isNew {
		k = newKind(c, r)
	}
	var entries []*Entry
	only := map[string]*Kind{r.StoragePath: k}
	revision, err := c.list(ctx, Prefix+r.StoragePath+"/", c.Revision(), func(page []store.KeyValue) {
		for _, kv := range page {
			if _, at := route(only, kv.Key); at != (Position{}) {
				if e := k.decodeListed(ctx, r, at, kv); e != nil {
					entries = append(entries, e)
				}
			}
		}
	})
	if err != nil {
		return err
	}
	forget := isNew || k.Resource().Hub().GroupVersion != r.Hub().GroupVersion
	k.replaceState(r, entries, revision, forget)
	if isNew {
		c.replaceKinds(func(kinds map[string]*Kind) { kinds[r.StoragePath] = k })
	}
	return nil
}
