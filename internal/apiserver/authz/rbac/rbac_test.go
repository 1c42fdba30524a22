package rbac

import (
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	rbacv1beta1 "k8s.io/api/rbac/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/apiserver/objects/objectstest"
)

func clusterRole(name string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
}

func rule(verbs, groups, resources string, names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: strings.Fields(verbs), APIGroups: strings.Split(groups, ","), Resources: strings.Fields(resources), ResourceNames: names}
}

func bindCluster(name, role string, to ...rbacv1.Subject) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: role}, Subjects: to}
}

func bind(namespace, name, kind, role string, to ...rbacv1.Subject) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, RoleRef: rbacv1.RoleRef{Kind: kind, Name: role}, Subjects: to}
}

var (
	alice   = rbacv1.Subject{Kind: "User", Name: "alice"}
	devs    = rbacv1.Subject{Kind: "Group", Name: "devs"}
	builder = rbacv1.Subject{Kind: "ServiceAccount", Name: "builder"}
)

func fixture() *objectstest.Memory {
	return objectstest.NewMemory().
		Put(objects.ClusterRoles,
			clusterRole("reader", rule("get list", "", "pods */status")),
			clusterRole("scaler", rule("*", "apps,*", "deployments/scale")),
			clusterRole("named", rule("get", "", "secrets", "one")),
			clusterRole("urls", rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{"/healthz", "/apis/*"}})).
		Put(objects.Roles, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "edit"}, Rules: []rbacv1.PolicyRule{rule("*", "*", "*")}}).
		Put(objects.ClusterRoleBindings, bindCluster("readers", "reader", alice), bindCluster("scalers", "scaler", devs),
			bindCluster("named", "named", alice), bindCluster("urls", "urls", alice)).
		Put(objects.RoleBindings, bind("web", "editors", "Role", "edit", builder), bind("web", "dangling", "ClusterRole", "gone", devs))
}

func TestAuthorize(t *testing.T) {
	z := New(fixture())
	sa := &user.DefaultInfo{Name: "system:serviceaccount:web:builder"}
	a := &user.DefaultInfo{Name: "alice"}
	dev := &user.DefaultInfo{Name: "bob", Groups: []string{"devs"}}
	for _, test := range []struct {
		what    string
		who     user.Info
		a       authorizer.AttributesRecord
		allowed bool
		reason  string
	}{
		{"resource", a, authorizer.AttributesRecord{Verb: "get", Resource: "pods", Namespace: "web"}, true,
			`RBAC: allowed by ClusterRoleBinding "readers" of ClusterRole "reader" to User "alice"`},
		{"verb", a, authorizer.AttributesRecord{Verb: "delete", Resource: "pods", Namespace: "web"}, false, ""},
		{"group", a, authorizer.AttributesRecord{Verb: "get", APIGroup: "apps", Resource: "pods"}, false, ""},
		{"any subresource", a, authorizer.AttributesRecord{Verb: "get", Resource: "nodes", Subresource: "status"}, true,
			`RBAC: allowed by ClusterRoleBinding "readers" of ClusterRole "reader" to User "alice"`},
		{"subresource is not the resource", a, authorizer.AttributesRecord{Verb: "get", Resource: "pods", Subresource: "log"}, false, ""},
		{"name", a, authorizer.AttributesRecord{Verb: "get", Resource: "secrets", Name: "one"}, true,
			`RBAC: allowed by ClusterRoleBinding "named" of ClusterRole "named" to User "alice"`},
		{"other name", a, authorizer.AttributesRecord{Verb: "get", Resource: "secrets", Name: "two"}, false, ""},
		{"any group and verb", dev, authorizer.AttributesRecord{Verb: "patch", APIGroup: "extensions", Resource: "deployments", Subresource: "scale"}, true,
			`RBAC: allowed by ClusterRoleBinding "scalers" of ClusterRole "scaler" to Group "devs"`},
		{"service account in its namespace", sa, authorizer.AttributesRecord{Verb: "delete", APIGroup: "x", Resource: "y", Namespace: "web"}, true,
			`RBAC: allowed by RoleBinding "editors/web" of Role "edit" to ServiceAccount "builder/web"`},
		{"service account elsewhere", sa, authorizer.AttributesRecord{Verb: "delete", Resource: "pods", Namespace: "other"}, false, ""},
		{"missing role", dev, authorizer.AttributesRecord{Verb: "get", Resource: "pods", Namespace: "web"}, false,
			`RBAC: clusterrole.rbac.authorization.k8s.io "gone" not found`},
	} {
		t.Run(test.what, func(t *testing.T) {
			test.a.User, test.a.ResourceRequest = test.who, true
			d, reason, err := z.Authorize(t.Context(), test.a)
			if (d == authorizer.DecisionAllow) != test.allowed || reason != test.reason || err != nil {
				t.Errorf("%v %q %v, want %v %q", d, reason, err, test.allowed, test.reason)
			}
		})
	}
	for path, allowed := range map[string]bool{"/healthz": true, "/healthz/ping": false, "/apis/apps/v1": true, "/apis": false} {
		d, _, _ := z.Authorize(t.Context(), authorizer.AttributesRecord{User: a, Verb: "get", Path: path})
		if (d == authorizer.DecisionAllow) != allowed {
			t.Errorf("%s: %v", path, d)
		}
	}
}

// A rule may have lists with billions of combinations.
func TestLongRules(t *testing.T) {
	long := rbacv1.PolicyRule{Verbs: numbered("v", 2000), APIGroups: numbered("g", 2000), Resources: numbered("r", 2000), ResourceNames: numbered("n", 2000)}
	urls := rbacv1.PolicyRule{Verbs: numbered("v", 20_000), NonResourceURLs: numbered("/u", 20_000)}
	a := authorizer.AttributesRecord{Verb: "v1", APIGroup: "g1999", Resource: "r7", Name: "n1500", ResourceRequest: true}
	if rules := []rbacv1.PolicyRule{long, urls}; !Allows(rules, a) || !Allows(rules, authorizer.AttributesRecord{Verb: "v19999", Path: "/u1"}) {
		t.Error("refused")
	}
}

func TestChangesTakeEffectImmediately(t *testing.T) {
	m := fixture()
	z := New(m)
	ask := authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "carol"}, Verb: "get", Resource: "pods", Namespace: "web", ResourceRequest: true}
	expect := func(want authorizer.Decision) {
		t.Helper()
		if d, _, _ := z.Authorize(t.Context(), ask); d != want {
			t.Errorf("%v, want %v", d, want)
		}
	}
	expect(authorizer.DecisionNoOpinion)
	m.Put(objects.RoleBindings, bind("web", "carol", "ClusterRole", "reader", rbacv1.Subject{Kind: "User", Name: "carol"}))
	expect(authorizer.DecisionAllow)
	m.Put(objects.ClusterRoles, clusterRole("reader", rule("list", "", "pods")))
	expect(authorizer.DecisionNoOpinion)
	m.Put(objects.ClusterRoles, clusterRole("reader", rule("get", "", "pods")))
	expect(authorizer.DecisionAllow)
	m.Delete(objects.RoleBindings, "web", "carol")
	expect(authorizer.DecisionNoOpinion)
}

func TestEscalation(t *testing.T) {
	m := fixture()
	m.Put(objects.ClusterRoles, clusterRole("binder", rule("bind", rbacv1.GroupName, "clusterroles", "admin")),
		clusterRole("admin", rule("*", "*", "*")), clusterRole("escalator", rule("escalate", rbacv1.GroupName, "clusterroles")))
	m.Put(objects.ClusterRoleBindings, bindCluster("binders", "binder", devs),
		bindCluster("escalators", "escalator", rbacv1.Subject{Kind: "User", Name: "root"}))
	z := New(m)
	a := &user.DefaultInfo{Name: "alice", Groups: []string{"x"}}
	aggregate := clusterRole("sum")
	aggregate.AggregationRule = &rbacv1.AggregationRule{}
	labelled := func(r *rbacv1.ClusterRole) *rbacv1.ClusterRole {
		r.Labels = map[string]string{"rbac.authorization.k8s.io/aggregate-to-view": "true"}
		return r
	}
	collected := clusterRole("r", rule("*", "*", "*"))
	collected.OwnerReferences, collected.Finalizers = []metav1.OwnerReference{{Name: "o"}}, []string{"example.com/f"}
	collected.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "collector"}}
	refused := func(what string) string {
		return what + " is forbidden: user \"alice\" (groups=[\"x\"]) is attempting to grant RBAC permissions not currently held:\n" +
			"{APIGroups:[\"*\"], Resources:[\"*\"], Verbs:[\"*\"]}"
	}
	relabelled := bindCluster("b", "admin", alice)
	relabelled.Labels = map[string]string{"a": "b"}
	sum := clusterRole("sum", rule("get", "", "pods"))
	sum.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{"a": "b"}}}}
	for _, test := range []struct {
		what     string
		who      user.Info
		obj, old runtime.Object
		want     string
	}{
		{"held", a, clusterRole("r", rule("get", "", "pods")), nil, ""},
		{"not held", a, clusterRole("r", rule("get delete create", "", "pods"), rule("get", "apps", "deployments")), nil,
			"clusterroles.rbac.authorization.k8s.io \"r\" is forbidden: user \"alice\" (groups=[\"x\"]) is attempting to grant RBAC permissions not currently held:\n" +
				"{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"delete\" \"create\"]}\n{APIGroups:[\"apps\"], Resources:[\"deployments\"], Verbs:[\"get\"]}"},
		{"unchanged", a, clusterRole("r", rule("*", "*", "*")), clusterRole("r", rule("*", "*", "*")), ""},
		{"labels of a role held", a, labelled(clusterRole("r", rule("get", "", "pods"))), clusterRole("r", rule("get", "", "pods")), ""},
		{"labels of a role not held", a, labelled(clusterRole("r", rule("*", "*", "*"))), clusterRole("r", rule("*", "*", "*")),
			refused(`clusterroles.rbac.authorization.k8s.io "r"`)},
		{"labels taken from a role not held", a, clusterRole("r", rule("*", "*", "*")), labelled(clusterRole("r", rule("*", "*", "*"))),
			refused(`clusterroles.rbac.authorization.k8s.io "r"`)},
		{"labels by escalate", &user.DefaultInfo{Name: "root"}, labelled(clusterRole("r", rule("*", "*", "*"))), clusterRole("r", rule("*", "*", "*")), ""},
		{"labels of an aggregated role", a, labelled(sum.DeepCopy()), sum, `clusterroles.rbac.authorization.k8s.io "sum" is forbidden: must have cluster-admin privileges to use the aggregationRule`},
		{"owner references and finalizers", a, collected, clusterRole("r", rule("*", "*", "*")), ""},
		{"labels of a binding not held", a, relabelled, bindCluster("b", "admin", alice), refused(`clusterrolebindings.rbac.authorization.k8s.io "b"`)},
		{"another kind", a, &rbacv1beta1.ClusterRole{}, nil, "Internal error occurred: cannot check a *v1beta1.ClusterRole for escalation"},
		{"masters", &user.DefaultInfo{Name: "x", Groups: []string{"system:masters"}}, clusterRole("r", rule("*", "*", "*")), nil, ""},
		{"escalate", &user.DefaultInfo{Name: "root"}, clusterRole("r", rule("*", "*", "*")), nil, ""},
		{"aggregation", a, aggregate, nil, `clusterroles.rbac.authorization.k8s.io "sum" is forbidden: must have cluster-admin privileges to use the aggregationRule`},
		{"bind", &user.DefaultInfo{Name: "bob", Groups: []string{"devs"}}, bindCluster("b", "admin", alice), nil, ""},
		{"binding not held", a, bindCluster("b", "admin", alice), nil,
			"clusterrolebindings.rbac.authorization.k8s.io \"b\" is forbidden: user \"alice\" (groups=[\"x\"]) is attempting to grant RBAC permissions not currently held:\n" +
				"{APIGroups:[\"*\"], Resources:[\"*\"], Verbs:[\"*\"]}"},
		{"binding to nothing", a, bind("web", "b", "Role", "none", alice), nil, `role.rbac.authorization.k8s.io "none" not found`},
	} {
		t.Run(test.what, func(t *testing.T) {
			got := ""
			if err := z.CheckEscalation(t.Context(), z, test.who, test.obj, test.old); err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("%s\nwant %s", got, test.want)
			}
		})
	}
}

func BenchmarkAuthorize(b *testing.B) {
	z := New(fixture())
	a := authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "bob", Groups: []string{"devs", "system:authenticated"}},
		Verb: "get", APIGroup: "extensions", Resource: "deployments", Subresource: "scale", Namespace: "web", ResourceRequest: true}
	for b.Loop() {
		if d, _, _ := z.Authorize(b.Context(), a); d != authorizer.DecisionAllow {
			b.Fatal(d)
		}
	}
}
