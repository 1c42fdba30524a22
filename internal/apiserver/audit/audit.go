// Package audit records who asked the API server for what, and what came of
// it, as events of the API group audit.k8s.io
// (https://kubernetes.io/docs/tasks/debug/debug-cluster/audit/).
//
//	Begin ─ authenticate ─┬─ Refuse ──────────────────► ResponseStarted
//	                      └─ Serve ─ policy ─ level ─┬─► RequestReceived
//	                                                 ├─► ResponseStarted   of what may take long
//	                                                 └─► ResponseComplete or Panic
//
// The rules of a policy, the events' fields and the backends are those of
// k8s.io/apiserver; this package fits them to requests that are served by
// stages and whose answers are encoded already.
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

// Auditor makes the events of requests. It may be used by many goroutines.
type Auditor struct {
	sink   audit.Sink
	policy audit.PolicyRuleEvaluator
}

// New returns an auditor that sends to sink the events that policy asks for.
func New(sink audit.Sink, policy audit.PolicyRuleEvaluator) *Auditor {
	return &Auditor{sink: sink, policy: policy}
}

// Request is the record of one request, for the goroutine that serves it. Nil
// records nothing.
type Request struct {
	auditor     *Auditor
	longRunning bool
	config      audit.RequestAuditConfig
	context     *audit.AuditContext
}

// Begin starts the record of a request that was received just now and carries
// the id. The context that it returns collects annotations; everything that is
// done for the request must run under it.
func (a *Auditor) Begin(ctx context.Context, info *apirequest.RequestInfo, id string, received time.Time, longRunning bool) (context.Context, *Request) {
	ctx = audit.WithAuditContext(ctx)
	audit.WithAuditID(ctx, types.UID(id))
	ctx = apirequest.WithRequestInfo(ctx, info)
	ctx = apirequest.WithReceivedTimestamp(ctx, received)
	ctx = apirequest.WithLatencyTrackers(ctx)
	return ctx, &Request{auditor: a, longRunning: longRunning, context: audit.AuditContextFrom(ctx)}
}

// Serve records what next does. The request's context must say who the user
// is. next is not called, and the answer is an internal error, if the event
// that the request was received cannot be kept and has to be.
func (r *Request) Serve(w http.ResponseWriter, req *http.Request, next http.HandlerFunc) {
	isLongRunning := func(*http.Request, *apirequest.RequestInfo) bool { return r.longRunning }
	filters.WithAudit(next, r.auditor.sink, r, isLongRunning).ServeHTTP(w, req)
}

// Refuse records that a request got no further, for it cannot be understood
// or its sender is unknown. next answers it.
func (r *Request) Refuse(w http.ResponseWriter, req *http.Request, next http.HandlerFunc) {
	filters.WithFailedAuthenticationAudit(next, r.auditor.sink, r).ServeHTTP(w, req)
}

// records says that the event has a place for what belongs to a level.
func (r *Request) records(level auditapi.Level) bool {
	return r != nil && r.config.Level != "" && !r.config.Level.Less(level)
}
