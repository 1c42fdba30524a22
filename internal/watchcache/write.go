package watchcache

import (
	"bytes"
	"context"
	"errors"

	"github.com/coracle-io/coracle/internal/compute"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/store"
)

// Create writes an object to the store and hands it to the cache, so that it need
// not be decoded. It sets the resourceVersion of obj, which must not be changed
// afterwards, even if the write fails. Errors are the store's. The same applies to
// Update and Delete.
func (k *Kind) Create(ctx context.Context, obj resource.Object) (*Entry, error) {
	r := k.Resource()
	return k.write(ctx, r, obj, func(key string, value []byte) (int64, error) {
		return k.cache.store.Create(ctx, key, value, r.Storage.TTL)
	})
}

// Update replaces old, which may come from the cache or from Read.
func (k *Kind) Update(ctx context.Context, obj resource.Object, old *Entry) (*Entry, error) {
	r := k.Resource()
	return k.write(ctx, r, obj, func(key string, value []byte) (int64, error) {
		return k.cache.store.Update(ctx, key, value, old.Revision, r.Storage.TTL)
	})
}

func (k *Kind) write(ctx context.Context, r *resource.Resource, obj resource.Object, put func(key string, value []byte) (int64, error)) (*Entry, error) {
	obj.SetResourceVersion("")
	value, err := resource.EncodeStored(r, obj)
	if err != nil {
		return nil, err
	}
	w := k.pendingWrites.add(&pendingWrite{r: r, at: Position{obj.GetNamespace(), obj.GetName()}, obj: obj, value: value})
	resume := compute.Yield(ctx)
	revision, err := put(r.Key(obj.GetNamespace(), obj.GetName()), value)
	_ = resume() // a successful write counts even if ctx is done
	if err != nil {
		k.pendingWrites.failed(w)
		return nil, err
	}
	return k.pendingWrites.succeeded(w, revision), nil
}

// IsStored reports whether the store has obj in the form in which Update would
// write it: in the version that is stored now, and encrypted with the present key.
// It returns store.ErrConflict if the store has another revision than old.
func (k *Kind) IsStored(ctx context.Context, obj resource.Object, old *Entry) (bool, error) {
	r := k.Resource()
	value, err := resource.EncodeStored(r, obj)
	if err != nil {
		return false, err
	}
	resume := compute.Yield(ctx)
	kv, err := k.cache.store.Get(ctx, r.Key(old.Namespace, old.Name))
	if ended := resume(); err == nil {
		err = ended
	}
	if err == nil && kv.Revision != old.Revision {
		err = store.ErrConflict
	}
	return !kv.Outdated && bytes.Equal(kv.Value, value), err
}

// Delete deletes old. last is the final state for watchers; nil means old's object.
func (k *Kind) Delete(ctx context.Context, old *Entry, last resource.Object) (*Entry, error) {
	r := k.Resource()
	if last == nil || last == old.Object {
		last = atRevision(old.Object, old.Revision)
	}
	w := k.pendingWrites.add(&pendingWrite{r: r, at: old.Position(), obj: last, deletes: old.Revision})
	resume := compute.Yield(ctx)
	revision, err := k.cache.store.Delete(ctx, r.Key(old.Namespace, old.Name), old.Revision)
	_ = resume()
	if err != nil {
		k.pendingWrites.failed(w)
		return nil, err
	}
	return k.pendingWrites.succeeded(w, revision), nil
}

// ErrDecodable means that a stored value can be decoded, so that its object can be
// deleted as usual.
var ErrDecodable = errors.New("the stored value can be decoded")

// DeleteUndecodable deletes a stored value that cannot be decoded, and that the
// cache therefore hides. A dry run only checks it. It returns store.ErrNotFound if
// there is no value, and ErrDecodable if it can be decoded.
func (k *Kind) DeleteUndecodable(ctx context.Context, namespace, name string, dryRun bool) error {
	r := k.Resource()
	key := r.Key(namespace, name)
	resume := compute.Yield(ctx)
	kv, err := k.cache.store.Get(ctx, key)
	if ended := resume(); err == nil {
		err = ended
	}
	if err != nil {
		return err
	}
	if _, err := k.decodeEntry(r, Position{namespace, name}, kv.Value, kv.Revision); err == nil {
		return ErrDecodable
	}
	if dryRun {
		return nil
	}
	resume = compute.Yield(ctx)
	_, err = k.cache.store.Delete(ctx, key, kv.Revision)
	_ = resume() // a successful write counts even if ctx is done
	return err
}

// Read reads an object linearizably from the store. Writers use it if their cached
// object is stale. It returns store.ErrNotFound if the object does not exist.
func (k *Kind) Read(ctx context.Context, namespace, name string) (*Entry, error) {
	r := k.Resource()
	resume := compute.Yield(ctx)
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
