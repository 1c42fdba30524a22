// Package rbac decides by roles and role bindings who may do what.
//
//	user, groups ──► cluster scope ──► grants ──► compiled rules of the role
//	             └─► scope of the request's namespace ──► ...
//
// A decision is a few map lookups. The index of what is cluster-wide is made
// anew when a cluster role or a binding of one to the whole cluster has changed.
// The scope of a namespace is made when somebody asks for something in it and
// its bindings, or the roles that they refer to, have changed since: what the
// tenants of other namespaces write takes no more than a look.
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

	"github.com/coracle-io/coracle/internal/apiserver/faults"
	"github.com/coracle-io/coracle/internal/apiserver/objects"
)

// Authorizer implements authorizer.Authorizer and authorizer.RuleResolver.
type Authorizer struct {
	readers    readers
	current    atomic.Pointer[index]
	rebuild    sync.Mutex // held while an index is made
	namespaces namespaces
}

var (
	_ authorizer.Authorizer   = (*Authorizer)(nil)
	_ authorizer.RuleResolver = (*Authorizer)(nil)
)

// New makes an Authorizer over the roles and bindings of source.
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

// visit calls f with every grant that counts for the user in the namespace
// ("" is cluster-wide) until it returns false.
func (z *Authorizer) visit(u user.Info, namespace string, f func(*grant) bool) {
	x := z.index()
	if x.scope.visit(u, f) && namespace != "" {
		z.namespaces.scope(&z.readers, x, namespace).visit(u, f)
	}
}

// Authorize implements authorizer.Authorizer. It allows or has no opinion.
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
		return authorizer.DecisionNoOpinion, fmt.Sprintf("RBAC: %v", faults.Join(errs)), nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// ConditionsAwareAuthorize implements authorizer.Authorizer; RBAC has no conditions.
func (z *Authorizer) ConditionsAwareAuthorize(ctx context.Context, a authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(z.Authorize(ctx, a))
}

// EvaluateConditions implements authorizer.Authorizer; there is nothing to evaluate.
func (z *Authorizer) EvaluateConditions(context.Context, authorizer.ConditionsAwareDecision, authorizer.ConditionsData) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", authorizer.ErrorConditionEvaluationNotSupported
}

// held calls f with the rules of every role that the user has in the namespace
// ("" is cluster-wide), however many bindings give it, until f returns false.
// The error tells of bindings whose roles do not exist.
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
	return faults.Join(errs)
}

// mostRules bounds the rules that a user is told of, in bytes.
const mostRules = 1 << 20

var errMoreRules = fmt.Errorf("only rules of up to %d bytes are listed", mostRules)

// RulesFor implements authorizer.RuleResolver. It is incomplete where there is
// more to tell than has room.
func (z *Authorizer) RulesFor(_ context.Context, u user.Info, namespace string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	var resources []authorizer.ResourceRuleInfo
	var urls []authorizer.NonResourceRuleInfo
	bytes := 0
	err := z.held(u, namespace, func(rules []rbacv1.PolicyRule) bool {
		for i := range rules {
			r := &rules[i]
			if bytes += size(r); bytes > mostRules {
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
	incomplete := bytes > mostRules
	if incomplete {
		err = errors.Join(err, errMoreRules)
	}
	return resources, urls, incomplete, err
}

// size is what a rule takes in an answer, about.
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
