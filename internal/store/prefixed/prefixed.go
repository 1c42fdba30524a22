// Package prefixed stores the keys below /registry under another prefix
// (--etcd-prefix), so that several clusters can share an etcd:
//
//	/registry/pods/default/one  ◄──►  /staging/pods/default/one
package prefixed

import (
	"context"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/coracle-io/coracle/internal/store"
)

// Default is the default of --etcd-prefix.
const Default = "/registry"

// Store implements store.Store on another store.
type Store struct {
	store.Store
	prefix string // replaces Default; has no slash at its end
}

// New returns a store that keeps its keys below prefix in s. If prefix is
// Default, it returns s.
func New(s store.Store, prefix string) store.Store {
	prefix = strings.TrimSuffix(path.Join("/", prefix), "/")
	if prefix == Default {
		return s
	}
	return &Store{Store: s, prefix: prefix}
}

// inner returns the key in the underlying store.
func (s *Store) inner(key string) string {
	if key == "" {
		return ""
	}
	return s.prefix + strings.TrimPrefix(key, Default)
}

// outer is the inverse of inner.
func (s *Store) outer(key string) string { return Default + strings.TrimPrefix(key, s.prefix) }

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, key string) (store.KeyValue, error) {
	kv, err := s.Store.Get(ctx, s.inner(key))
	if err == nil {
		kv.Key = key
	}
	return kv, err
}

// List implements store.Store.
func (s *Store) List(ctx context.Context, prefix string, opts store.ListOptions) (store.Page, error) {
	opts.From = s.inner(opts.From)
	page, err := s.Store.List(ctx, s.inner(prefix), opts)
	page.Items = slices.Clone(page.Items)
	for i := range page.Items {
		page.Items[i].Key = s.outer(page.Items[i].Key)
	}
	return page, err
}

// Create implements store.Store.
func (s *Store) Create(ctx context.Context, key string, value []byte, ttl time.Duration) (int64, error) {
	return s.Store.Create(ctx, s.inner(key), value, ttl)
}

// Update implements store.Store.
func (s *Store) Update(ctx context.Context, key string, value []byte, revision int64, ttl time.Duration) (int64, error) {
	return s.Store.Update(ctx, s.inner(key), value, revision, ttl)
}

// Delete implements store.Store.
func (s *Store) Delete(ctx context.Context, key string, revision int64) (int64, error) {
	return s.Store.Delete(ctx, s.inner(key), revision)
}

// Watch implements store.Store.
func (s *Store) Watch(ctx context.Context, prefix string, after int64) <-chan store.Batch {
	batches := make(chan store.Batch)
	go func() {
		defer close(batches)
		for batch := range s.Store.Watch(ctx, s.inner(prefix), after) {
			batch.Events = slices.Clone(batch.Events)
			for i := range batch.Events {
				batch.Events[i].Key = s.outer(batch.Events[i].Key)
			}
			select {
			case batches <- batch:
			case <-ctx.Done(): // the other channel is closed soon
			}
		}
	}()
	return batches
}
