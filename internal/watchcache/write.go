package watchcache

import (
	"context"

	"github.com/coracle-io/coracle/internal/compute"
	"github.com/coracle-io/coracle/internal/resource"
)

// Create writes through to the store and hands the object to the cache, so
// that it is decoded nowhere. Errors are the store's. obj must not be changed
// afterwards, not even when the write failed; its resourceVersion is set.
// This holds for Update and Delete too.
func (k *Kind) Create(ctx context.Context, obj resource.Object) (*Entry, error) {
	r := k.Resource()
	return k.write(ctx, r, obj, func(key string, value []byte) (int64, error) {
		return k.cache.store.Create(ctx, key, value, r.TTL)
	})
}

// Update replaces old, which may come from the cache or from Read.
func (k *Kind) Update(ctx context.Context, obj resource.Object, old *Entry) (*Entry, error) {
	r := k.Resource()
	return k.write(ctx, r, obj, func(key string, value []byte) (int64, error) {
		return k.cache.store.Update(ctx, key, value, old.Revision, r.TTL)
	})
}

func (k *Kind) write(ctx context.Context, r *resource.Resource, obj resource.Object, put func(key string, value []byte) (int64, error)) (*Entry, error) {
	obj.SetResourceVersion("")
	value, err := resource.EncodeStored(r, obj)
	if err != nil {
		return nil, err
	}
	lent := k.loans.lend(&loan{at: Position{obj.GetNamespace(), obj.GetName()}, obj: obj, value: value})
	resume := compute.Waiting(ctx)
	revision, err := put(r.Key(obj.GetNamespace(), obj.GetName()), value)
	_ = resume() // what was written counts, even if the request's time is over
	if err != nil {
		k.loans.failed(lent)
		return nil, err
	}
	return k.loans.succeeded(r, lent, revision), nil
}

// Delete removes old for good; last is the final state to show watchers (nil: old's object).
func (k *Kind) Delete(ctx context.Context, old *Entry, last resource.Object) (*Entry, error) {
	r := k.Resource()
	if last == nil || last == old.Object {
		last = atRevision(old.Object, old.Revision)
	}
	lent := k.loans.lend(&loan{at: old.Position(), obj: last, deletes: old.Revision})
	resume := compute.Waiting(ctx)
	revision, err := k.cache.store.Delete(ctx, r.Key(old.Namespace, old.Name), old.Revision)
	_ = resume()
	if err != nil {
		k.loans.failed(lent)
		return nil, err
	}
	return k.loans.succeeded(r, lent, revision), nil
}

// Read returns the object linearizably from the store, for a writer whose
// cached copy was too old. store.ErrNotFound if it does not exist.
func (k *Kind) Read(ctx context.Context, namespace, name string) (*Entry, error) {
	r := k.Resource()
	resume := compute.Waiting(ctx)
	kv, err := k.cache.store.Get(ctx, r.Key(namespace, name))
	if ended := resume(); err == nil {
		err = ended
	}
	if err != nil {
		return nil, err
	}
	if e, ok := k.Get(namespace, name); ok && e.Revision == kv.Revision {
		return e, nil
	}
	obj, err := resource.DecodeStored(r, kv.Value, kv.Revision)
	if err != nil {
		return nil, err
	}
	return newEntry(r, obj, Position{namespace, name}, kv.Revision, len(kv.Value)), nil
}
