// Package tracingtest has a collector of spans for tests.
package tracingtest

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/util/wait"
)

// Collector receives spans by OTLP over gRPC, on a loopback port.
type Collector struct {
	collector.UnimplementedTraceServiceServer
	Endpoint string // host:port

	mu     sync.Mutex // guards the rest
	spans  []Span
	refuse error
}

// Span is a received span, with its resource.
type Span struct {
	*otlp.Span
	Resource map[string]string
}

// Attribute returns a text or number of the span, as text; "" if there is none.
func (s *Span) Attribute(key string) string { return texts(s.GetAttributes())[key] }

// Start runs a collector until the test ends.
func Start(t testing.TB) *Collector {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &Collector{Endpoint: listener.Addr().String()}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, c)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-ended; err != nil && !errors.Is(err, grpc.ErrServerStopped) { // stopped before it served
			t.Errorf("the collector of spans: %v", err)
		}
	})
	return c
}

// Refuse makes the collector refuse spans with an error, or take them again with nil.
func (c *Collector) Refuse(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuse = err
}

// Export implements the collector's service.
func (c *Collector) Export(_ context.Context, request *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refuse != nil {
		return nil, c.refuse
	}
	for _, of := range request.GetResourceSpans() {
		resource := texts(of.GetResource().GetAttributes())
		for _, scope := range of.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				c.spans = append(c.spans, Span{Span: span, Resource: resource})
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// Spans returns the spans received so far.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Span(nil), c.spans...)
}

// Find returns the spans with a name.
func (c *Collector) Find(name string) []Span {
	var found []Span
	for _, span := range c.Spans() {
		if span.GetName() == name {
			found = append(found, span)
		}
	}
	return found
}

// Wait waits until there is a span with a name, and returns the first one.
func (c *Collector) Wait(t testing.TB, name string) Span {
	t.Helper()
	var found []Span
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 2*time.Minute, true, func(context.Context) (bool, error) {
		found = c.Find(name)
		return len(found) > 0, nil
	})
	if err != nil {
		var names []string
		for _, span := range c.Spans() {
			names = append(names, span.GetName())
		}
		t.Fatalf("no span %q, only %q: %v", name, names, err)
	}
	return found[0]
}

func texts(attributes []*common.KeyValue) map[string]string {
	all := map[string]string{}
	for _, a := range attributes {
		switch value := a.GetValue().GetValue().(type) {
		case *common.AnyValue_StringValue:
			all[a.GetKey()] = value.StringValue
		case *common.AnyValue_IntValue:
			all[a.GetKey()] = strconv.FormatInt(value.IntValue, 10)
		}
	}
	return all
}
