package watchcache

import (
	"context"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/store"
)

// Past is the objects of a kind as of a revision that the log no longer
// reaches back to, read from the store piece by piece. What it says is what a
// Snapshot of that revision would. Errors are the store's: store.ErrCompacted
// if it has forgotten that revision.
type Past struct {
	Revision int64
	kind     *Kind
}

// PastAt returns the view as of a revision that the store may still keep.
func (k *Kind) PastAt(revision int64) Past { return Past{Revision: revision, kind: k} }

// pastPage bounds how many keys are read at a time.
const pastPage = 1000

// Ascend visits the objects of one namespace ("" is all) in key order, from
// the one after a position until visit returns false. about is how many
// objects the caller expects to need; 0 is all.
func (p Past) Ascend(ctx context.Context, namespace string, after Position, about int, visit func(*Entry) bool) error {
	r := p.kind.Resource()
	prefix := keyPrefix(r, namespace)
	opts := store.ListOptions{Revision: p.Revision, Limit: pastPage, From: keyAfter(r, after)}
	if about > 0 {
		opts.Limit = min(about, pastPage)
	}
	only := map[string]*Kind{r.StoragePath: p.kind}
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
		opts.Limit = min(2*opts.Limit, pastPage)
	}
}

// Count is how many objects of one namespace ("" is all) come after a position.
func (p Past) Count(ctx context.Context, namespace string, after Position) (int64, error) {
	r := p.kind.Resource()
	page, err := p.kind.cache.store.List(ctx, keyPrefix(r, namespace), store.ListOptions{Revision: p.Revision, Limit: 1, From: keyAfter(r, after)})
	return page.Count, err
}

// keyPrefix is what the keys of a namespace ("" is all) begin with.
func keyPrefix(r *resource.Resource, namespace string) string {
	prefix := Prefix + r.StoragePath + "/"
	if namespace != "" {
		prefix += namespace + "/"
	}
	return prefix
}

// keyAfter is the first key after a position; "" for the start.
func keyAfter(r *resource.Resource, after Position) string {
	if after == (Position{}) {
		return ""
	}
	return r.Key(after.Namespace, after.Name) + "\x00"
}
