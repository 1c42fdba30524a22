package fairness

import (
	"cmp"
	"hash/maphash"
	"slices"
	"strings"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/coracle-io/coracle/internal/metrics"
)

// rules are all flow schemas in matching order. They are immutable.
type rules struct {
	schemas []*schema
	// rest is catch-all, for requests that no schema matches.
	rest *schema
}

// newRules compiles flow schemas, except those without an existing level. It
// sorts them by matchingPrecedence, then by name.
func newRules(all []*flowcontrolv1.FlowSchema, levels map[string]*level, seed maphash.Seed, counts func(level, schema string) *metrics.Flow) *rules {
	ordered := slices.SortedFunc(slices.Values(all), func(a, b *flowcontrolv1.FlowSchema) int {
		return cmp.Or(cmp.Compare(a.Spec.MatchingPrecedence, b.Spec.MatchingPrecedence), cmp.Compare(a.Name, b.Name))
	})
	r := &rules{}
	for _, object := range ordered {
		l := levels[object.Spec.PriorityLevelConfiguration.Name]
		if l == nil {
			continue
		}
		s := newSchema(object, l, seed)
		s.counts = counts(l.name, s.name)
		r.schemas = append(r.schemas, s)
		if s.name == flowcontrolv1.FlowSchemaNameCatchAll {
			r.rest = s
		}
	}
	return r
}

// classify returns the schema of a request.
func (r *rules) classify(u user.Info, info *apirequest.RequestInfo) *schema {
	for _, s := range r.schemas {
		if s.matches(u, info) {
			return s
		}
	}
	return r.rest
}

// schema is a FlowSchema compiled for matching.
type schema struct {
	name string
	// uid and levelUID are UIDs as values of response headers.
	uid, levelUID []string
	level         *level
	counts        *metrics.Flow
	policies      []policy
	by            flowcontrolv1.FlowDistinguisherMethodType // "" means one flow for all requests
	hash          uint64
}

func newSchema(object *flowcontrolv1.FlowSchema, l *level, seed maphash.Seed) *schema {
	s := &schema{name: object.Name, uid: []string{string(object.UID)}, levelUID: l.uid, level: l, hash: maphash.String(seed, object.Name)}
	if m := object.Spec.DistinguisherMethod; m != nil {
		s.by = m.Type
	}
	for _, rule := range object.Spec.Rules {
		s.policies = append(s.policies, newPolicy(&rule))
	}
	return s
}

func (s *schema) matches(u user.Info, info *apirequest.RequestInfo) bool {
	for i := range s.policies {
		if s.policies[i].matches(u, info) {
			return true
		}
	}
	return false
}

// distinguisher returns the flow distinguisher of a request.
func (s *schema) distinguisher(u user.Info, info *apirequest.RequestInfo) string {
	switch s.by {
	case flowcontrolv1.FlowDistinguisherMethodByUserType:
		return u.GetName()
	case flowcontrolv1.FlowDistinguisherMethodByNamespaceType:
		return info.Namespace
	}
	return ""
}

// flow returns the hash of a flow of the schema. The seed is secret, so that
// users cannot choose names that share the queues of others.
func (s *schema) flow(seed maphash.Seed, distinguisher string) uint64 {
	return s.hash ^ maphash.String(seed, distinguisher)
}

// policy matches the requests of its subjects that match one of its rules.
type policy struct {
	who       subjects
	resources []resourceRule
	paths     []pathRule
}

func newPolicy(rule *flowcontrolv1.PolicyRulesWithSubjects) policy {
	p := policy{who: newSubjects(rule.Subjects)}
	for _, r := range rule.ResourceRules {
		p.resources = append(p.resources, resourceRule{
			verbs: newNames(r.Verbs), groups: newNames(r.APIGroups), resources: newNames(r.Resources),
			namespaces: newNames(r.Namespaces), clusterScope: r.ClusterScope,
		})
	}
	for _, r := range rule.NonResourceRules {
		p.paths = append(p.paths, pathRule{verbs: newNames(r.Verbs), paths: newPaths(r.NonResourceURLs)})
	}
	return p
}

func (p *policy) matches(u user.Info, info *apirequest.RequestInfo) bool {
	if info.IsResourceRequest {
		for i := range p.resources {
			if p.resources[i].matches(info) {
				return p.who.contain(u)
			}
		}
		return false
	}
	for i := range p.paths {
		if p.paths[i].matches(info) {
			return p.who.contain(u)
		}
	}
	return false
}

// subjects are users by name, by group and by the namespace of service accounts.
type subjects struct {
	everybody bool
	users     []string
	groups    []string
	accounts  []string // system:serviceaccount:NAMESPACE:
}

func newSubjects(all []flowcontrolv1.Subject) (s subjects) {
	for _, subject := range all {
		switch {
		case subject.User != nil && subject.Kind == flowcontrolv1.SubjectKindUser:
			s.everybody = s.everybody || subject.User.Name == flowcontrolv1.NameAll
			s.users = append(s.users, subject.User.Name)
		case subject.Group != nil && subject.Kind == flowcontrolv1.SubjectKindGroup:
			s.everybody = s.everybody || subject.Group.Name == flowcontrolv1.NameAll
			s.groups = append(s.groups, subject.Group.Name)
		case subject.ServiceAccount != nil && subject.Kind == flowcontrolv1.SubjectKindServiceAccount:
			if a := subject.ServiceAccount; a.Name == flowcontrolv1.NameAll {
				s.accounts = append(s.accounts, serviceaccount.MakeUsername(a.Namespace, ""))
			} else {
				s.users = append(s.users, serviceaccount.MakeUsername(a.Namespace, a.Name))
			}
		}
	}
	return s
}

func (s *subjects) contain(u user.Info) bool {
	if s.everybody {
		return true
	}
	if len(s.users) > 0 && slices.Contains(s.users, u.GetName()) {
		return true
	}
	for _, prefix := range s.accounts {
		if strings.HasPrefix(u.GetName(), prefix) {
			return true
		}
	}
	if len(s.groups) > 0 {
		for _, g := range u.GetGroups() {
			if slices.Contains(s.groups, g) {
				return true
			}
		}
	}
	return false
}

type resourceRule struct {
	verbs, groups, resources, namespaces names
	clusterScope                         bool
}

func (r *resourceRule) matches(info *apirequest.RequestInfo) bool {
	if !r.groups.contain(info.APIGroup) || !r.verbs.contain(info.Verb) || !r.resources.containResource(info) {
		return false
	}
	if info.Namespace == "" {
		return r.clusterScope
	}
	return r.namespaces.contain(info.Namespace)
}

type pathRule struct {
	verbs names
	paths paths
}

func (r *pathRule) matches(info *apirequest.RequestInfo) bool {
	return r.verbs.contain(info.Verb) && r.paths.contain(info.Path)
}

// names are the names that a rule lists; "*" is all.
type names struct {
	all  bool
	list []string
}

func newNames(list []string) names { return names{slices.Contains(list, "*"), list} }

func (n *names) contain(name string) bool { return n.all || slices.Contains(n.list, name) }

// containResource reports whether the list has RESOURCE or, for a request for a
// subresource, RESOURCE/SUBRESOURCE.
func (n *names) containResource(info *apirequest.RequestInfo) bool {
	if n.all || info.Subresource == "" {
		return n.contain(info.Resource)
	}
	for _, name := range n.list {
		resource, sub, ok := strings.Cut(name, "/")
		if ok && resource == info.Resource && sub == info.Subresource {
			return true
		}
	}
	return false
}

// paths are the URL paths that a rule lists, with all paths below them.
type paths struct {
	all   bool
	exact []string
	below []string // end in a slash
}

func newPaths(list []string) (p paths) {
	for _, path := range list {
		if path == flowcontrolv1.NonResourceAll {
			p.all = true
			continue
		}
		p.exact = append(p.exact, path)
		p.below = append(p.below, strings.TrimSuffix(strings.TrimSuffix(path, "*"), "/")+"/")
	}
	return p
}

func (p *paths) contain(path string) bool {
	if p.all || slices.Contains(p.exact, path) {
		return true
	}
	for _, prefix := range p.below {
		if strings.HasPrefix(path, prefix) {
			return true
		}
	}
	return false
}
