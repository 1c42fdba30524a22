// Package traced makes spans of the requests to a store, with the names of
// upstream's etcd3 storage. An etcd in the same process is called without gRPC, whose
// calls would be spans of their own.
package traced

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/tracing"
)

// scope is the name of the tracer.
const scope = "github.com/coracle-io/coracle/internal/store/traced"

// Store is a store whose requests are spans of the traces of their callers. Requests
// outside of a sampled trace are not recorded.
type Store struct{ store.Store }

// New returns a store that traces s.
func New(s store.Store) *Store { return &Store{s} }

// call makes a request, in a span if the caller is in one.
func call[T any](ctx context.Context, name, key string, request func(context.Context) (T, error)) (T, error) {
	caller := trace.SpanFromContext(ctx)
	if !caller.IsRecording() {
		return request(ctx)
	}
	ctx, span := caller.TracerProvider().Tracer(scope).Start(ctx, name, trace.WithAttributes(attribute.String("key", tracing.Text(key))))
	defer span.End()
	answer, err := request(ctx)
	if errors.Is(err, store.ErrUnavailable) { // the others are answers
		tracing.Fail(span, err)
	}
	return answer, err
}

// Get implements store.Store.
func (t *Store) Get(ctx context.Context, key string) (store.KeyValue, error) {
	return call(ctx, "Get etcd3", key, func(ctx context.Context) (store.KeyValue, error) { return t.Store.Get(ctx, key) })
}

// List implements store.Store.
func (t *Store) List(ctx context.Context, prefix string, opts store.ListOptions) (store.Page, error) {
	return call(ctx, "List(recursive=true) etcd3", prefix, func(ctx context.Context) (store.Page, error) { return t.Store.List(ctx, prefix, opts) })
}

// Create implements store.Store.
func (t *Store) Create(ctx context.Context, key string, value []byte, ttl time.Duration) (int64, error) {
	return call(ctx, "Create etcd3", key, func(ctx context.Context) (int64, error) { return t.Store.Create(ctx, key, value, ttl) })
}

// Update implements store.Store.
func (t *Store) Update(ctx context.Context, key string, value []byte, revision int64, ttl time.Duration) (int64, error) {
	return call(ctx, "GuaranteedUpdate etcd3", key, func(ctx context.Context) (int64, error) { return t.Store.Update(ctx, key, value, revision, ttl) })
}

// Delete implements store.Store.
func (t *Store) Delete(ctx context.Context, key string, revision int64) (int64, error) {
	return call(ctx, "Delete etcd3", key, func(ctx context.Context) (int64, error) { return t.Store.Delete(ctx, key, revision) })
}
