package watchcache

import (
	"context"
	"slices"

	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/store"
)

// addition is a request to add a resource while the cache runs.
type addition struct {
	resource *resource.Resource
	done     chan struct{}
}

// Add adds a custom resource while the cache runs, and returns once its objects have
// been read. If there is already a kind with its storage path (another version of
// the schema), Add replaces the resource and keeps watches. If the hub version or the
// indexed fields change, the watches fail with store.ErrCompacted. Add returns nil if
// the cache stops before it is done.
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

// Remove removes a custom resource. Its cursors fail with ErrRemoved.
func (c *Cache) Remove(r *resource.Resource) {
	k := c.Kind(r)
	if k == nil {
		return
	}
	c.replaceKinds(func(kinds map[string]*Kind) { delete(kinds, r.Storage.Path) })
	k.remove()
}

// add reads the objects of the waiting resources at the cache's revision, so that
// the watch continues from there. It returns the additions that failed.
func (c *Cache) add(ctx context.Context, waiting []addition) (failed []addition) {
	for _, a := range waiting {
		if err := c.addOne(ctx, a.resource); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot read a resource from the store, retrying", "resource", a.resource.GroupResource(), "after", retryAfter)
			// The cache's revision may have been compacted, because nothing under
			// Prefix was written for some time. Requesting the current revision makes
			// the watch report progress.
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
	only := map[string]*Kind{r.Storage.Path: k}
	revision, err := c.list(ctx, Prefix+r.Storage.Path+"/", c.Revision(), func(page []store.KeyValue) {
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
	forget := isNew || !sameEntries(k.Resource(), r)
	k.replaceState(r, entries, revision, forget)
	if isNew {
		c.replaceKinds(func(kinds map[string]*Kind) { kinds[r.Storage.Path] = k })
	}
	return nil
}

// sameEntries reports whether the entries of the two definitions of a resource have
// the same form, so that they may stand in one log.
func sameEntries(a, b *resource.Resource) bool {
	return a.Hub().GroupVersion == b.Hub().GroupVersion && slices.Equal(a.FieldSelectors.Indexed, b.FieldSelectors.Indexed)
}
