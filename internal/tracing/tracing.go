// Package tracing sends the spans of a component to a collector, by OTLP over
// gRPC, as its TracingConfiguration says. KEP-647 describes it for the API server,
// KEP-2831 for the kubelet.
//
//	request, call, sync ─► span ─► queue ─► collector at the endpoint
//	                                 └─ full: the span is lost, nobody waits
//
// Nothing here is process-wide: two components in one process have providers of
// their own.
package tracing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	tracingapi "k8s.io/component-base/tracing/api/v1"
	"k8s.io/klog/v2"
)

const (
	// defaultEndpoint is OTLP's, for the log.
	defaultEndpoint = "localhost:4317"
	// maxText bounds a text of a span in bytes. Clients choose some of them, and
	// spans wait in a queue.
	maxText = 1 << 10
	// flushTimeout bounds how long Start's stop waits for the collector.
	flushTimeout = time.Second
)

// Provider makes the tracers of one component.
type Provider struct {
	*sdktrace.TracerProvider
	endpoint string // "" means the default
}

// New returns a provider for a valid configuration (see
// tracingapi.ValidateTracingConfiguration). Its spans are of the given resource,
// such as a service's name. A span with a parent is sampled if the parent is; of
// the others, samplingRatePerMillion is the rate, and without it none is sampled.
// Start must be called to send spans.
func New(c *tracingapi.TracingConfiguration, of ...attribute.KeyValue) *Provider {
	sampler := sdktrace.NeverSample()
	if rate := c.SamplingRatePerMillion; rate != nil && *rate > 0 {
		sampler = sdktrace.TraceIDRatioBased(float64(*rate) / 1_000_000)
	}
	limits := sdktrace.NewSpanLimits()
	limits.AttributeValueLengthLimit = maxText
	p := &Provider{TracerProvider: sdktrace.NewTracerProvider(
		sdktrace.WithSampler(sdktrace.ParentBased(sampler)),
		sdktrace.WithResource(resource.NewSchemaless(of...)),
		sdktrace.WithRawSpanLimits(limits),
	)}
	if c.Endpoint != nil {
		p.endpoint = *c.Endpoint
	}
	return p
}

// Start sends the spans that end from now on, in the background. It does not wait
// for the collector: while that does not answer, spans are lost, and the first loss
// is logged to the logger in ctx. stop sends what is left, for at most a second,
// and ends the provider.
func (p *Provider) Start(ctx context.Context) (stop func(), err error) {
	var options []otlptracegrpc.Option
	if p.endpoint != "" {
		options = append(options, otlptracegrpc.WithEndpoint(p.endpoint))
	}
	collector, err := otlptracegrpc.New(ctx, append(options, otlptracegrpc.WithInsecure())...)
	if err != nil {
		return nil, fmt.Errorf("tracing: connect to the endpoint %q: %w", p.endpoint, err)
	}
	sending, end := context.WithCancel(context.WithoutCancel(ctx))
	p.RegisterSpanProcessor(bounded{sdktrace.NewBatchSpanProcessor(&exporter{SpanExporter: collector, sending: sending, endpoint: p.endpoint})})
	return func() {
		defer end()
		defer time.AfterFunc(flushTimeout, end).Stop()
		_ = p.Shutdown(context.WithoutCancel(ctx)) // the exporter has logged what fails
	}, nil
}

// exporter sends spans, until the context sending ends. It never fails, because the
// library would report errors to a handler of the whole process. The processor makes
// one call at a time.
type exporter struct {
	sdktrace.SpanExporter
	sending  context.Context
	endpoint string
	losing   bool // the last spans were lost
}

// ExportSpans implements sdktrace.SpanExporter.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.sending, cancel)()
	err := e.sending.Err()
	if err == nil {
		err = e.SpanExporter.ExportSpans(ctx, spans)
	}
	if err != nil && !e.losing && !errors.Is(err, context.Canceled) {
		klog.FromContext(e.sending).Error(err, "Spans are lost until the collector takes them", "endpoint", cmp.Or(e.endpoint, defaultEndpoint))
	}
	e.losing = err != nil
	return nil
}

// Propagators reads and writes the W3C headers traceparent, tracestate and
// baggage.
func Propagators() propagation.TextMapPropagator {
	return propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})
}

// Transport returns a round tripper whose requests are spans, and which tells the
// server of them. next does not see the span.
func (p *Provider) Transport(next http.RoundTripper) http.RoundTripper {
	return otelhttp.NewTransport(outside{next}, p.http()...)
}

// outside sends requests without the span in their contexts. A server in the same
// process gets the context, and must know of the span by the headers alone, as one
// elsewhere does.
type outside struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (o outside) RoundTrip(r *http.Request) (*http.Response, error) {
	return o.next.RoundTrip(r.WithContext(trace.ContextWithSpanContext(r.Context(), trace.SpanContext{})))
}

// Handler returns an HTTP handler whose requests are spans, which name names. They
// begin traces of their own, with a link to the span of the client, so that clients
// do not choose what is sampled.
func (p *Provider) Handler(next http.Handler, name func(*http.Request) string) http.Handler {
	return otelhttp.NewHandler(next, "", append(p.http(),
		otelhttp.WithPublicEndpointFn(func(*http.Request) bool { return true }),
		otelhttp.WithSpanNameFormatter(func(_ string, r *http.Request) string { return Text(name(r)) }),
	)...)
}

func (p *Provider) http() []otelhttp.Option {
	return []otelhttp.Option{
		otelhttp.WithTracerProvider(p), otelhttp.WithPropagators(Propagators()), otelhttp.WithMeterProvider(noop.NewMeterProvider()),
	}
}

// DialOption makes the calls of a gRPC client spans, of the trace of the calls'
// contexts. Calls outside of a trace are not traced.
func DialOption() grpc.DialOption {
	return grpc.WithStatsHandler(otelgrpc.NewClientHandler(
		otelgrpc.WithTracerProvider(callers{}), otelgrpc.WithPropagators(Propagators()), otelgrpc.WithMeterProvider(noop.NewMeterProvider()),
	))
}

// Fail records that the work of a span has failed.
func Fail(span trace.Span, err error) {
	if span.IsRecording() {
		text := Text(err.Error())
		span.RecordError(errors.New(text))
		span.SetStatus(codes.Error, text)
	}
}

// Text returns a text for a name or an attribute of a span: valid UTF-8, and not
// too long. It does not keep the memory of a longer one.
func Text(s string) string {
	if len(s) > maxText {
		s = strings.Clone(s[:maxText])
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
