package impersonation

import (
	"context"

	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/utils/lru"
)

// cachedUsers bounds the users for which the last mode is cached.
const cachedUsers = 10_000

// Impersonator authorizes impersonation by the first mode that allows it. It is
// safe for concurrent use.
type Impersonator struct {
	authorizer authorizer.UnconditionalAuthorizer
	modes      []mode
	last       *lru.Cache // user name -> index of the mode that last let the user through
}

// NewImpersonator returns an Impersonator that asks an authorizer. Unless
// constrained (the feature ConstrainedImpersonation), the only mode is the verb
// impersonate.
func NewImpersonator(a authorizer.UnconditionalAuthorizer, constrained bool) *Impersonator {
	modes := []mode{legacy}
	if constrained {
		modes = []mode{associatedNode, arbitraryNode, serviceAccount, userInfo, legacy}
	}
	return &Impersonator{authorizer: a, modes: modes, last: lru.New(cachedUsers)}
}

// Identity is the user of a request after impersonation.
type Identity struct {
	User user.Info
	// Constraint is the verb that allowed it, for the audit log; empty for the
	// verb impersonate.
	Constraint string
}

// Check returns the identity of the requested user if the sender may
// impersonate it for this request. Otherwise it returns the error of the mode
// that allowed the sender last, or else of the first mode for such users.
func (g *Impersonator) Check(ctx context.Context, requested *user.DefaultInfo, request *authorizer.AttributesRecord) (Identity, error) {
	var refusal error
	for _, i := range g.order(request.User) {
		m := g.modes[i]
		if !m.serves(requested, request.User) {
			continue
		}
		err := g.mayImpersonate(ctx, m, requested, request)
		if err == nil {
			g.last.Add(request.User.GetName(), i)
			return m.identity(requested), nil
		}
		if refusal == nil {
			refusal = err
		}
	}
	return Identity{}, refusal
}

// order returns the order of the modes: the one that allowed the sender last,
// then from the most constrained.
func (g *Impersonator) order(sender user.Info) []int {
	order := make([]int, 0, len(g.modes))
	last, known := g.last.Get(sender.GetName())
	if known {
		order = append(order, last.(int))
	}
	for i := range g.modes {
		if !known || i != last {
			order = append(order, i)
		}
	}
	return order
}

// allowed returns a Forbidden with upstream's message unless the authorizer
// allows the request.
func (g *Impersonator) allowed(ctx context.Context, a authorizer.Attributes) error {
	decision, reason, err := g.authorizer.Authorize(ctx, a)
	switch {
	case decision == authorizer.DecisionAllow:
		return nil
	case errors.IsForbidden(err):
		return err
	case err != nil && reason != "":
		reason = err.Error() + ": " + reason
	case err != nil:
		reason = err.Error()
	}
	return responsewriters.ForbiddenStatusError(a, reason)
}
