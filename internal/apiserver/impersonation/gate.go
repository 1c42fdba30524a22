package impersonation

import (
	"context"

	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/utils/lru"
)

// rememberedUsers bounds for how many users the mode that served them is kept.
const rememberedUsers = 10_000

// Gate lets users speak for others by the first mode that allows it. It may be
// used by any number of goroutines.
type Gate struct {
	authorizer authorizer.UnconditionalAuthorizer
	modes      []mode
	last       *lru.Cache // user name -> index of the mode that last let the user through
}

// NewGate asks an authorizer. Unless constrained, there is only the verb
// impersonate (the feature ConstrainedImpersonation).
func NewGate(a authorizer.UnconditionalAuthorizer, constrained bool) *Gate {
	modes := []mode{legacy}
	if constrained {
		modes = []mode{associatedNode, arbitraryNode, serviceAccount, userInfo, legacy}
	}
	return &Gate{authorizer: a, modes: modes, last: lru.New(rememberedUsers)}
}

// Identity is who a request is of.
type Identity struct {
	User user.Info
	// Constraint is the verb that allowed it, for the audit log; empty for
	// the verb impersonate.
	Constraint string
}

// Check returns the wanted user if the sender of the request may be that user
// for this request. The refusal is that of the mode which served the sender
// last, or else of the first mode that is for users like the wanted one.
func (g *Gate) Check(ctx context.Context, wanted *user.DefaultInfo, request *authorizer.AttributesRecord) (Identity, error) {
	var refusal error
	for _, i := range g.order(request.User) {
		m := g.modes[i]
		if !m.serves(wanted, request.User) {
			continue
		}
		err := g.mayBe(ctx, m, wanted, request)
		if err == nil {
			g.last.Add(request.User.GetName(), i)
			return m.identity(wanted), nil
		}
		if refusal == nil {
			refusal = err
		}
	}
	return Identity{}, refusal
}

// order is in which the modes are asked: the one that the sender used last,
// and then the most constrained.
func (g *Gate) order(sender user.Info) []int {
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

// allowed returns a Forbidden in upstream's words unless the authorizer allows it.
func (g *Gate) allowed(ctx context.Context, a authorizer.Attributes) error {
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
