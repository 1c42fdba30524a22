// Package measured counts the requests to a store and measures their duration.
package measured

import (
	"context"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coracle-io/coracle/internal/metrics"
	"github.com/coracle-io/coracle/internal/store"
)

// Store is a store whose reads and writes are measured, by resource.
type Store struct {
	store.Store
	metrics    *metrics.Store
	prefix     string
	resources  map[string]schema.GroupResource // by storage path
	operations sync.Map                        // measurement to *metrics.Operation
	making     sync.Mutex                      // is held while operations are made or forgotten
}

// measurement is the key of operations: an operation and a storage path.
type measurement struct{ operation, path string }

// New returns a store that measures s. The keys of all objects start with prefix.
// resources maps storage paths, which follow the prefix, to resources.
func New(s store.Store, m *metrics.Store, prefix string, resources map[string]schema.GroupResource) *Store {
	return &Store{Store: s, metrics: m, prefix: prefix, resources: resources}
}

// observe counts an operation and its duration.
func (m *Store) observe(operation, key string, began time.Time, err error) {
	took := time.Since(began)
	path := m.path(key)
	found, ok := m.operations.Load(measurement{operation, path})
	if !ok {
		found = m.add(operation, path)
	}
	found.(*metrics.Operation).Observe(took, err)
}

// add makes the metrics of an operation, unless another call has, and returns them.
func (m *Store) add(operation, path string) any {
	m.making.Lock()
	defer m.making.Unlock()
	r := m.resource(path)
	found, _ := m.operations.LoadOrStore(measurement{operation, strings.Clone(path)}, m.metrics.Operation(operation, r.Group, r.Resource))
	return found
}

// Forget drops the measurements of a resource, after drop has dropped its metrics.
// In another order, an operation that ends meanwhile would be measured where nobody
// sees it, also when the resource is served again.
func (m *Store) Forget(of schema.GroupResource, drop func()) {
	m.making.Lock()
	defer m.making.Unlock()
	drop()
	for key := range m.operations.Range {
		if m.resource(key.(measurement).path) == of {
			m.operations.Delete(key)
		}
	}
}

// path returns the storage path of a key: the first segment after the prefix if it
// is a known path, and otherwise the first two, as for custom resources. It
// returns "" for a key that contains all resources.
func (m *Store) path(key string) string {
	rest, ok := strings.CutPrefix(key, m.prefix)
	if !ok {
		return ""
	}
	end := strings.IndexByte(rest, '/')
	if end < 0 {
		return rest
	}
	if _, known := m.resources[rest[:end]]; known {
		return rest[:end]
	}
	if second := strings.IndexByte(rest[end+1:], '/'); second >= 0 {
		return rest[:end+1+second]
	}
	return rest[:end]
}

func (m *Store) resource(path string) schema.GroupResource {
	if r, known := m.resources[path]; known {
		return r
	}
	if group, plural, ok := strings.Cut(path, "/"); ok {
		return schema.GroupResource{Group: group, Resource: plural}
	}
	return schema.GroupResource{Resource: path}
}

// Get implements store.Store.
func (m *Store) Get(ctx context.Context, key string) (store.KeyValue, error) {
	began := time.Now()
	kv, err := m.Store.Get(ctx, key)
	m.observe("get", key, began, err)
	return kv, err
}

// List implements store.Store.
func (m *Store) List(ctx context.Context, prefix string, opts store.ListOptions) (store.Page, error) {
	began := time.Now()
	page, err := m.Store.List(ctx, prefix, opts)
	m.observe("list", prefix, began, err)
	return page, err
}

// Create implements store.Store.
func (m *Store) Create(ctx context.Context, key string, value []byte, ttl time.Duration) (int64, error) {
	began := time.Now()
	revision, err := m.Store.Create(ctx, key, value, ttl)
	m.observe("create", key, began, err)
	return revision, err
}

// Update implements store.Store.
func (m *Store) Update(ctx context.Context, key string, value []byte, revision int64, ttl time.Duration) (int64, error) {
	began := time.Now()
	next, err := m.Store.Update(ctx, key, value, revision, ttl)
	m.observe("update", key, began, err)
	return next, err
}

// Delete implements store.Store.
func (m *Store) Delete(ctx context.Context, key string, revision int64) (int64, error) {
	began := time.Now()
	deletion, err := m.Store.Delete(ctx, key, revision)
	m.observe("delete", key, began, err)
	return deletion, err
}
