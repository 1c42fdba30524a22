package fairness

import (
	"fmt"
	"hash/maphash"
	"strings"
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"pgregory.net/rapid"

	"github.com/coracle-io/coracle/internal/metrics"
)

// defaults returns the flow schemas that every cluster has.
func defaults() []*flowcontrolv1.FlowSchema {
	return append(append([]*flowcontrolv1.FlowSchema{}, bootstrap.MandatoryFlowSchemas...), bootstrap.SuggestedFlowSchemas...)
}

// compiled returns the rules of schemas. Every level exists except "missing".
func compiled(schemas ...*flowcontrolv1.FlowSchema) *rules {
	levels := map[string]*level{}
	for _, s := range schemas {
		if name := s.Spec.PriorityLevelConfiguration.Name; name != "missing" {
			levels[name] = &level{name: name}
		}
	}
	return newRules(schemas, levels, maphash.MakeSeed(), func(string, string) *metrics.Flow { return nil })
}

func resourceRequest(verb, group, resource, namespace string) *apirequest.RequestInfo {
	plural, sub, _ := strings.Cut(resource, "/")
	return &apirequest.RequestInfo{IsResourceRequest: true, Verb: verb, APIGroup: group, Resource: plural, Subresource: sub, Namespace: namespace}
}

func pathRequest(verb, path string) *apirequest.RequestInfo {
	return &apirequest.RequestInfo{Verb: verb, Path: path}
}

func someone(name string, groups ...string) user.Info {
	return &user.DefaultInfo{Name: name, Groups: append(groups, user.AllAuthenticated)}
}

func TestDefaultSchemas(t *testing.T) {
	account := func(namespace, name string) user.Info {
		return someone("system:serviceaccount:"+namespace+":"+name, "system:serviceaccounts", "system:serviceaccounts:"+namespace)
	}
	node := someone("system:node:a", user.NodesGroup)
	rules := compiled(defaults()...)
	for _, test := range []struct {
		who  user.Info
		what *apirequest.RequestInfo
		want string
	}{
		{someone("admin", user.SystemPrivilegedGroup), resourceRequest("list", "", "pods", ""), "exempt"},
		{someone("admin", user.SystemPrivilegedGroup), pathRequest("get", "/readyz"), "exempt"},
		{someone("jane"), pathRequest("get", "/readyz"), "probes"},
		{someone("jane"), pathRequest("get", "/readyz/etcd"), "probes"},
		{someone("jane"), pathRequest("get", "/readyzy"), "global-default"},
		{someone("jane"), pathRequest("post", "/readyz"), "global-default"},
		{&user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}, pathRequest("get", "/livez"), "probes"},
		{someone(user.KubeScheduler), resourceRequest("update", "coordination.k8s.io", "leases", "kube-system"), "system-leader-election"},
		{someone(user.KubeScheduler), resourceRequest("delete", "coordination.k8s.io", "leases", "kube-system"), "kube-scheduler"},
		{someone(user.KubeScheduler), resourceRequest("create", "", "pods/binding", "a"), "kube-scheduler"},
		{someone(user.KubeControllerManager), resourceRequest("create", "", "pods", "a"), "kube-controller-manager"},
		{account("kube-system", "node-controller"), resourceRequest("get", "coordination.k8s.io", "leases", "a"), "system-leader-election"},
		{account("kube-system", "node-controller"), resourceRequest("list", "coordination.k8s.io", "leases", "a"), "kube-system-service-accounts"},
		{account("kube-systems", "node-controller"), resourceRequest("list", "", "pods", "a"), "service-accounts"},
		{node, resourceRequest("patch", "", "nodes/status", ""), "system-node-high"},
		{node, resourceRequest("patch", "", "nodes/proxy", ""), "system-nodes"},
		{node, resourceRequest("update", "coordination.k8s.io", "leases", "kube-node-lease"), "system-node-high"},
		{node, resourceRequest("get", "", "secrets", "a"), "system-nodes"},
		{account("a", "b"), resourceRequest("get", "", "secrets", "a"), "service-accounts"},
		{someone("jane"), resourceRequest("get", "", "secrets", "a"), "global-default"},
		{&user.DefaultInfo{Name: "of no group"}, resourceRequest("get", "", "secrets", "a"), "catch-all"},
	} {
		t.Run(fmt.Sprint(test.who.GetName(), " ", test.what.Verb, " ", test.what.Path, test.what.Resource, "/", test.what.Subresource), func(t *testing.T) {
			if got := rules.classify(test.who, test.what); got.name != test.want {
				t.Errorf("%s, want %s", got.name, test.want)
			}
		})
	}
}

// made returns a schema for jane's requests for pods.
func made(name, level string, precedence int32, change ...func(*flowcontrolv1.FlowSchemaSpec)) *flowcontrolv1.FlowSchema {
	s := &flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: flowcontrolv1.FlowSchemaSpec{
		PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: level},
		MatchingPrecedence:         precedence,
		Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
			Subjects: []flowcontrolv1.Subject{{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: "jane"}}},
			ResourceRules: []flowcontrolv1.ResourcePolicyRule{{
				Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}, Namespaces: []string{"*"}, ClusterScope: true,
			}},
		}},
	}}
	for _, c := range change {
		c(&s.Spec)
	}
	return s
}

func TestOrderOfSchemas(t *testing.T) {
	catchAll := bootstrap.MandatoryFlowSchemaCatchAll
	for _, test := range []struct {
		name    string
		schemas []*flowcontrolv1.FlowSchema
		want    string
	}{
		{"the lower precedence goes first", []*flowcontrolv1.FlowSchema{made("a", "x", 20), made("b", "x", 10)}, "b"},
		{"then the name", []*flowcontrolv1.FlowSchema{made("b", "x", 10), made("a", "x", 10)}, "a"},
		{"without a level it takes no part", []*flowcontrolv1.FlowSchema{made("a", "missing", 10), made("b", "x", 20)}, "b"},
		{"nothing else matches", []*flowcontrolv1.FlowSchema{made("a", "missing", 10)}, "catch-all"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := compiled(append(test.schemas, catchAll)...).classify(someone("jane"), resourceRequest("get", "", "pods", "a"))
			if got.name != test.want {
				t.Errorf("%s, want %s", got.name, test.want)
			}
		})
	}
}

func TestFlowsOfASchema(t *testing.T) {
	info := resourceRequest("get", "", "pods", "shop")
	for by, want := range map[flowcontrolv1.FlowDistinguisherMethodType]string{
		"": "", flowcontrolv1.FlowDistinguisherMethodByUserType: "jane", flowcontrolv1.FlowDistinguisherMethodByNamespaceType: "shop",
	} {
		object := made("a", "x", 1, func(s *flowcontrolv1.FlowSchemaSpec) {
			if by != "" {
				s.DistinguisherMethod = &flowcontrolv1.FlowDistinguisherMethod{Type: by}
			}
		})
		if got := compiled(object).schemas[0].distinguisher(someone("jane"), info); got != want {
			t.Errorf("%q: %q, want %q", by, got, want)
		}
	}
}

// The reference classifier interprets the objects at each request, as the API
// documents their fields.
func TestClassifyMatchesReference(t *testing.T) {
	names := func(of ...string) *rapid.Generator[[]string] {
		return rapid.OneOf(rapid.Just([]string{"*"}), rapid.SliceOfN(rapid.SampledFrom(of), 1, 3))
	}
	subject := rapid.Custom(func(t *rapid.T) flowcontrolv1.Subject {
		name := rapid.SampledFrom([]string{"a", "b", "*"}).Draw(t, "subject")
		switch rapid.IntRange(0, 2).Draw(t, "kind") {
		case 0:
			return flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: name}}
		case 1:
			return flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindGroup, Group: &flowcontrolv1.GroupSubject{Name: name}}
		}
		return flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindServiceAccount, ServiceAccount: &flowcontrolv1.ServiceAccountSubject{
			Namespace: rapid.SampledFrom([]string{"n", "nn"}).Draw(t, "namespace"), Name: name}}
	})
	rule := rapid.Custom(func(t *rapid.T) flowcontrolv1.PolicyRulesWithSubjects {
		p := flowcontrolv1.PolicyRulesWithSubjects{Subjects: rapid.SliceOfN(subject, 1, 3).Draw(t, "subjects")}
		for range rapid.IntRange(0, 2).Draw(t, "resource rules") {
			p.ResourceRules = append(p.ResourceRules, flowcontrolv1.ResourcePolicyRule{
				Verbs: names("get", "list").Draw(t, "verbs"), APIGroups: names("", "apps").Draw(t, "groups"),
				Resources:    names("pods", "pods/log", "nodes").Draw(t, "resources"),
				Namespaces:   rapid.OneOf(rapid.Just([]string(nil)), names("n", "m")).Draw(t, "namespaces"),
				ClusterScope: rapid.Bool().Draw(t, "clusterScope"),
			})
		}
		for range rapid.IntRange(0, 2).Draw(t, "path rules") {
			p.NonResourceRules = append(p.NonResourceRules, flowcontrolv1.NonResourcePolicyRule{
				Verbs: names("get", "list").Draw(t, "verbs"), NonResourceURLs: names("/a", "/a/*", "/b").Draw(t, "paths")})
		}
		return p
	})
	rapid.Check(t, func(t *rapid.T) {
		schemas := []*flowcontrolv1.FlowSchema{bootstrap.MandatoryFlowSchemaCatchAll}
		for i := range rapid.IntRange(1, 5).Draw(t, "schemas") {
			schemas = append(schemas, made(fmt.Sprint("s", i), rapid.SampledFrom([]string{"x", "missing"}).Draw(t, "level"),
				rapid.Int32Range(1, 3).Draw(t, "precedence"), func(s *flowcontrolv1.FlowSchemaSpec) { s.Rules = rapid.SliceOfN(rule, 0, 3).Draw(t, "rules") }))
		}
		who := &user.DefaultInfo{
			Name:   rapid.SampledFrom([]string{"a", "b", "c", "system:serviceaccount:n:a", "system:serviceaccount:nn:c"}).Draw(t, "user"),
			Groups: rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 2).Draw(t, "groups"),
		}
		what := pathRequest("get", rapid.SampledFrom([]string{"/a", "/a/b", "/ab", "/b"}).Draw(t, "path"))
		if rapid.Bool().Draw(t, "resource request") {
			what = resourceRequest(rapid.SampledFrom([]string{"get", "list", "watch"}).Draw(t, "verb"), rapid.SampledFrom([]string{"", "apps"}).Draw(t, "group"),
				rapid.SampledFrom([]string{"pods", "pods/log", "nodes"}).Draw(t, "resource"), rapid.SampledFrom([]string{"", "n", "m"}).Draw(t, "namespace"))
		}
		if got, want := compiled(schemas...).classify(who, what).name, referenceClassify(schemas, who, what); got != want {
			t.Fatalf("%s, want %s", got, want)
		}
	})
}

// referenceClassify returns the name of the first schema that matches.
func referenceClassify(schemas []*flowcontrolv1.FlowSchema, who user.Info, what *apirequest.RequestInfo) string {
	best := bootstrap.MandatoryFlowSchemaCatchAll
	for _, s := range schemas {
		before := s.Spec.MatchingPrecedence < best.Spec.MatchingPrecedence ||
			s.Spec.MatchingPrecedence == best.Spec.MatchingPrecedence && s.Name < best.Name
		if before && s.Spec.PriorityLevelConfiguration.Name != "missing" && plainlyMatches(s, who, what) {
			best = s
		}
	}
	return best.Name
}

func plainlyMatches(s *flowcontrolv1.FlowSchema, who user.Info, what *apirequest.RequestInfo) bool {
	lists := func(list []string, name string) bool {
		for _, l := range list {
			if l == "*" || l == name {
				return true
			}
		}
		return false
	}
	resource := what.Resource
	if what.Subresource != "" {
		resource += "/" + what.Subresource
	}
	for _, r := range s.Spec.Rules {
		concerned := false
		for _, x := range r.Subjects {
			switch x.Kind {
			case flowcontrolv1.SubjectKindUser:
				concerned = concerned || lists([]string{x.User.Name}, who.GetName())
			case flowcontrolv1.SubjectKindGroup:
				concerned = concerned || x.Group.Name == "*" || lists(who.GetGroups(), x.Group.Name)
			case flowcontrolv1.SubjectKindServiceAccount:
				parts := strings.Split(who.GetName(), ":")
				concerned = concerned || len(parts) == 4 && parts[2] == x.ServiceAccount.Namespace && lists([]string{x.ServiceAccount.Name}, parts[3])
			}
		}
		named := false
		for _, x := range r.ResourceRules {
			named = named || what.IsResourceRequest && lists(x.Verbs, what.Verb) && lists(x.APIGroups, what.APIGroup) && lists(x.Resources, resource) &&
				(what.Namespace == "" && x.ClusterScope || what.Namespace != "" && lists(x.Namespaces, what.Namespace))
		}
		for _, x := range r.NonResourceRules {
			for _, path := range x.NonResourceURLs {
				below := strings.HasPrefix(what.Path, strings.TrimSuffix(path, "/*")+"/")
				named = named || !what.IsResourceRequest && lists(x.Verbs, what.Verb) && (lists([]string{path}, what.Path) || below)
			}
		}
		if concerned && named {
			return true
		}
	}
	return false
}

func BenchmarkClassify(b *testing.B) {
	rules := compiled(defaults()...)
	for name, who := range map[string]user.Info{
		"exempt":     someone("admin", user.SystemPrivilegedGroup),
		"controller": someone("system:serviceaccount:kube-system:deployment-controller", "system:serviceaccounts", "system:serviceaccounts:kube-system"),
		"user":       someone("jane"),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			info := resourceRequest("list", "", "pods", "default")
			for b.Loop() {
				rules.classify(who, info)
			}
		})
	}
}
