package rbac

import (
	"slices"
	"strings"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// ruleSet is the rules of a role, indexed by resource, so that rules for other
// resources cost nothing. It is compiled at its first use, since most roles are
// never used. The index takes no more memory than the rules.
type ruleSet struct {
	role  any // the role object; nil if there is none
	rules []rbacv1.PolicyRule

	once      sync.Once
	resources map[string][]*rbacv1.PolicyRule // by resource, as written in the rules
	urls      []*rbacv1.PolicyRule            // those with URLs
}

func (s *ruleSet) compile() {
	s.resources = map[string][]*rbacv1.PolicyRule{}
	for i := range s.rules {
		r := &s.rules[i]
		for _, resource := range r.Resources {
			about := s.resources[resource]
			if len(about) == 0 || about[len(about)-1] != r { // a rule may name a resource twice
				s.resources[resource] = append(about, r)
			}
		}
		if len(r.NonResourceURLs) > 0 {
			s.urls = append(s.urls, r)
		}
	}
}

func (s *ruleSet) allows(a authorizer.Attributes) bool {
	s.once.Do(s.compile)
	if !a.IsResourceRequest() {
		return slices.ContainsFunc(s.urls, func(r *rbacv1.PolicyRule) bool {
			return has(r.Verbs, a.GetVerb(), rbacv1.VerbAll) && urlMatches(r.NonResourceURLs, a.GetPath())
		})
	}
	resource, anySub := a.GetResource(), ""
	if sub := a.GetSubresource(); sub != "" {
		resource, anySub = resource+"/"+sub, "*/"+sub
	}
	for _, resource := range [3]string{resource, rbacv1.ResourceAll, anySub} {
		if resource == "" {
			continue
		}
		for _, r := range s.resources[resource] {
			if has(r.Verbs, a.GetVerb(), rbacv1.VerbAll) && has(r.APIGroups, a.GetAPIGroup(), rbacv1.APIGroupAll) &&
				(len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, a.GetName())) {
				return true
			}
		}
	}
	return false
}

func has(values []string, value, all string) bool {
	return slices.Contains(values, value) || slices.Contains(values, all)
}

func urlMatches(urls []string, path string) bool {
	for _, u := range urls {
		if u == rbacv1.NonResourceAll || u == path {
			return true
		}
		if prefix, ok := strings.CutSuffix(u, "*"); ok && strings.HasPrefix(path, prefix) {
			return true
		}
	}
	return false
}

// Allows reports whether one of the rules allows the request.
func Allows(rules []rbacv1.PolicyRule, a authorizer.Attributes) bool {
	s := ruleSet{rules: rules}
	return s.allows(a)
}
