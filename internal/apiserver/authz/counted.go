package authz

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/coracle-io/coracle/internal/metrics"
)

// counted is an authorizer that counts its final decisions.
type counted struct {
	authorizer.Authorizer
	allowed, denied prometheus.Counter
}

func newCounted(z authorizer.Authorizer, m *metrics.Access, mode, name string) counted {
	allowed, denied := m.Decisions(mode, name)
	return counted{z, allowed, denied}
}

// Authorize implements authorizer.Authorizer.
func (c counted) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	decision, reason, err := c.Authorizer.Authorize(ctx, a)
	switch decision {
	case authorizer.DecisionAllow:
		c.allowed.Inc()
	case authorizer.DecisionDeny:
		c.denied.Inc()
	case authorizer.DecisionNoOpinion:
	}
	return decision, reason, err
}
