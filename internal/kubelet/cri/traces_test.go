package cri_test

import (
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// TestCallsAreSpans checks that calls of a runtime belong to the trace of their context,
// and that commands in containers, which have a connection of their own, do, too.
func TestCallsAreSpans(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	c := connectTraced(t, provider)
	ctx, parent := provider.Tracer("test").Start(t.Context(), "sync")
	if _, err := c.Runtime().Version(ctx, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := c.ExecBounded(ctx, "c", []string{"true"}, time.Minute); err != nil {
		t.Fatal(err)
	}
	children := map[string]int{}
	for _, span := range spans.Ended() {
		if span.Parent().SpanID() == parent.SpanContext().SpanID() {
			children[span.Name()]++
		}
	}
	for _, name := range []string{"runtime.v1.RuntimeService/Version", "runtime.v1.RuntimeService/ExecSync"} {
		if children[name] != 1 {
			t.Errorf("the spans of the sync are %v, without %s", children, name)
		}
	}
}
