// Package authz authorizes requests by the authorizers of
// --authorization-mode or --authorization-config, in their order, after a
// shortcut for system:masters:
//
//	system:masters ─► Node ─► Webhook ─► RBAC ...   the first to allow or deny decides
package authz

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/authorization/union"

	"github.com/coracle-io/coracle/internal/apiserver/authz/abac"
	"github.com/coracle-io/coracle/internal/apiserver/authz/node"
	"github.com/coracle-io/coracle/internal/apiserver/authz/rbac"
	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/metrics"
)

// The modes of --authorization-mode.
const (
	ModeNode        = "Node"
	ModeRBAC        = "RBAC"
	ModeABAC        = "ABAC"
	ModeWebhook     = "Webhook"
	ModeAlwaysAllow = "AlwaysAllow"
	ModeAlwaysDeny  = "AlwaysDeny"
)

// Modes returns the modes that --authorization-mode accepts.
func Modes() []string {
	return []string{ModeAlwaysAllow, ModeAlwaysDeny, ModeABAC, ModeWebhook, ModeRBAC, ModeNode}
}

// Config configures the authorizers. Fields are required unless their comment
// says otherwise.
type Config struct {
	// Authorizers are the authorizers in their order.
	Authorizers []apiserver.AuthorizerConfiguration
	// Source has the roles, bindings and other objects that authorizers read.
	Source objects.Source
	// NodeRules are the rules of the cluster role system:node.
	NodeRules []rbacv1.PolicyRule
	// PolicyFile is the policy file of ABAC; "" if ABAC is not used.
	PolicyFile string
	// WebhookBackoff is the back-off between attempts to reach a webhook.
	WebhookBackoff wait.Backoff
	// Metrics counts the decisions of each authorizer; nil counts none.
	Metrics *metrics.Access
}

// InOrder returns the configuration of authorizers that only need a mode, in
// the order of modes.
func InOrder(modes ...string) []apiserver.AuthorizerConfiguration {
	var all []apiserver.AuthorizerConfiguration
	for _, mode := range modes {
		all = append(all, apiserver.AuthorizerConfiguration{Type: apiserver.AuthorizerType(mode), Name: strings.ToLower(mode)})
	}
	return all
}

// Authorizer authorizes requests and resolves the rules of users.
type Authorizer struct {
	// RBAC is nil unless the mode is in the configuration given to New.
	RBAC *rbac.Authorizer

	config  Config
	node    authorizer.Authorizer
	abac    *abac.Authorizer
	current atomic.Pointer[chain]
}

// chain is the authorizers in their order.
type chain struct {
	authorizer.Authorizer
	rules authorizer.RuleResolver
}

// New builds the authorizers.
func New(c Config) (*Authorizer, error) {
	z := &Authorizer{config: c}
	for _, a := range c.Authorizers {
		if a.Type == ModeRBAC {
			z.RBAC = rbac.New(c.Source)
		}
	}
	return z, z.Set(c.Authorizers)
}

// Set replaces the authorizers. Requests in progress keep the former ones. If
// Set fails, it changes nothing.
func (z *Authorizer) Set(authorizers []apiserver.AuthorizerConfiguration) error {
	if len(authorizers) == 0 {
		return fmt.Errorf("at least one authorization mode must be defined, out of %q", Modes())
	}
	named := []union.NamedAuthorizer{{AuthorizerName: "SystemMasters", Authorizer: authorizerfactory.NewPrivilegedGroups(user.SystemPrivilegedGroup)}}
	var resolvers []authorizer.RuleResolver
	for i, a := range authorizers {
		if slices.ContainsFunc(authorizers[:i], func(other apiserver.AuthorizerConfiguration) bool { return other.Type == a.Type }) && a.Type != ModeWebhook {
			return fmt.Errorf("authorization mode %q is specified more than once", a.Type)
		}
		decides, resolver, err := z.build(a)
		if err != nil {
			return err
		}
		if z.config.Metrics != nil {
			decides = newCounted(decides, z.config.Metrics, string(a.Type), a.Name)
		}
		name := string(a.Type)
		if a.Type == ModeWebhook {
			name = a.Name
		}
		named = append(named, union.NamedAuthorizer{AuthorizerName: name, Authorizer: decides})
		resolvers = append(resolvers, resolver)
	}
	combined, err := union.New(named...)
	if err != nil {
		return err
	}
	z.current.Store(&chain{combined, union.NewRuleResolvers(resolvers...)})
	return nil
}

// build returns one authorizer with its rule resolver. Authorizers that need no
// further configuration are built once and reused.
func (z *Authorizer) build(a apiserver.AuthorizerConfiguration) (authorizer.Authorizer, authorizer.RuleResolver, error) {
	switch a.Type {
	case ModeNode:
		if z.node == nil {
			z.node = node.New(z.config.Source, z.config.NodeRules)
		}
		return z.node, incompleteRules{}, nil
	case ModeRBAC:
		if z.RBAC == nil {
			return nil, nil, fmt.Errorf("authorization mode %s was not used when the server started: restart it", ModeRBAC)
		}
		return z.RBAC, z.RBAC, nil
	case ModeABAC:
		if z.abac == nil {
			var err error
			if z.abac, err = abac.Read(z.config.PolicyFile); err != nil {
				return nil, nil, fmt.Errorf("--authorization-policy-file: %w", err)
			}
		}
		return z.abac, z.abac, nil
	case ModeWebhook:
		w, err := newWebhook(a, z.config.WebhookBackoff)
		return w, w, err
	case ModeAlwaysAllow:
		always := authorizerfactory.NewAlwaysAllowAuthorizer()
		return always, always, nil
	case ModeAlwaysDeny:
		always := authorizerfactory.NewAlwaysDenyAuthorizer()
		return always, always, nil
	}
	return nil, nil, fmt.Errorf("authorization mode %q is not a valid mode, use any of %q", a.Type, Modes())
}

// Authorize implements authorizer.Authorizer.
func (z *Authorizer) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	return z.current.Load().Authorize(ctx, a)
}

// ConditionsAwareAuthorize implements authorizer.Authorizer.
func (z *Authorizer) ConditionsAwareAuthorize(ctx context.Context, a authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return z.current.Load().ConditionsAwareAuthorize(ctx, a)
}

// EvaluateConditions implements authorizer.Authorizer.
func (z *Authorizer) EvaluateConditions(ctx context.Context, d authorizer.ConditionsAwareDecision, data authorizer.ConditionsData) (authorizer.Decision, string, error) {
	return z.current.Load().EvaluateConditions(ctx, d, data)
}

// RulesFor implements authorizer.RuleResolver.
func (z *Authorizer) RulesFor(ctx context.Context, u user.Info, namespace string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	return z.current.Load().rules.RulesFor(ctx, u, namespace)
}

// incompleteRules reports that the rules of nodes cannot be listed.
type incompleteRules struct{}

func (incompleteRules) RulesFor(_ context.Context, u user.Info, _ string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	if _, isNode := node.Identify(u); isNode {
		return nil, nil, true, fmt.Errorf("node authorizer does not support user rule resolution")
	}
	return nil, nil, false, nil
}
