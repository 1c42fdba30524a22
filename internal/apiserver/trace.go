package apiserver

import (
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/coracle-io/coracle/internal/tracing"
)

// beginSpan starts the span of an authenticated request. Trusted users continue
// their own trace. The span of others is the root of a trace with a link to theirs,
// and their baggage is not passed on, so that clients cannot choose what is sampled
// and what webhooks receive.
func (q *request) beginSpan(id string) {
	carrier := propagation.HeaderCarrier(q.http.Header)
	ctx := q.call.Context
	options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(q.call.Now)}
	if continuesTrace(q.call.User) {
		ctx = tracing.Propagators().Extract(ctx, carrier)
	} else {
		options = append(options, trace.WithNewRoot())
		caller := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(q.http.Context(), carrier))
		if caller.IsValid() && caller.IsRemote() {
			options = append(options, trace.WithLinks(trace.Link{SpanContext: caller}))
		}
	}
	q.call.Context, q.span = q.server.tracer.Start(ctx, tracing.Text(spanName(q.http.Method, &q.call.Info)), options...)
	if q.span.IsRecording() {
		q.span.SetAttributes(requestAttributes(q.http)...)
		q.span.SetAttributes(attribute.String("audit-id", tracing.Text(id[:min(len(id), maxTracedAuditID)])))
	}
}

// maxTracedAuditID is the length of audit IDs in spans. Upstream cuts longer ones
// there, too.
const maxTracedAuditID = 64

// continuesTrace reports whether the spans of a user's requests belong to the trace
// that the user names. These are upstream's groups.
func continuesTrace(u user.Info) bool {
	groups := u.GetGroups()
	return slices.Contains(groups, user.SystemPrivilegedGroup) || slices.Contains(groups, user.MonitoringGroup)
}

// endSpan records the answer to the request.
func (q *request) endSpan() {
	if q.span.IsRecording() {
		if read := q.body.received; read > 0 {
			q.span.SetAttributes(semconv.HTTPRequestBodySize(read))
		}
		if q.response.size > 0 {
			q.span.SetAttributes(semconv.HTTPResponseBodySize(q.response.size))
		}
		if q.response.code > 0 {
			q.span.SetAttributes(semconv.HTTPResponseStatusCode(q.response.code))
		}
		if q.response.code >= http.StatusInternalServerError || q.response.truncated {
			q.span.SetStatus(codes.Error, "")
		}
	}
	q.span.End(trace.WithTimestamp(q.server.registry.Clock.Now()))
}

// spanName returns upstream's name for the span of a request: its method, and for a
// resource the path without names.
func spanName(method string, info *apirequest.RequestInfo) string {
	if !info.IsResourceRequest {
		return method
	}
	parts := []string{method + " ", info.APIPrefix}
	if info.APIGroup != "" {
		parts = append(parts, info.APIGroup)
	}
	parts = append(parts, info.APIVersion)
	if info.Namespace != "" {
		parts = append(parts, "namespaces", "{:namespace}")
	}
	parts = append(parts, info.Resource)
	if info.Name != "" {
		parts = append(parts, "{:name}")
	}
	if info.Subresource != "" {
		parts = append(parts, info.Subresource)
	}
	return strings.Join(parts, "/")
}

// requestAttributes returns what a span says of a request, by the semantic
// conventions for HTTP servers of OpenTelemetry. http.target is an attribute of
// older conventions that upstream adds.
func requestAttributes(r *http.Request) []attribute.KeyValue {
	attributes := []attribute.KeyValue{
		semconv.URLScheme("http"), semconv.URLPath(tracing.Text(r.URL.Path)), attribute.String("http.target", tracing.Text(r.URL.RequestURI())),
	}
	if r.TLS != nil {
		attributes[0] = semconv.URLScheme("https")
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodConnect, http.MethodOptions, http.MethodTrace:
		attributes = append(attributes, semconv.HTTPRequestMethodKey.String(r.Method))
	default:
		attributes = append(attributes, semconv.HTTPRequestMethodOther, semconv.HTTPRequestMethodOriginal(tracing.Text(r.Method)))
	}
	if host, port, err := net.SplitHostPort(r.Host); err != nil {
		attributes = append(attributes, semconv.ServerAddress(tracing.Text(r.Host)))
	} else {
		attributes = append(attributes, semconv.ServerAddress(tracing.Text(host)))
		if n, err := strconv.ParseUint(port, 10, 16); err == nil {
			attributes = append(attributes, semconv.ServerPort(int(n)))
		}
	}
	if host, port, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		attributes = append(attributes, semconv.NetworkPeerAddress(host), semconv.ClientAddress(host))
		if n, err := strconv.ParseUint(port, 10, 16); err == nil {
			attributes = append(attributes, semconv.NetworkPeerPort(int(n)))
		}
	}
	if agent := r.UserAgent(); agent != "" {
		attributes = append(attributes, semconv.UserAgentOriginal(tracing.Text(agent)))
	}
	if version, ok := strings.CutPrefix(r.Proto, "HTTP/"); ok {
		attributes = append(attributes, semconv.NetworkProtocolVersion(version))
	}
	return attributes
}
