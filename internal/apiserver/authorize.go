package apiserver

import (
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/coracle-io/coracle/internal/apiserver/registry"
	"github.com/coracle-io/coracle/internal/metrics"
)

// authorize asks whether the user may do this.
func (q *request) authorize() error {
	a := q.Attributes()
	decision, reason, err := q.server.Authorizer.Authorize(q.Context, a)
	q.server.Metrics.Access.Authorized(authorizationResult(decision, err), q.server.Clock.Since(q.Now)-q.recognised)
	if q.audit != nil {
		recordDecision(q.Context, decision, reason, err)
	}
	return registry.Refusal(a, decision, reason, err)
}

// authorizationResult names a decision as metrics do.
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
