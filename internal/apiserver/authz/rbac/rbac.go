// Package rbac authorizes by roles and role bindings (the mode RBAC).
//
//	user, groups ──► cluster scope ──► grants ──► compiled rules of the role
//	             └─► scope of the request's namespace ──► ...
//
// A decision takes a few map lookups. The cluster-wide index is rebuilt when a
// cluster role or a cluster role binding has changed. The scope of a namespace
// is rebuilt at the first request after its bindings or their roles have
// changed. Writes in other namespaces only cost a comparison.
package rbac

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/coracle-io/coracle/internal/apiserver/errorlist"
	"github.com/coracle-io/coracle/internal/apiserver/objects"
)

// Authorizer implements authorizer.Authorizer and authorizer.RuleResolver.
type Authorizer struct {
	readers    readers
	current    atomic.Pointer[index]
	rebuild    sync.Mutex // held while an index is built
	namespaces namespaces
}

var (
	_ authorizer.Authorizer   = (*Authorizer)(nil)
	_ authorizer.RuleResolver = (*Authorizer)(nil)
)

// New returns an Authorizer for the roles and bindings of source.
func New(source objects.Source) *Authorizer {
	return &Authorizer{readers: readers{
		roles:           objects.Of[*rbacv1.Role](source, objects.Roles),
		clusterRoles:    objects.Of[*rbacv1.ClusterRole](source, objects.ClusterRoles),
		bindings:        objects.Of[*rbacv1.RoleBinding](source, objects.RoleBindings),
		clusterBindings: objects.Of[*rbacv1.ClusterRoleBinding](source, objects.ClusterRoleBindings),
	}}
}

func (z *Authorizer) index() *index {
	// Revisions are read before the objects, so that an index is never older
	// than it says.
	now := z.readers.revisions()
	if x := z.current.Load(); x != nil && x.revisions == now {
		return x
	}
	z.rebuild.Lock()
	defer z.rebuild.Unlock()
	now = z.readers.revisions()
	former := z.current.Load()
	if former != nil && former.revisions == now {
		return former
	}
	x := newIndex(&z.readers, now, former)
	z.namespaces.changed(&z.readers)
	z.current.Store(x)
	return x
}

// visit calls f with every grant of the user in the namespace ("" is
// cluster-wide) until f returns false.
func (z *Authorizer) visit(u user.Info, namespace string, f func(*grant) bool) {
	x := z.index()
	if x.scope.visit(u, f) && namespace != "" {
		z.namespaces.scope(&z.readers, x, namespace).visit(u, f)
	}
}

// Authorize implements authorizer.Authorizer. It never denies.
func (z *Authorizer) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	var allowed *grant
	var errs []error
	z.visit(a.GetUser(), a.GetNamespace(), func(g *grant) bool {
		switch {
		case g.err != nil:
			errs = append(errs, g.err)
		case g.role.allows(a):
			allowed = g
			return false
		}
		return true
	})
	if allowed != nil {
		var reason [256]byte
		return authorizer.DecisionAllow, string(allowed.appendTo(append(reason[:0], "RBAC: allowed by "...))), nil
	}
	if len(errs) > 0 {
		return authorizer.DecisionNoOpinion, fmt.Sprintf("RBAC: %v", errorlist.Aggregate(errs)), nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// ConditionsAwareAuthorize implements authorizer.Authorizer; RBAC has no conditions.
func (z *Authorizer) ConditionsAwareAuthorize(ctx context.Context, a authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(z.Authorize(ctx, a))
}

// EvaluateConditions implements authorizer.Authorizer; RBAC has no conditions.
func (z *Authorizer) EvaluateConditions(context.Context, authorizer.ConditionsAwareDecision, authorizer.ConditionsData) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", authorizer.ErrorConditionEvaluationNotSupported
}

// held calls f once with the rules of each role that the user has in the
// namespace ("" is cluster-wide), until f returns false. The error lists
// bindings whose roles do not exist.
func (z *Authorizer) held(u user.Info, namespace string, f func([]rbacv1.PolicyRule) bool) error {
	var errs []error
	seen := map[*ruleSet]bool{}
	z.visit(u, namespace, func(g *grant) bool {
		switch {
		case g.err != nil:
			errs = append(errs, g.err)
		case !seen[g.role]:
			seen[g.role] = true
			return f(g.role.rules)
		}
		return true
	})
	return errorlist.Aggregate(errs)
}

// maxRules bounds the rules that RulesFor returns, in bytes.
const maxRules = 1 << 20

var errTooManyRules = fmt.Errorf("only rules of up to %d bytes are listed", maxRules)

// RulesFor implements authorizer.RuleResolver. The result is incomplete if it
// would exceed maxRules.
func (z *Authorizer) RulesFor(_ context.Context, u user.Info, namespace string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	var resources []authorizer.ResourceRuleInfo
	var urls []authorizer.NonResourceRuleInfo
	bytes := 0
	err := z.held(u, namespace, func(rules []rbacv1.PolicyRule) bool {
		for i := range rules {
			r := &rules[i]
			if bytes += size(r); bytes > maxRules {
				return false
			}
			if len(r.Resources) > 0 {
				resources = append(resources, &authorizer.DefaultResourceRuleInfo{
					Verbs: r.Verbs, APIGroups: r.APIGroups, Resources: r.Resources, ResourceNames: r.ResourceNames})
			}
			if len(r.NonResourceURLs) > 0 {
				urls = append(urls, &authorizer.DefaultNonResourceRuleInfo{Verbs: r.Verbs, NonResourceURLs: r.NonResourceURLs})
			}
		}
		return true
	})
	incomplete := bytes > maxRules
	if incomplete {
		err = errors.Join(err, errTooManyRules)
	}
	return resources, urls, incomplete, err
}

// size returns the approximate size of an encoded rule in bytes.
func size(r *rbacv1.PolicyRule) int {
	const perRule, perValue = 100, 4
	bytes := perRule
	for _, list := range [][]string{r.Verbs, r.APIGroups, r.Resources, r.ResourceNames, r.NonResourceURLs} {
		for _, value := range list {
			bytes += len(value) + perValue
		}
	}
	return bytes
}
