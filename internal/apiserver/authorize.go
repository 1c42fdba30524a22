package apiserver

import (
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/coracle-io/coracle/internal/apiserver/registry"
	"github.com/coracle-io/coracle/internal/metrics"
)

// authorize asks the authorizer whether the user may make this request.
func (q *request) authorize() error {
	a := q.call.Attributes()
	end := q.measure(apirequest.TrackAuthorizationLatency)
	decision, reason, err := q.server.registry.Authorizer.Authorize(q.call.Context, a)
	end()
	q.server.registry.Metrics.Access.Authorized(authorizationResult(decision, err), q.server.registry.Clock.Since(q.call.Now)-q.authenticatedAfter)
	if q.audit != nil {
		recordDecision(q.call.Context, decision, reason, err)
	}
	return registry.Refusal(a, decision, reason, err)
}

// authorizationResult returns the metrics' label of a decision.
func authorizationResult(decision authorizer.Decision, err error) string {
	switch {
	case decision == authorizer.DecisionAllow:
		return metrics.Allowed
	case err != nil:
		return metrics.Failed
	case decision == authorizer.DecisionDeny:
		return metrics.Denied
	}
	return metrics.NoOpinion
}
