package apiserver

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// beginAudit starts the record of the request.
func (q *request) beginAudit(id string, longRunning bool) {
	q.Context, q.audit = q.server.Audit.Begin(q.Context, &q.Info, id, q.Now, longRunning)
	q.http = q.http.WithContext(q.Context)
}

// refused answers a request that goes no further before it is known whose it
// is, and records it.
func (q *request) refused(err error) error {
	if q.audit == nil {
		return err
	}
	q.through(func(w http.ResponseWriter, next http.HandlerFunc) {
		q.audit.Refuse(w, q.http.WithContext(q.Context), next)
	},
		func() error { return err })
	return nil
}

// audited passes the request of a known user through the other stages and
// records what they do.
func (q *request) audited(next func() error) error {
	r := q.http.WithContext(apirequest.WithUser(q.Context, q.User))
	q.through(func(w http.ResponseWriter, next http.HandlerFunc) { q.audit.Serve(w, r, next) }, next)
	return nil
}

// through lets answer write to a writer of the record's.
func (q *request) through(record func(http.ResponseWriter, http.HandlerFunc), answer func() error) {
	original := q.w
	defer func() { q.w = original }()
	record(q.w, func(w http.ResponseWriter, _ *http.Request) {
		q.w = w
		if err := answer(); err != nil {
			q.fail(err)
		}
	})
	if q.code == 0 {
		q.code = http.StatusInternalServerError // the record could not be kept and was answered so
	}
}

// recordDecision notes in the record what was decided and why.
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

// recordBody notes in the record an object that the client sent.
func (q operation) recordBody(obj runtime.Object, kind schema.GroupVersionKind) {
	if q.audit != nil {
		q.audit.Object(q.Context, obj, kind, q.Endpoint.GVR(), q.Info.Subresource)
	}
}
