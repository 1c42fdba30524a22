package traced_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/store/mem"
	"github.com/coracle-io/coracle/internal/store/storetest"
	"github.com/coracle-io/coracle/internal/store/traced"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(testing.TB) store.Store { return traced.New(mem.New()) })
}

// use makes one request of each kind.
func use(ctx context.Context, t *testing.T, s store.Store) {
	t.Helper()
	created, err := s.Create(ctx, "/registry/a", []byte("1"), 0)
	if err != nil {
		t.Fatal(err)
	}
	updated, err := s.Update(ctx, "/registry/a", []byte("2"), created, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(ctx, "/registry/a"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.List(ctx, "/registry/", store.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Delete(ctx, "/registry/a", updated); err != nil {
		t.Fatal(err)
	}
}

func TestRequestsAreChildren(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	s := traced.New(mem.New())
	use(t.Context(), t, s)
	if ended := spans.Ended(); len(ended) != 0 {
		t.Fatalf("requests without a trace are %d spans", len(ended))
	}

	ctx, parent := provider.Tracer("test").Start(t.Context(), "request")
	use(ctx, t, s)
	var names []string
	for _, span := range spans.Ended() {
		names = append(names, span.Name())
		if span.Parent().SpanID() != parent.SpanContext().SpanID() {
			t.Errorf("the parent of %q is another span", span.Name())
		}
	}
	want := []string{"Create etcd3", "GuaranteedUpdate etcd3", "Get etcd3", "List(recursive=true) etcd3", "Delete etcd3"}
	if !slices.Equal(names, want) {
		t.Errorf("spans %q, want %q", names, want)
	}
}

// gone is a store that does not answer.
type gone struct{ store.Store }

func (gone) Get(context.Context, string) (store.KeyValue, error) {
	return store.KeyValue{}, store.ErrUnavailable
}

func TestFailureIsRecorded(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	ctx, _ := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("test").Start(t.Context(), "request")
	if _, err := traced.New(gone{}).Get(ctx, "/registry/a"); !errors.Is(err, store.ErrUnavailable) {
		t.Fatal(err)
	}
	if ended := spans.Ended(); len(ended) != 1 || ended[0].Status().Code != codes.Error {
		t.Errorf("%d spans, want one with an error", len(ended))
	}
}
