package server

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/coracle-io/coracle/internal/tracing"
)

// TestRequestsAreSpans checks that spans have the names of patterns, which have no names
// of pods.
func TestRequestsAreSpans(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	s := &Server{config: Config{Traces: &tracing.Provider{TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))}}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/logs/", func(http.ResponseWriter, *http.Request) {})
	h := s.traced(mux)
	for _, path := range []string{"/containerLogs/default/web/main", "/logs/messages", "/nothing"} {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil))
	}
	var names []string
	for _, span := range spans.Ended() {
		names = append(names, span.Name())
	}
	if want := []string{"/containerLogs/{namespace}/{pod}/{container}", "/logs/", "GET"}; !slices.Equal(names, want) {
		t.Errorf("the spans are %q, want %q", names, want)
	}
}

func TestNoTracesNoWrapper(t *testing.T) {
	s, mux := &Server{}, http.NewServeMux()
	if s.traced(mux) != http.Handler(mux) {
		t.Error("without traces, the handler is wrapped")
	}
}
