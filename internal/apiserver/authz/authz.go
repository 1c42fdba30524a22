// Package authz puts together who may do what: the modes of
// --authorization-mode, in their order, behind the shortcut for
// system:masters.
package authz

import (
	"context"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/authorization/union"

	"github.com/coracle-io/coracle/internal/apiserver/authz/node"
	"github.com/coracle-io/coracle/internal/apiserver/authz/rbac"
	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/metrics"
)

// Modes of --authorization-mode.
const (
	ModeNode        = "Node"
	ModeRBAC        = "RBAC"
	ModeAlwaysAllow = "AlwaysAllow"
	ModeAlwaysDeny  = "AlwaysDeny"
)

// Modes lists what --authorization-mode may hold.
var Modes = []string{ModeAlwaysAllow, ModeAlwaysDeny, ModeNode, ModeRBAC}

// Authorizer decides every request.
type Authorizer struct {
	authorizer.Authorizer
	// Rules resolves what a user may do, for SelfSubjectRulesReviews.
	Rules authorizer.RuleResolver
	// RBAC is nil unless the mode is on.
	RBAC *rbac.Authorizer
}

// New builds the modes in their order over the objects of source. nodeRules
// are the rules of the cluster role system:node. m counts the decisions of
// each mode; nil counts none.
func New(modes []string, source objects.Source, nodeRules []rbacv1.PolicyRule, m *metrics.Access) (*Authorizer, error) {
	if len(modes) == 0 {
		return nil, fmt.Errorf("--authorization-mode: give at least one of %q", Modes)
	}
	chain := []union.NamedAuthorizer{{AuthorizerName: "SystemMasters", Authorizer: authorizerfactory.NewPrivilegedGroups(user.SystemPrivilegedGroup)}}
	out := &Authorizer{}
	var resolvers []authorizer.RuleResolver
	for i, mode := range modes {
		if slices.Contains(modes[:i], mode) {
			return nil, fmt.Errorf("--authorization-mode: %q has mode specified more than once", modes)
		}
		var z authorizer.Authorizer
		switch mode {
		case ModeNode:
			z = node.New(source, nodeRules)
			resolvers = append(resolvers, incompleteRules{})
		case ModeRBAC:
			out.RBAC = rbac.New(source)
			z = out.RBAC
			resolvers = append(resolvers, out.RBAC)
		case ModeAlwaysAllow:
			always := authorizerfactory.NewAlwaysAllowAuthorizer()
			z = always
			resolvers = append(resolvers, always)
		case ModeAlwaysDeny:
			always := authorizerfactory.NewAlwaysDenyAuthorizer()
			z = always
			resolvers = append(resolvers, always)
		default:
			return nil, fmt.Errorf("--authorization-mode: %q is not a valid mode, use %q", mode, Modes)
		}
		if m != nil {
			z = newCounted(z, m, mode)
		}
		chain = append(chain, union.NamedAuthorizer{AuthorizerName: mode, Authorizer: z})
	}
	combined, err := union.New(chain...)
	if err != nil {
		return nil, err
	}
	out.Authorizer = combined
	out.Rules = union.NewRuleResolvers(resolvers...)
	return out, nil
}

// incompleteRules says of nodes that their rules cannot be listed.
type incompleteRules struct{}

func (incompleteRules) RulesFor(_ context.Context, u user.Info, _ string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	if _, isNode := node.Identify(u); isNode {
		return nil, nil, true, fmt.Errorf("node authorizer does not support user rule resolution")
	}
	return nil, nil, false, nil
}
