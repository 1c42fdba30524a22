package rbac

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
)

type readers struct {
	roles           objects.Reader[*rbacv1.Role]
	clusterRoles    objects.Reader[*rbacv1.ClusterRole]
	bindings        objects.Reader[*rbacv1.RoleBinding]
	clusterBindings objects.Reader[*rbacv1.ClusterRoleBinding]
}

// revisions are the revisions of the four kinds.
type revisions struct {
	cluster    [2]int64 // cluster roles and their bindings
	namespaced [2]int64 // roles and role bindings
}

func (r *readers) revisions() revisions {
	return revisions{
		cluster:    [2]int64{r.clusterRoles.Revision(), r.clusterBindings.Revision()},
		namespaced: [2]int64{r.roles.Revision(), r.bindings.Revision()},
	}
}

// resolve returns the role that a binding of a namespace ("" is cluster-wide)
// refers to.
func (r *readers) resolve(ref rbacv1.RoleRef, namespace string) (role any, rules []rbacv1.PolicyRule, err error) {
	switch ref.Kind {
	case "Role":
		if o, ok := r.roles.Get(namespace, ref.Name); ok {
			return o, o.Rules, nil
		}
		return nil, nil, apierrors.NewNotFound(rbacv1.Resource("role"), ref.Name)
	case "ClusterRole":
		if o, ok := r.clusterRoles.Get("", ref.Name); ok {
			return o, o.Rules, nil
		}
		return nil, nil, apierrors.NewNotFound(rbacv1.Resource("clusterrole"), ref.Name)
	}
	return nil, nil, fmt.Errorf("unsupported role reference kind: %q", ref.Kind)
}

// subject is a group or a user. A service account is a user.
type subject struct {
	group bool
	name  string
}

// binding is a role binding with the role that it refers to.
type binding struct {
	object    any // the RoleBinding or ClusterRoleBinding
	kind      string
	namespace string // "" is cluster-wide
	name      string
	ref       rbacv1.RoleRef
	subjects  []rbacv1.Subject
	role      *ruleSet
	err       error // set if the role does not exist
}

// grant is a binding and one of its subjects. The grants of a subject form a
// linked list.
type grant struct {
	*binding
	subject int32 // index of the subject in the binding
	next    int32 // the subject's next grant; 0 is none
}

// appendTo appends the name of the grant in upstream's format. It is the reason
// of every allowed request, so it must be fast.
func (g *grant) appendTo(out []byte) []byte {
	out = appendNamed(out, g.kind, g.name, g.namespace)
	out = appendNamed(append(out, " of "...), g.ref.Kind, g.ref.Name, "")
	s := &g.subjects[g.subject]
	namespace := ""
	if s.Kind == rbacv1.ServiceAccountKind {
		namespace = cmp.Or(s.Namespace, g.namespace)
	}
	return appendNamed(append(out, " to "...), s.Kind, s.Name, namespace)
}

// appendNamed appends a kind and a quoted name, with the namespace if there is one.
func appendNamed(out []byte, kind, name, namespace string) []byte {
	out = append(append(out, kind...), ' ')
	if namespace != "" {
		name += "/" + namespace
	}
	return strconv.AppendQuote(out, name)
}

// scope is an index of some bindings by subject. It is immutable.
type scope struct {
	bindings []*binding
	first    map[subject]int32
	grants   []grant // the first is unused
}

func newScope(bindings []*binding) *scope {
	subjects := 0
	for _, b := range bindings {
		subjects += len(b.subjects)
	}
	s := &scope{bindings: bindings, first: make(map[subject]int32, subjects), grants: make([]grant, 1, subjects+1)}
	for _, b := range slices.Backward(bindings) {
		for i := range slices.Backward(b.subjects) {
			s.add(b, i)
		}
	}
	return s
}

// add inserts a grant before the others of the subject. If a binding lists a
// subject several times, the last one added counts.
func (s *scope) add(b *binding, i int) {
	key, ok := subjectOf(&b.subjects[i], b.namespace)
	if !ok {
		return
	}
	first := s.first[key]
	if s.grants[first].binding == b {
		s.grants[first].subject = int32(i)
		return
	}
	s.first[key] = int32(len(s.grants))
	s.grants = append(s.grants, grant{binding: b, subject: int32(i), next: first})
}

func subjectOf(s *rbacv1.Subject, namespace string) (subject, bool) {
	switch s.Kind {
	case rbacv1.UserKind:
		return subject{name: s.Name}, true
	case rbacv1.GroupKind:
		return subject{group: true, name: s.Name}, true
	case rbacv1.ServiceAccountKind:
		if s.Namespace != "" {
			namespace = s.Namespace
		}
		return subject{name: serviceaccount.MakeUsername(namespace, s.Name)}, namespace != ""
	}
	return subject{}, false
}

// visit calls f with every grant of the user until it returns false.
func (s *scope) visit(u user.Info, f func(*grant) bool) bool {
	if len(s.grants) == 1 {
		return true
	}
	if !s.visitSubject(subject{name: u.GetName()}, f) {
		return false
	}
	groups := u.GetGroups()
	const few = 32
	if len(groups) > few { // a review may repeat groups
		groups = distinct(groups)
	}
	for _, group := range groups {
		if !s.visitSubject(subject{group: true, name: group}, f) {
			return false
		}
	}
	return true
}

func (s *scope) visitSubject(who subject, f func(*grant) bool) bool {
	for i := s.first[who]; i != 0; i = s.grants[i].next {
		if !f(&s.grants[i]) {
			return false
		}
	}
	return true
}

// index is the cluster-wide scope and the cluster roles as of some revisions.
// It is immutable.
type index struct {
	revisions revisions
	number    int64 // increases with each index
	scope     *scope
	roles     map[string]*ruleSet // the cluster roles by name
}

// newIndex indexes the cluster-wide bindings. It reuses the compiled rules of
// unchanged roles from the former index, and all of that index if no cluster
// role and no cluster role binding has changed.
func newIndex(r *readers, now revisions, former *index) *index {
	x := &index{revisions: now, roles: map[string]*ruleSet{}}
	if former != nil {
		x.number = former.number + 1
		if former.revisions.cluster == now.cluster {
			x.scope, x.roles = former.scope, former.roles
			return x
		}
	}
	for role := range r.clusterRoles.All("") {
		if former != nil {
			if set := former.roles[role.Name]; set != nil && set.role == role {
				x.roles[role.Name] = set
				continue
			}
		}
		x.roles[role.Name] = &ruleSet{role: role, rules: role.Rules}
	}
	var all []*binding
	for b := range r.clusterBindings.All("") {
		built := &binding{object: b, kind: "ClusterRoleBinding", name: b.Name, ref: b.RoleRef, subjects: b.Subjects}
		built.role, built.err = x.role(r, b.RoleRef, "", map[any]*ruleSet{})
		all = append(all, built)
	}
	x.scope = newScope(all)
	return x
}

// role returns the role that a binding refers to. known maps objects to rule
// sets of the namespace.
func (x *index) role(r *readers, ref rbacv1.RoleRef, namespace string, known map[any]*ruleSet) (*ruleSet, error) {
	if ref.Kind == "ClusterRole" {
		if set := x.roles[ref.Name]; set != nil {
			return set, nil
		}
	}
	role, rules, err := r.resolve(ref, namespace)
	if err != nil {
		return nil, err
	}
	set := known[role]
	if set == nil {
		set = &ruleSet{role: role, rules: rules}
		known[role] = set
	}
	return set, nil
}
