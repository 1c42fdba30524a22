// Package audit records requests to the API server and their outcome as events
// of the API group audit.k8s.io
// (https://kubernetes.io/docs/tasks/debug/debug-cluster/audit/).
//
//	Begin ─ authenticate ─┬─ Refuse ──────────────────► ResponseStarted
//	                      └─ Serve ─ policy ─ level ─┬─► RequestReceived
//	                                                 ├─► ResponseStarted   for long-running requests
//	                                                 └─► ResponseComplete or Panic
//
// The policy rules, the fields of events and the backends come from
// k8s.io/apiserver. This package adapts them to requests that are served in
// stages and to responses that are encoded already.
package audit

import (
	"context"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/types"
	auditapi "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints/filters"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// Auditor records requests. It is safe for concurrent use.
type Auditor struct {
	sink   audit.Sink
	policy audit.PolicyRuleEvaluator
}

// New returns an Auditor that sends the events that policy selects to sink.
func New(sink audit.Sink, policy audit.PolicyRuleEvaluator) *Auditor {
	return &Auditor{sink: sink, policy: policy}
}

// Request is the audit record of one request. It is not safe for concurrent use.
// On nil, Object, Patch, Status, Answer and Impersonated do nothing, and
// Responses is false.
type Request struct {
	auditor     *Auditor
	longRunning bool
	config      audit.RequestAuditConfig
	context     *audit.AuditContext
}

// Begin starts the record of a request with an audit ID, received at the given
// time. The request must be served with the returned context, which collects
// annotations.
func (a *Auditor) Begin(ctx context.Context, info *apirequest.RequestInfo, id string, received time.Time, longRunning bool) (context.Context, *Request) {
	ctx = audit.WithAuditContext(ctx)
	audit.WithAuditID(ctx, types.UID(id))
	ctx = apirequest.WithRequestInfo(ctx, info)
	ctx = apirequest.WithReceivedTimestamp(ctx, received)
	ctx = apirequest.WithLatencyTrackers(ctx)
	return ctx, &Request{auditor: a, longRunning: longRunning, context: audit.AuditContextFrom(ctx)}
}

// Serve calls next and records the request. The request's context must have the
// user. If the backend must but cannot record RequestReceived, Serve responds
// with an internal error and does not call next.
func (r *Request) Serve(w http.ResponseWriter, req *http.Request, next http.HandlerFunc) {
	isLongRunning := func(*http.Request, *apirequest.RequestInfo) bool { return r.longRunning }
	filters.WithAudit(next, r.auditor.sink, r, isLongRunning).ServeHTTP(w, req)
}

// Refuse records a request that is invalid or not authenticated. next writes
// the response.
func (r *Request) Refuse(w http.ResponseWriter, req *http.Request, next http.HandlerFunc) {
	filters.WithFailedAuthenticationAudit(next, r.auditor.sink, r).ServeHTTP(w, req)
}

// records reports whether events have the content of a level.
func (r *Request) records(level auditapi.Level) bool {
	return r != nil && r.config.Level != "" && !r.config.Level.Less(level)
}
