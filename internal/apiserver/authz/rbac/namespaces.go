package rbac

import (
	"iter"
	"slices"
	"sync"
	"sync/atomic"

	rbacv1 "k8s.io/api/rbac/v1"
)

const (
	// maxChanges is how many changes of roles and bindings, and maxNamespaces
	// how many other namespaces, an unused scope stays cached for.
	maxChanges    = 64
	maxNamespaces = 16 << 10
	// maxNamespaceName is the longest valid name of a namespace. Requests may
	// name namespaces that do not exist.
	maxNamespaceName = 63
	// largeScope is the weight from which a scope is dropped as soon as its
	// bindings or roles change, even if it is not requested again.
	largeScope = 1000
)

// namespaces caches the scopes of recently requested namespaces, in two
// generations.
type namespaces struct {
	mu          sync.RWMutex // guards the following
	young, aged map[string]*namespace
	large       map[string]*namespace // of both generations
	changes     int                   // since the young generation began
}

// namespace is the scope of one namespace, which many requests may need at the
// same time. The first builds it, and requests for other namespaces do not
// wait.
type namespace struct {
	building sync.Mutex // held while a scope is built or compared
	current  atomic.Pointer[versionedScope]
}

// versionedScope is a scope with the version of its index.
type versionedScope struct {
	*scope
	number int64 // the index's
}

// scope returns the scope of a namespace for an index or a later one.
func (n *namespaces) scope(r *readers, x *index, name string) *scope {
	in := n.get(name)
	if d := in.current.Load(); d != nil && d.number >= x.number {
		return d.scope
	}
	in.building.Lock()
	defer in.building.Unlock()
	var former *scope
	if d := in.current.Load(); d != nil {
		if d.number >= x.number {
			return d.scope
		}
		former = d.scope
	}
	built := &versionedScope{scope: scopeOf(r, x, name, former), number: x.number}
	in.current.Store(built)
	if built.weight() > largeScope {
		n.addLarge(name, in)
	}
	return built.scope
}

// scopeOf builds the scope of a namespace. It returns the former one if that is
// still valid.
func scopeOf(r *readers, x *index, namespace string, former *scope) *scope {
	known := map[any]*ruleSet{}
	if former != nil {
		for _, b := range former.bindings {
			if b.role != nil {
				known[b.role.role] = b.role
			}
		}
	}
	var all []*binding
	for b := range r.bindings.All(namespace) {
		built := &binding{object: b, kind: "RoleBinding", namespace: namespace, name: b.Name, ref: b.RoleRef, subjects: b.Subjects}
		built.role, built.err = x.role(r, b.RoleRef, namespace, known)
		all = append(all, built)
	}
	if former != nil && slices.EqualFunc(former.bindings, all, func(a, b *binding) bool { return a.object == b.object && a.role == b.role }) {
		return former
	}
	return newScope(all)
}

func (n *namespaces) get(name string) *namespace {
	n.mu.RLock()
	found := n.young[name]
	n.mu.RUnlock()
	if found != nil {
		return found
	}
	if len(name) > maxNamespaceName {
		return &namespace{}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if found := n.young[name]; found != nil {
		return found
	}
	if n.young == nil || len(n.young) >= maxNamespaces {
		n.rotate()
	}
	kept := n.aged[name]
	if kept == nil {
		kept = &namespace{}
	}
	n.young[name] = kept
	return kept
}

func (n *namespaces) addLarge(name string, in *namespace) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.young[name] != in && n.aged[name] != in {
		return // evicted from the cache
	}
	if n.large == nil {
		n.large = map[string]*namespace{}
	}
	n.large[name] = in
}

// changed drops large scopes whose bindings or roles have changed. It is called
// when any role or binding has.
func (n *namespaces) changed(r *readers) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for name, in := range n.large {
		if d := in.current.Load(); d == nil || !d.isOf(r, r.bindings.All(name)) {
			in.current.CompareAndSwap(d, nil)
			delete(n.large, name)
		}
	}
	if n.changes++; n.changes >= maxChanges {
		n.rotate()
	}
}

// isOf reports whether a scope is built of these bindings and the current roles.
func (s *scope) isOf(r *readers, bindings iter.Seq[*rbacv1.RoleBinding]) bool {
	i := 0
	for b := range bindings {
		if i >= len(s.bindings) || s.bindings[i].object != b {
			return false
		}
		if set := s.bindings[i].role; set != nil {
			if role, _, err := r.resolve(b.RoleRef, b.Namespace); err != nil || role != set.role {
				return false
			}
		}
		i++
	}
	return i == len(s.bindings)
}

// weight counts the subjects of the bindings and the entries of the namespace's
// roles, all of which a scope keeps in memory.
func (s *scope) weight() int {
	n := 0
	counted := map[*ruleSet]bool{nil: true}
	for _, b := range s.bindings {
		n += len(b.subjects)
		if b.ref.Kind == "ClusterRole" || counted[b.role] {
			continue
		}
		counted[b.role] = true
		for i := range b.role.rules {
			rule := &b.role.rules[i]
			n += len(rule.Verbs) + len(rule.APIGroups) + len(rule.Resources) + len(rule.ResourceNames) + len(rule.NonResourceURLs)
		}
	}
	return n
}

// rotate drops the namespaces that were not requested since the last call.
// Callers hold mu.
func (n *namespaces) rotate() {
	for name, in := range n.aged {
		if n.young[name] == nil && n.large[name] == in {
			delete(n.large, name)
		}
	}
	n.young, n.aged, n.changes = map[string]*namespace{}, n.young, 0
}
