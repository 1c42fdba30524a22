package watchcache

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/supervise"
)

// pageSize is the number of keys that are read at a time during initialization.
const pageSize = 10_000

// initialize reads the objects of all kinds at one revision.
func (c *Cache) initialize(ctx context.Context) error {
	kinds := c.byPath()
	entries := make(map[*Kind][]*Entry, len(kinds))
	revision, err := c.list(ctx, Prefix, 0, func(page []store.KeyValue) {
		for i, e := range decodePage(ctx, kinds, page) {
			if e != nil {
				k, _ := route(kinds, page[i].Key)
				entries[k] = append(entries[k], e)
			}
		}
	})
	if err != nil {
		return err
	}
	for _, k := range kinds {
		k.reset(k.Resource(), entries[k], revision)
	}
	c.revision.raise(revision)
	return nil
}

// list calls visit for all keys under prefix at a revision (0 is the current one),
// in pages, and returns that revision.
func (c *Cache) list(ctx context.Context, prefix string, revision int64, visit func(page []store.KeyValue)) (int64, error) {
	opts := store.ListOptions{Revision: revision, Limit: pageSize}
	for {
		page, err := c.store.List(ctx, prefix, opts)
		if err != nil {
			return 0, fmt.Errorf("list %s: %w", prefix, err)
		}
		visit(page.Items)
		if !page.More {
			return page.Revision, nil
		}
		opts.Revision = page.Revision
		opts.From = page.Items[len(page.Items)-1].Key + "\x00"
	}
}

// decodePage decodes a page in parallel. An element of the result is nil if its key
// belongs to no kind or its value cannot be decoded.
func decodePage(ctx context.Context, kinds map[string]*Kind, page []store.KeyValue) []*Entry {
	entries := make([]*Entry, len(page))
	workers := runtime.GOMAXPROCS(0)
	part := (len(page) + workers - 1) / workers
	errs := supervise.ForEach(workers, func(worker int) error {
		for i := worker * part; i < min((worker+1)*part, len(page)); i++ {
			if k, at := route(kinds, page[i].Key); k != nil {
				entries[i] = k.decodeListed(ctx, k.Resource(), at, page[i])
			}
		}
		return nil
	})
	if err := errors.Join(errs...); err != nil {
		panic(err) // in the goroutine of the component
	}
	return entries
}

// decodeListed returns the entry of a listed value. It returns the cached entry if
// that has the same revision and resource, and nil if the value cannot be decoded.
func (k *Kind) decodeListed(ctx context.Context, r *resource.Resource, at Position, kv store.KeyValue) *Entry {
	if e, ok := k.Get(at.Namespace, at.Name); ok && e.Revision == kv.Revision && r == k.Resource() {
		return e
	}
	e, err := k.decodeEntry(r, at, kv.Value, kv.Revision)
	if err != nil {
		k.undecodable.Add(1)
		supervise.RecordPanic(ctx, err)
		klog.FromContext(ctx).Error(err, "Stored value is hidden from the API until it is overwritten or deleted", "key", kv.Key, "revision", kv.Revision)
		return nil
	}
	return e
}

// decodeEntry returns the entry of a stored value. A panic while decoding is an
// error.
func (k *Kind) decodeEntry(r *resource.Resource, at Position, value []byte, revision int64) (e *Entry, err error) {
	defer supervise.Catch(&err)
	obj, err := resource.DecodeStored(r, value, revision)
	if err != nil {
		return nil, err
	}
	return newEntry(r, obj, at, revision, len(value)), nil
}
