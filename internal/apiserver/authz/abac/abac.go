// Package abac authorizes by the policies of a file with one JSON object per
// line (https://kubernetes.io/docs/reference/access-authn-authz/abac/). A
// request is allowed if any policy allows it. None is denied: other authorizers
// may still allow it.
package abac

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Authorizer holds the policies of a file. It is immutable.
type Authorizer struct{ policies []policy }

// policy is one line. A property "*" matches everything. An empty property
// matches only the empty value, but an empty user or group is not checked.
type policy struct {
	User  string `json:"user,omitempty"`
	Group string `json:"group,omitempty"`

	// Readonly allows only get, list and watch.
	Readonly bool `json:"readonly,omitempty"`

	APIGroup        string `json:"apiGroup,omitempty"`
	Resource        string `json:"resource,omitempty"`
	Namespace       string `json:"namespace,omitempty"`
	NonResourcePath string `json:"nonResourcePath,omitempty"`
}

const noMatch = "No policy matched."

// Authorize implements authorizer.Authorizer.
func (z *Authorizer) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	for i := range z.policies {
		if z.policies[i].allows(a) {
			return authorizer.DecisionAllow, "", nil
		}
	}
	return authorizer.DecisionNoOpinion, noMatch, nil
}

// ConditionsAwareAuthorize implements authorizer.Authorizer.
func (z *Authorizer) ConditionsAwareAuthorize(ctx context.Context, a authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(z.Authorize(ctx, a))
}

// EvaluateConditions implements authorizer.Authorizer; ABAC has no conditions.
func (*Authorizer) EvaluateConditions(context.Context, authorizer.ConditionsAwareDecision, authorizer.ConditionsData) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", authorizer.ErrorConditionEvaluationNotSupported
}

// RulesFor implements authorizer.RuleResolver.
func (z *Authorizer) RulesFor(_ context.Context, u user.Info, namespace string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	var resources []authorizer.ResourceRuleInfo
	var others []authorizer.NonResourceRuleInfo
	for i := range z.policies {
		p := &z.policies[i]
		if !p.isFor(u) {
			continue
		}
		if p.Resource != "" && matches(p.Namespace, namespace) {
			resources = append(resources, &authorizer.DefaultResourceRuleInfo{Verbs: p.verbs("get", "list", "watch"), APIGroups: []string{p.APIGroup}, Resources: []string{p.Resource}})
		}
		if p.NonResourcePath != "" {
			others = append(others, &authorizer.DefaultNonResourceRuleInfo{Verbs: p.verbs("get"), NonResourceURLs: []string{p.NonResourcePath}})
		}
	}
	return resources, others, false, nil
}

func (p *policy) verbs(reading ...string) []string {
	if p.Readonly {
		return reading
	}
	return []string{"*"}
}

func (p *policy) allows(a authorizer.Attributes) bool {
	if !p.isFor(a.GetUser()) || p.Readonly && !a.IsReadOnly() {
		return false
	}
	if a.IsResourceRequest() {
		return matches(p.Namespace, a.GetNamespace()) && matches(p.Resource, a.GetResource()) && matches(p.APIGroup, a.GetAPIGroup())
	}
	prefix, isPrefix := strings.CutSuffix(p.NonResourcePath, "*")
	return p.NonResourcePath == a.GetPath() || isPrefix && strings.HasPrefix(a.GetPath(), prefix)
}

// isFor reports whether the policy applies to a user: the user and the group
// must match, if both are set.
func (p *policy) isFor(u user.Info) bool {
	if u == nil || p.User == "" && p.Group == "" {
		return false
	}
	groups := u.GetGroups()
	if p.User == "*" || p.Group == "*" {
		return slices.Contains(groups, user.AllAuthenticated)
	}
	return (p.User == "" || p.User == u.GetName()) && (p.Group == "" || slices.Contains(groups, p.Group))
}

func matches(wanted, value string) bool { return wanted == "*" || wanted == value }
