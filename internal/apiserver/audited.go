package apiserver

import (
	"context"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// beginAudit starts the audit event of the request.
func (q *request) beginAudit(id string, longRunning bool) {
	q.call.Context, q.audit = q.server.access.Audit.Begin(q.call.Context, &q.call.Info, id, q.call.Now, longRunning)
	q.http = q.http.WithContext(q.call.Context)
}

// reject audits and answers a request that failed before it was authenticated.
// It returns the error for the caller to answer if auditing is off.
func (q *request) reject(err error) error {
	if q.audit == nil {
		return err
	}
	q.recording(func(w http.ResponseWriter, next http.HandlerFunc) {
		q.audit.Refuse(w, q.http.WithContext(q.call.Context), next)
	},
		func() error { return err })
	return nil
}

// serveAudited runs next, which serves an authenticated request, and audits it.
func (q *request) serveAudited(next func() error) error {
	r := q.http.WithContext(apirequest.WithUser(q.call.Context, q.call.User))
	q.recording(func(w http.ResponseWriter, next http.HandlerFunc) { q.audit.Serve(w, r, next) }, next)
	return nil
}

// measure measures a stage of the request, from now until end is called. track adds
// the time to the audit event of a request that takes long.
func (q *request) measure(track func(context.Context, time.Duration)) (end func()) {
	if q.audit == nil {
		return func() {}
	}
	began := q.server.registry.Clock.Now()
	return func() { track(q.call.Context, q.server.registry.Clock.Since(began)) }
}

// recording runs answer with the audit event's response writer.
func (q *request) recording(record func(http.ResponseWriter, http.HandlerFunc), answer func() error) {
	original := q.response.w
	defer func() { q.response.w = original }()
	record(q.response.w, func(w http.ResponseWriter, _ *http.Request) {
		q.response.w = w
		if err := answer(); err != nil {
			q.fail(err)
		}
	})
	if q.response.code == 0 {
		q.response.code = http.StatusInternalServerError // the auditor failed and answered
	}
}

// recordDecision adds the authorization decision and its reason to the audit
// event.
func recordDecision(ctx context.Context, decision authorizer.Decision, reason string, err error) {
	const decisionKey, reasonKey = "authorization.k8s.io/decision", "authorization.k8s.io/reason"
	switch {
	case decision == authorizer.DecisionAllow:
		audit.AddAuditAnnotations(ctx, decisionKey, "allow", reasonKey, reason)
	case err != nil:
		audit.AddAuditAnnotation(ctx, reasonKey, "internal error")
	default:
		audit.AddAuditAnnotations(ctx, decisionKey, "forbid", reasonKey, reason)
	}
}
