package rbac

import (
	"fmt"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
)

// subject is a user (a service account is one by its user name) or a group.
type subject struct {
	group bool
	name  string
}

// grant is what one binding gives to one subject.
type grant struct {
	binding string // as reasons name it
	role    *ruleSet
	err     error // instead of role: it does not exist
}

type scope map[subject][]grant

// index is who may do what, as of some revisions of the four kinds. The
// bindings of a namespace are looked at when somebody asks for something in
// that namespace.
type index struct {
	revisions [4]int64
	cluster   scope

	mu         sync.Mutex // guards what follows
	namespaces map[string]scope
	compiled   map[any]*ruleSet // by role object
}

type readers struct {
	roles           objects.Reader[*rbacv1.Role]
	clusterRoles    objects.Reader[*rbacv1.ClusterRole]
	bindings        objects.Reader[*rbacv1.RoleBinding]
	clusterBindings objects.Reader[*rbacv1.ClusterRoleBinding]
}

func (r *readers) revisions() [4]int64 {
	return [4]int64{r.roles.Revision(), r.clusterRoles.Revision(), r.bindings.Revision(), r.clusterBindings.Revision()}
}

// newIndex indexes the cluster-wide bindings. Roles that did not change keep
// what former compiled of them.
func newIndex(r *readers, revisions [4]int64, former *index) *index {
	x := &index{revisions: revisions, cluster: scope{}, namespaces: map[string]scope{}, compiled: map[any]*ruleSet{}}
	if former != nil {
		former.mu.Lock()
		for role, compiled := range former.compiled {
			if r.current(role) {
				x.compiled[role] = compiled
			}
		}
		former.mu.Unlock()
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for b := range r.clusterBindings.All("") {
		role, err := x.role(r, b.RoleRef, "")
		for _, s := range b.Subjects {
			name := fmt.Sprintf("ClusterRoleBinding %q of %s %q to %s", b.Name, b.RoleRef.Kind, b.RoleRef.Name, describe(s, ""))
			x.cluster.add(s, "", grant{binding: name, role: role, err: err})
		}
	}
	return x
}

func (r *readers) current(role any) bool {
	switch o := role.(type) {
	case *rbacv1.ClusterRole:
		now, ok := r.clusterRoles.Get("", o.Name)
		return ok && now == o
	case *rbacv1.Role:
		now, ok := r.roles.Get(o.Namespace, o.Name)
		return ok && now == o
	}
	return false
}

func (x *index) namespace(r *readers, namespace string) scope {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s, ok := x.namespaces[namespace]; ok {
		return s
	}
	out := scope{}
	for b := range r.bindings.All(namespace) {
		role, err := x.role(r, b.RoleRef, namespace)
		for _, s := range b.Subjects {
			name := fmt.Sprintf("RoleBinding %q of %s %q to %s", b.Name+"/"+b.Namespace, b.RoleRef.Kind, b.RoleRef.Name, describe(s, namespace))
			out.add(s, namespace, grant{binding: name, role: role, err: err})
		}
	}
	x.namespaces[namespace] = out
	return out
}

// role needs x.mu held.
func (x *index) role(r *readers, ref rbacv1.RoleRef, namespace string) (*ruleSet, error) {
	role, rules, err := r.resolve(ref, namespace)
	if err != nil {
		return nil, err
	}
	set := x.compiled[role]
	if set == nil {
		set = &ruleSet{rules: rules}
		x.compiled[role] = set
	}
	return set, nil
}

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

func (s scope) add(to rbacv1.Subject, namespace string, g grant) {
	var key subject
	switch to.Kind {
	case rbacv1.UserKind:
		key = subject{name: to.Name}
	case rbacv1.GroupKind:
		key = subject{group: true, name: to.Name}
	case rbacv1.ServiceAccountKind:
		if to.Namespace != "" {
			namespace = to.Namespace
		}
		if namespace == "" {
			return
		}
		key = subject{name: serviceaccount.MakeUsername(namespace, to.Name)}
	default:
		return
	}
	s[key] = append(s[key], g)
}

// visit calls f with every grant of the user until it returns false.
func (s scope) visit(u user.Info, f func(grant) bool) bool {
	for _, g := range s[subject{name: u.GetName()}] {
		if !f(g) {
			return false
		}
	}
	for _, group := range u.GetGroups() {
		for _, g := range s[subject{group: true, name: group}] {
			if !f(g) {
				return false
			}
		}
	}
	return true
}

func describe(s rbacv1.Subject, bindingNamespace string) string {
	if s.Kind != rbacv1.ServiceAccountKind {
		return fmt.Sprintf("%s %q", s.Kind, s.Name)
	}
	if s.Namespace != "" {
		bindingNamespace = s.Namespace
	}
	return fmt.Sprintf("%s %q", s.Kind, s.Name+"/"+bindingNamespace)
}
