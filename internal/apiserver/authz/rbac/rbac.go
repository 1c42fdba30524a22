// Package rbac decides by roles and role bindings who may do what.
//
//	user, groups ──► cluster scope ──► grants ──► compiled rules of the role
//	             └─► scope of the request's namespace ──► ...
//
// A decision is a few map lookups. The index behind it is rebuilt when a role
// or binding has changed since.
package rbac

import (
	"context"
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
	readers readers
	current atomic.Pointer[index]
	rebuild sync.Mutex // held while an index is made
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
	revisions := z.readers.revisions()
	if x := z.current.Load(); x != nil && x.revisions == revisions {
		return x
	}
	z.rebuild.Lock()
	defer z.rebuild.Unlock()
	revisions = z.readers.revisions()
	former := z.current.Load()
	if former != nil && former.revisions == revisions {
		return former
	}
	x := newIndex(&z.readers, revisions, former)
	z.current.Store(x)
	return x
}

// visit calls f with every grant that counts for the user in the namespace
// ("" is cluster-wide) until it returns false.
func (z *Authorizer) visit(u user.Info, namespace string, f func(grant) bool) {
	x := z.index()
	if x.cluster.visit(u, f) && namespace != "" {
		x.namespace(&z.readers, namespace).visit(u, f)
	}
}

// Authorize implements authorizer.Authorizer. It allows or has no opinion.
func (z *Authorizer) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	var allowed string
	var errs []error
	z.visit(a.GetUser(), a.GetNamespace(), func(g grant) bool {
		switch {
		case g.err != nil:
			errs = append(errs, g.err)
		case g.role.allows(a):
			allowed = g.binding
			return false
		}
		return true
	})
	if allowed != "" {
		return authorizer.DecisionAllow, "RBAC: allowed by " + allowed, nil
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

// Rules returns everything the user may do in the namespace ("" is
// cluster-wide). err tells of bindings whose roles do not exist.
func (z *Authorizer) Rules(u user.Info, namespace string) (rules []rbacv1.PolicyRule, err error) {
	var errs []error
	z.visit(u, namespace, func(g grant) bool {
		if g.err != nil {
			errs = append(errs, g.err)
		} else {
			rules = append(rules, g.role.rules...)
		}
		return true
	})
	return rules, faults.Join(errs)
}

// RulesFor implements authorizer.RuleResolver.
func (z *Authorizer) RulesFor(_ context.Context, u user.Info, namespace string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	rules, err := z.Rules(u, namespace)
	var resources []authorizer.ResourceRuleInfo
	var urls []authorizer.NonResourceRuleInfo
	for _, r := range rules {
		if len(r.Resources) > 0 {
			resources = append(resources, &authorizer.DefaultResourceRuleInfo{
				Verbs: r.Verbs, APIGroups: r.APIGroups, Resources: r.Resources, ResourceNames: r.ResourceNames})
		}
		if len(r.NonResourceURLs) > 0 {
			urls = append(urls, &authorizer.DefaultNonResourceRuleInfo{Verbs: r.Verbs, NonResourceURLs: r.NonResourceURLs})
		}
	}
	return resources, urls, false, err
}
