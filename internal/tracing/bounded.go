package tracing

import (
	"slices"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// bounded makes the texts of ended spans fit for Text before they wait in the queue.
// Libraries put there what clients and container runtimes send, such as paths and
// errors: a collector would refuse all spans of a request for one that is no UTF-8.
type bounded struct{ sdktrace.SpanProcessor }

// OnEnd implements sdktrace.SpanProcessor.
func (b bounded) OnEnd(s sdktrace.ReadOnlySpan) {
	if !isBounded(s) {
		stub := tracetest.SpanStubFromReadOnlySpan(s)
		stub.Name, stub.Status.Description = Text(stub.Name), Text(stub.Status.Description)
		stub.Attributes, stub.Events = texts(stub.Attributes), slices.Clone(stub.Events)
		for i := range stub.Events {
			e := &stub.Events[i]
			e.Name, e.Attributes = Text(e.Name), texts(e.Attributes)
		}
		s = stub.Snapshot()
	}
	b.SpanProcessor.OnEnd(s)
}

// isBounded reports whether Text would return all texts of a span as they are.
func isBounded(s sdktrace.ReadOnlySpan) bool {
	if !isText(s.Name()) || !isText(s.Status().Description) || slices.ContainsFunc(s.Attributes(), isUnbounded) {
		return false
	}
	return !slices.ContainsFunc(s.Events(), func(e sdktrace.Event) bool {
		return !isText(e.Name) || slices.ContainsFunc(e.Attributes, isUnbounded)
	})
}

func isText(s string) bool { return Text(s) == s }

func isUnbounded(a attribute.KeyValue) bool {
	return a.Value.Type() == attribute.STRING && !isText(a.Value.AsString())
}

// texts returns a copy of attributes with Text of each text.
func texts(attributes []attribute.KeyValue) []attribute.KeyValue {
	attributes = slices.Clone(attributes)
	for i, a := range attributes {
		if a.Value.Type() == attribute.STRING {
			attributes[i].Value = attribute.StringValue(Text(a.Value.AsString()))
		}
	}
	return attributes
}
