package watchcache

import (
	"context"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/store"
)

// HistoricalSnapshot is the state of a kind at a revision that the log no longer contains. It is
// read from the store in pages, and is otherwise like a Snapshot of that revision. Its methods
// return the errors of the store, such as store.ErrCompacted if the revision is compacted.
type HistoricalSnapshot struct {
	Revision int64
	kind     *Kind
}

// HistoricalSnapshotAt returns the state at a revision that the store may still have.
func (k *Kind) HistoricalSnapshotAt(revision int64) HistoricalSnapshot {
	return HistoricalSnapshot{Revision: revision, kind: k}
}

// pastPage is the maximum number of keys that are read at a time.
const pastPage = 1000

// Ascend calls visit for the objects of a namespace ("" means all) after a position,
// in key order, until visit returns false. about is the expected number of needed
// objects; 0 means all.
func (p HistoricalSnapshot) Ascend(ctx context.Context, namespace string, after Position, about int, visit func(*Entry) bool) error {
	r := p.kind.Resource()
	prefix := keyPrefix(r, namespace)
	opts := store.ListOptions{Revision: p.Revision, Limit: pastPage, From: keyAfter(r, after)}
	if about > 0 {
		opts.Limit = min(about, pastPage)
	}
	only := map[string]*Kind{r.Storage.Path: p.kind}
	for {
		page, err := p.kind.cache.store.List(ctx, prefix, opts)
		if err != nil {
			return err
		}
		for _, kv := range page.Items {
			k, at := route(only, kv.Key)
			if k == nil {
				continue
			}
			if e := k.decodeListed(ctx, r, at, kv); e != nil && !visit(e) {
				return nil
			}
		}
		if !page.More {
			return nil
		}
		opts.From = page.Items[len(page.Items)-1].Key + "\x00"
		opts.Limit = min(2*opts.Limit, pastPage) // about was too low
	}
}

// Count returns the number of objects of a namespace ("" means all) after a
// position.
func (p HistoricalSnapshot) Count(ctx context.Context, namespace string, after Position) (int64, error) {
	r := p.kind.Resource()
	page, err := p.kind.cache.store.List(ctx, keyPrefix(r, namespace), store.ListOptions{Revision: p.Revision, Limit: 1, From: keyAfter(r, after)})
	return page.Count, err
}

// keyPrefix returns the prefix of the keys of a namespace ("" means all).
func keyPrefix(r *resource.Resource, namespace string) string {
	prefix := Prefix + r.Storage.Path + "/"
	if namespace != "" {
		prefix += namespace + "/"
	}
	return prefix
}

// keyAfter returns the first key after a position, or "" for the zero position.
func keyAfter(r *resource.Resource, after Position) string {
	if after == (Position{}) {
		return ""
	}
	return r.Key(after.Namespace, after.Name) + "\x00"
}
