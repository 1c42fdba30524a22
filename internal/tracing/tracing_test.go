package tracing_test

import (
	"context"
	"encoding/hex"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"unicode/utf8"

	"github.com/go-logr/logr/funcr"
	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	tracingapi "k8s.io/component-base/tracing/api/v1"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/leaktest"
	"github.com/coracle-io/coracle/internal/tracing"
	"github.com/coracle-io/coracle/internal/tracing/tracingtest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Run(m)) }

// start returns a provider that sends to an endpoint, and what ends it.
func start(t *testing.T, endpoint string, perMillion int32) (p *tracing.Provider, stop func()) {
	t.Helper()
	p = tracing.New(&tracingapi.TracingConfiguration{Endpoint: &endpoint, SamplingRatePerMillion: &perMillion}, attribute.String("service.name", "test"))
	stop, err := p.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return p, stop
}

const all = 1_000_000

// flush waits until the collector has answered to what has ended. What stop sends has
// a second, which is no time to connect on a machine that does other work.
func flush(t *testing.T, p *tracing.Provider) {
	t.Helper()
	if err := p.ForceFlush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestStopSendsWhatIsLeft(t *testing.T) {
	spans := tracingtest.Start(t)
	p, stop := start(t, spans.Endpoint, all)
	_, first := p.Tracer("test").Start(t.Context(), "first")
	first.End()
	flush(t, p)
	_, span := p.Tracer("test").Start(t.Context(), "work")
	span.End()
	stop()
	found := spans.Find("work")
	if len(found) != 1 || found[0].Resource["service.name"] != "test" {
		t.Fatalf("the spans are %v", found)
	}
	_, late := p.Tracer("test").Start(t.Context(), "late")
	late.End()
	if found := spans.Find("late"); len(found) != 0 {
		t.Errorf("a span after the end: %v", found)
	}
}

// parent is a context with the span of another process.
func parent(ctx context.Context, sampled bool) context.Context {
	c := trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, Remote: true}
	if sampled {
		c.TraceFlags = trace.FlagsSampled
	}
	return trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(c))
}

func TestSampling(t *testing.T) {
	for _, c := range []struct {
		name     string
		rate     int32
		parent   bool
		sampled  bool
		exported bool
	}{
		{"none", 0, false, false, false},
		{"none with a sampled parent", 0, true, true, true},
		{"all", all, false, false, true},
		{"all with a parent that is not sampled", all, true, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			spans := tracingtest.Start(t)
			p, stop := start(t, spans.Endpoint, c.rate)
			ctx := t.Context()
			if c.parent {
				ctx = parent(ctx, c.sampled)
			}
			_, span := p.Tracer("test").Start(ctx, "work")
			span.End()
			flush(t, p)
			stop()
			if exported := len(spans.Find("work")) == 1; exported != c.exported {
				t.Errorf("exported: %t, want %t", exported, c.exported)
			}
		})
	}
}

// TestRateIsOptional checks that without samplingRatePerMillion only a parent's sampling
// counts.
func TestRateIsOptional(t *testing.T) {
	p := tracing.New(&tracingapi.TracingConfiguration{})
	if _, span := p.Tracer("test").Start(t.Context(), "work"); span.SpanContext().IsSampled() {
		t.Error("a span without a parent is sampled")
	}
	if _, span := p.Tracer("test").Start(parent(t.Context(), true), "work"); !span.SpanContext().IsSampled() {
		t.Error("a span with a sampled parent is not sampled")
	}
}

// TestSilentCollector checks that nobody waits for a collector that does not answer.
func TestSilentCollector(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // nobody accepts
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	p, stop := start(t, silent.Addr().String(), all)
	for range 5000 { // more than wait
		_, span := p.Tracer("test").Start(t.Context(), "work")
		span.End()
	}
	stop() // hangs for ever if the export is not ended
}

// TestLossIsLoggedOnce checks that a collector that refuses spans is in the log once,
// until it takes some.
func TestLossIsLoggedOnce(t *testing.T) {
	var losses atomic.Int32
	log := funcr.New(func(_, line string) {
		if strings.Contains(line, "Spans are lost") {
			losses.Add(1)
		}
	}, funcr.Options{})
	spans := tracingtest.Start(t)
	p := tracing.New(&tracingapi.TracingConfiguration{Endpoint: &spans.Endpoint, SamplingRatePerMillion: new(int32(all))})
	stop, err := p.Start(klog.NewContext(t.Context(), log))
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	work := func(name string) {
		_, span := p.Tracer("test").Start(t.Context(), name)
		span.End()
		flush(t, p)
	}
	for round := range int32(2) {
		spans.Refuse(status.Error(codes.InvalidArgument, "no"))
		work("lost")
		work("lost, too")
		if n := losses.Load(); n != round+1 {
			t.Fatalf("%d lines in the log, want %d", n, round+1)
		}
		spans.Refuse(nil)
		work("sent")
	}
	if lost := spans.Find("lost"); len(lost) != 0 || len(spans.Find("sent")) != 2 {
		t.Errorf("%v", spans.Spans())
	}
}

// TestTransport checks that a server is told of the span of the request, and that a
// handler makes a trace of its own with a link to it.
func TestTransport(t *testing.T) {
	spans := tracingtest.Start(t)
	p, stop := start(t, spans.Endpoint, all)
	server := httptest.NewServer(p.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }), func(*http.Request) string { return "served" }))
	transport := &http.Transport{}
	ctx, caller := p.Tracer("test").Start(t.Context(), "caller")
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := p.Transport(transport).RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	caller.End()
	transport.CloseIdleConnections()
	server.Close()
	flush(t, p)
	stop()
	sent, served := spans.Find("HTTP GET"), spans.Find("served")
	if len(sent) != 1 || len(served) != 1 {
		t.Fatalf("the spans are %v", spans.Spans())
	}
	if id := caller.SpanContext().SpanID(); string(sent[0].GetParentSpanId()) != string(id[:]) {
		t.Errorf("the parent of the request is %x", sent[0].GetParentSpanId())
	}
	if len(served[0].GetParentSpanId()) != 0 || len(served[0].GetLinks()) != 1 || string(served[0].GetLinks()[0].GetSpanId()) != string(sent[0].GetSpanId()) {
		t.Errorf("the served span has the parent %x and the links %v", served[0].GetParentSpanId(), served[0].GetLinks())
	}
	if code := served[0].Attribute("http.response.status_code"); code != "418" {
		t.Errorf("the code is %s", code)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestServersGetNoSpans checks that a server in the same process, which gets the context
// of a request, is told of the span by the headers alone.
func TestServersGetNoSpans(t *testing.T) {
	p := tracing.New(&tracingapi.TracingConfiguration{SamplingRatePerMillion: new(int32(all))})
	ctx, caller := p.Tracer("test").Start(t.Context(), "caller")
	defer caller.End()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://server.example/", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := p.Transport(roundTripper(func(r *http.Request) (*http.Response, error) {
		if trace.SpanContextFromContext(r.Context()).IsValid() {
			t.Error("the context of the request has a span")
		}
		if told, id := r.Header.Get("traceparent"), caller.SpanContext().TraceID().String(); !strings.Contains(told, id) {
			t.Errorf("the server is told of %q, want the trace %s", told, id)
		}
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
	})).RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
}

// TestSpansAreBounded checks that texts of libraries, which clients choose, neither make
// the collector refuse spans nor are of any length.
func TestSpansAreBounded(t *testing.T) {
	spans := tracingtest.Start(t)
	p, stop := start(t, spans.Endpoint, all)
	_, span := p.Tracer("test").Start(t.Context(), "work")
	span.SetAttributes(attribute.String("path", "/\xff"), attribute.String("long", strings.Repeat("é", 10_000)))
	span.AddEvent("event", trace.WithAttributes(attribute.String("of", "\xff")))
	span.SetStatus(otelcodes.Error, strings.Repeat("x\xff", 10_000))
	span.End()
	flush(t, p)
	stop()
	found := spans.Find("work")
	if len(found) != 1 || len(found[0].GetEvents()) != 1 {
		t.Fatalf("the spans are %v", spans.Spans())
	}
	if got := found[0].Attribute("path"); got != "/\uFFFD" {
		t.Errorf("the path is %q", got)
	}
	for _, text := range []string{found[0].Attribute("long"), found[0].GetStatus().GetMessage()} {
		if text == "" || len(text) > 4096 {
			t.Errorf("%.20q has %d bytes", text, len(text))
		}
	}
}

// TestDialOption checks that calls of a gRPC client belong to the trace of their
// context, and that others are not traced.
func TestDialOption(t *testing.T) {
	spans, server := tracingtest.Start(t), tracingtest.Start(t)
	p, stop := start(t, spans.Endpoint, all)
	connection, err := grpc.NewClient(server.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()), tracing.DialOption())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	call := func(ctx context.Context) {
		if _, err := collectorv1.NewTraceServiceClient(connection).Export(ctx, &collectorv1.ExportTraceServiceRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	call(t.Context())
	ctx, caller := p.Tracer("test").Start(t.Context(), "caller")
	call(ctx)
	caller.End()
	flush(t, p)
	stop()
	found := spans.Find("opentelemetry.proto.collector.trace.v1.TraceService/Export")
	if len(found) != 1 {
		t.Fatalf("the spans are %v", spans.Spans())
	}
	if id := caller.SpanContext().SpanID(); hex.EncodeToString(found[0].GetParentSpanId()) != id.String() {
		t.Errorf("the parent is %x, want %s", found[0].GetParentSpanId(), id)
	}
}

func TestText(t *testing.T) {
	for _, s := range []string{"", "plain", "\xff\xfe", strings.Repeat("é", 2000), strings.Repeat("\xff", 5000)} {
		if got := tracing.Text(s); !utf8.ValidString(got) || len(got) > 4096 {
			t.Errorf("%.20q becomes %d bytes, valid: %t", s, len(got), utf8.ValidString(got))
		}
	}
	if got := tracing.Text("plain"); got != "plain" {
		t.Errorf("%q", got)
	}
}
