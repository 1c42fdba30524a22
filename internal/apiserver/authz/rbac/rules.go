package rbac

import (
	"slices"
	"strings"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// ruleSet answers whether a role's rules allow a request by looking the
// request up, however many rules there are. It is compiled on first use:
// most roles of a cluster are never asked.
type ruleSet struct {
	rules []rbacv1.PolicyRule

	once      sync.Once
	resources map[resourceKey]names
	urls      map[string][]string // by verb
}

type resourceKey struct{ verb, group, resource string }

// names are the object names that a rule is limited to.
type names struct {
	all  bool
	some []string
}

func (s *ruleSet) compile() {
	s.resources, s.urls = map[resourceKey]names{}, map[string][]string{}
	for _, r := range s.rules {
		for _, verb := range r.Verbs {
			for _, group := range r.APIGroups {
				for _, resource := range r.Resources {
					k := resourceKey{verb, group, resource}
					n := s.resources[k]
					if len(r.ResourceNames) == 0 {
						n.all = true
					} else {
						n.some = append(n.some, r.ResourceNames...)
					}
					s.resources[k] = n
				}
			}
			s.urls[verb] = append(s.urls[verb], r.NonResourceURLs...)
		}
	}
}

func (s *ruleSet) allows(a authorizer.Attributes) bool {
	s.once.Do(s.compile)
	if !a.IsResourceRequest() {
		return urlMatches(s.urls[a.GetVerb()], a.GetPath()) || urlMatches(s.urls[rbacv1.VerbAll], a.GetPath())
	}
	resource, anySub := a.GetResource(), ""
	if sub := a.GetSubresource(); sub != "" {
		resource, anySub = resource+"/"+sub, "*/"+sub
	}
	for _, verb := range [2]string{a.GetVerb(), rbacv1.VerbAll} {
		for _, group := range [2]string{a.GetAPIGroup(), rbacv1.APIGroupAll} {
			for _, resource := range [3]string{resource, rbacv1.ResourceAll, anySub} {
				if resource == "" {
					continue
				}
				n, ok := s.resources[resourceKey{verb, group, resource}]
				if ok && (n.all || slices.Contains(n.some, a.GetName())) {
					return true
				}
			}
		}
	}
	return false
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

// Allows says whether one of the rules allows the request.
func Allows(rules []rbacv1.PolicyRule, a authorizer.Attributes) bool {
	s := ruleSet{rules: rules}
	return s.allows(a)
}
