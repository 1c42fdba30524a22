package rbac

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/apiserver/objects/objectstest"
	"github.com/coracle-io/coracle/internal/resource"
)

func ask(who user.Info, namespace string) authorizer.Attributes {
	return authorizer.AttributesRecord{User: who, Verb: "get", Resource: "pods", Namespace: namespace, ResourceRequest: true}
}

// A role's rules are listed once, even if a binding repeats a subject or
// several bindings refer to the role.
func TestRolesAreListedOnce(t *testing.T) {
	m := fixture()
	for i := range 20 {
		m.Put(objects.RoleBindings, bind("web", fmt.Sprint(i), "ClusterRole", "reader", slices.Repeat([]rbacv1.Subject{devs, alice}, 1000)...))
	}
	z := New(m)
	who := &user.DefaultInfo{Name: "alice", Groups: slices.Repeat([]string{"devs", "nobodies"}, 500_000)}
	rules, _, incomplete, err := z.RulesFor(t.Context(), who, "web")
	if len(rules) != 3 || incomplete || err == nil || err.Error() != `clusterrole.rbac.authorization.k8s.io "gone" not found` {
		t.Errorf("%d rules, incomplete %v, %v", len(rules), incomplete, err)
	}
	if got := len(z.namespaces.scope(&z.readers, z.index(), "web").grants); got != 1+2+2*20 {
		t.Errorf("%d grants", got)
	}
	if _, reason, _ := z.Authorize(t.Context(), ask(&user.DefaultInfo{Name: "x", Groups: []string{"devs"}}, "web")); reason != `RBAC: allowed by RoleBinding "0/web" of ClusterRole "reader" to Group "devs"` {
		t.Error(reason)
	}
}

func TestRulesAreListedWithinBounds(t *testing.T) {
	m := fixture()
	for i := range 40 {
		name := fmt.Sprint("large", i)
		m.Put(objects.Roles, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name}, Rules: []rbacv1.PolicyRule{rule("get", "", "pods", numbered("n", 10_000)...)}})
		m.Put(objects.RoleBindings, bind("web", name, "Role", name, alice))
	}
	rules, _, incomplete, err := New(m).RulesFor(t.Context(), &user.DefaultInfo{Name: "alice"}, "web")
	if len(rules) < 5 || len(rules) > 20 || !incomplete || err == nil || !strings.Contains(err.Error(), errTooManyRules.Error()) {
		t.Errorf("%d rules, incomplete %v, %v", len(rules), incomplete, err)
	}
}

// A scope is rebuilt only after changes that affect it.
func TestScopesAreCached(t *testing.T) {
	m := fixture()
	z := New(m)
	scope := func() *scope { return z.namespaces.scope(&z.readers, z.index(), "web") }
	edit := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "edit"}}
	former := scope()
	for _, change := range []struct {
		what string
		make func()
		new  bool
	}{
		{"nothing", func() {}, false},
		{"another's binding", func() { m.Put(objects.RoleBindings, bind("mine", "b", "ClusterRole", "reader", alice)) }, false},
		{"another's role", func() {
			m.Put(objects.Roles, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "mine", Name: "edit"}})
		}, false},
		{"another cluster role", func() { m.Put(objects.ClusterRoles, clusterRole("scaler")) }, false},
		{"a cluster-wide binding", func() { m.Put(objects.ClusterRoleBindings, bindCluster("b", "reader", devs)) }, false},
		{"its role", func() { m.Put(objects.Roles, edit) }, true},
		{"its role goes", func() { m.Delete(objects.Roles, "web", "edit") }, true},
		{"its role comes back", func() { m.Put(objects.Roles, edit) }, true},
		{"its cluster role", func() { m.Put(objects.ClusterRoles, clusterRole("gone")) }, true},
		{"its cluster role changes", func() { m.Put(objects.ClusterRoles, clusterRole("gone", rule("get", "", "pods"))) }, true},
		{"its binding", func() { m.Put(objects.RoleBindings, bind("web", "editors", "Role", "edit", alice)) }, true},
		{"its binding goes", func() { m.Delete(objects.RoleBindings, "web", "editors") }, true},
		{"nothing more", func() {}, false},
	} {
		change.make()
		now := scope()
		if (now != former) != change.new {
			t.Errorf("%s: built again %v, want %v", change.what, now != former, change.new)
		}
		former = now
	}
	kept := former
	for i := range 2*maxChanges + 2 {
		m.Put(objects.RoleBindings, bind("mine", "b", "ClusterRole", "reader", alice))
		authorize(t, z, ask(&user.DefaultInfo{Name: "x"}, fmt.Sprint(i)))
	}
	if scope() == kept {
		t.Error("an unused scope stays cached")
	}
}

// A large scope is dropped with its bindings and roles, without another request.
func TestLargeScopesAreDropped(t *testing.T) {
	var different []rbacv1.Subject
	for _, name := range numbered("u", largeScope) {
		different = append(different, rbacv1.Subject{Kind: "User", Name: name})
	}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "role"}}
	large := role.DeepCopy()
	large.Rules = []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}, ResourceNames: numbered("n", largeScope)}}
	unbind := func(m *objectstest.Memory) { m.Delete(objects.RoleBindings, "web", "large") }
	for name, test := range map[string]struct {
		role     *rbacv1.Role
		subjects []rbacv1.Subject
		end      func(m *objectstest.Memory)
	}{
		"subjects":            {role, different, unbind},
		"equal subjects":      {role, slices.Repeat([]rbacv1.Subject{alice}, largeScope), unbind},
		"names of a role":     {large, []rbacv1.Subject{alice}, unbind},
		"the role is deleted": {large, []rbacv1.Subject{alice}, func(m *objectstest.Memory) { m.Delete(objects.Roles, "web", "role") }},
		"the role changes":    {large, []rbacv1.Subject{alice}, func(m *objectstest.Memory) { m.Put(objects.Roles, role) }},
	} {
		t.Run(name, func(t *testing.T) {
			m := fixture()
			m.Put(objects.Roles, test.role)
			m.Put(objects.RoleBindings, bind("web", "large", "Role", "role", test.subjects...))
			z := New(m)
			kept := func() bool {
				authorize(t, z, ask(&user.DefaultInfo{Name: "x"}, ""))
				return z.namespaces.young["web"].current.Load() != nil
			}
			authorize(t, z, ask(&user.DefaultInfo{Name: "x"}, "web"))
			m.Put(objects.RoleBindings, bind("mine", "b", "ClusterRole", "reader", alice))
			if !kept() {
				t.Error("the scope was dropped by another change")
			}
			test.end(m)
			if kept() {
				t.Error("the scope is still cached")
			}
		})
	}
}

// The cache of namespaces is bounded, however many namespaces requests name.
func TestNamespaceCacheIsBounded(t *testing.T) {
	z := New(fixture())
	for i := range 3 * maxNamespaces {
		authorize(t, z, ask(&user.DefaultInfo{Name: "x"}, fmt.Sprint(i)))
	}
	authorize(t, z, ask(&user.DefaultInfo{Name: "x"}, strings.Repeat("x", 1<<20)))
	if kept := len(z.namespaces.young) + len(z.namespaces.aged); kept > 2*maxNamespaces {
		t.Errorf("%d are kept", kept)
	}
	for name := range z.namespaces.young {
		if len(name) > maxNamespaceName {
			t.Errorf("a name of %d bytes is kept", len(name))
		}
	}
}

// blockingSource is a Source in which reads of the bindings of one namespace
// block until it is released.
type blockingSource struct {
	*objectstest.Memory
	namespace      string
	began, release chan struct{}
}

type stuckKind struct {
	objects.Kind
	*blockingSource
}

func (s *blockingSource) Kind(path string) objects.Kind {
	if path == objects.RoleBindings {
		return stuckKind{s.Memory.Kind(path), s}
	}
	return s.Memory.Kind(path)
}

func (k stuckKind) All(namespace string) iter.Seq[resource.Object] {
	if namespace == k.namespace {
		k.began <- struct{}{}
		<-k.release
	}
	return k.Kind.All(namespace)
}

// Requests for one namespace do not wait while the scope of another is built.
func TestScopesAreBuiltIndependently(t *testing.T) {
	s := &blockingSource{fixture(), "slow", make(chan struct{}), make(chan struct{})}
	z := New(s)
	who := &user.DefaultInfo{Name: "system:serviceaccount:web:builder"}
	over := make(chan struct{})
	go func() {
		defer close(over)
		authorize(t, z, ask(who, "slow"))
	}()
	<-s.began
	for range 3 {
		if d, _, _ := z.Authorize(t.Context(), ask(who, "web")); d != authorizer.DecisionAllow {
			t.Error(d)
		}
		s.Put(objects.RoleBindings, bind("web", "more", "Role", "edit", alice))
	}
	close(s.release)
	<-over
}

// BenchmarkScope builds the scope of a namespace with 360,000 subjects.
func BenchmarkScope(b *testing.B) {
	var all []*binding
	for i := range 24 {
		one := &binding{namespace: "web"}
		for j := range 15_000 {
			one.subjects = append(one.subjects, rbacv1.Subject{Kind: "User", Name: fmt.Sprintf("u%d-%d", i, j)})
		}
		all = append(all, one)
	}
	for b.Loop() {
		newScope(all)
	}
}

// authorize makes a request and ignores the decision.
func authorize(t *testing.T, z *Authorizer, a authorizer.Attributes) {
	t.Helper()
	if _, _, err := z.Authorize(t.Context(), a); err != nil {
		t.Error(err)
	}
}
