package tracing

import (
	"context"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/embedded"
)

// callers makes tracers whose spans belong to the provider of the span in their
// context. Without such a span, they are not recorded.
type callers struct{ embedded.TracerProvider }

// Tracer implements trace.TracerProvider.
func (callers) Tracer(name string, options ...trace.TracerOption) trace.Tracer {
	return caller{name: name, options: options}
}

type caller struct {
	embedded.Tracer
	name    string
	options []trace.TracerOption
}

// Start implements trace.Tracer.
func (c caller) Start(ctx context.Context, name string, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	of := trace.SpanFromContext(ctx)
	if !of.SpanContext().IsValid() {
		return ctx, of
	}
	return of.TracerProvider().Tracer(c.name, c.options...).Start(ctx, name, options...)
}
