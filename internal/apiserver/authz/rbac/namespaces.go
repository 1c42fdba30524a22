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
	// how many other namespaces, a scope survives that nobody asks for.
	maxChanges    = 64
	maxNamespaces = 16 << 10
	// maxNamespaceName is the longest name of a namespace. Requests may name
	// some that do not exist.
	maxNamespaceName = 63
	// large is how many subjects a scope has that does not outlive its
	// bindings, whether somebody asks for it or not.
	large = 1000
)

// namespaces keeps the scopes of the namespaces that were asked for lately, in
// two generations.
type namespaces struct {
	mu          sync.RWMutex // guards what follows
	young, aged map[string]*namespace
	large       map[string]*namespace // of both generations
	changes     int                   // since the young generation began
}

// namespace is one whose scope may be asked for by many at a time: the first
// makes it, while nobody waits who asks for another namespace's.
type namespace struct {
	building sync.Mutex // held while a scope is made or compared
	current  atomic.Pointer[dated]
}

// dated is a scope as of an index.
type dated struct {
	*scope
	number int64 // the index's
}

// scope returns the scope of a namespace as of an index or later.
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
	made := &dated{scope: scopeOf(r, x, name, former), number: x.number}
	in.current.Store(made)
	if len(made.grants) > large {
		n.keepLarge(name, in)
	}
	return made.scope
}

// scopeOf makes the scope of a namespace, unless the former one still holds.
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
		made := &binding{object: b, kind: "RoleBinding", namespace: namespace, name: b.Name, ref: b.RoleRef, subjects: b.Subjects}
		made.role, made.err = x.role(r, b.RoleRef, namespace, known)
		all = append(all, made)
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

func (n *namespaces) keepLarge(name string, in *namespace) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.young[name] != in && n.aged[name] != in {
		return // nobody finds it any more
	}
	if n.large == nil {
		n.large = map[string]*namespace{}
	}
	n.large[name] = in
}

// changed says that some role or binding is another one now.
func (n *namespaces) changed(r *readers) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for name, in := range n.large {
		if d := in.current.Load(); d == nil || !d.isOf(r.bindings.All(name)) {
			in.current.CompareAndSwap(d, nil)
			delete(n.large, name)
		}
	}
	if n.changes++; n.changes >= maxChanges {
		n.rotate()
	}
}

// isOf says whether a scope is of these bindings.
func (s *scope) isOf(bindings iter.Seq[*rbacv1.RoleBinding]) bool {
	i := 0
	for b := range bindings {
		if i >= len(s.bindings) || s.bindings[i].object != b {
			return false
		}
		i++
	}
	return i == len(s.bindings)
}

// rotate forgets the namespaces that nobody has asked for since the last time.
// Callers hold mu.
func (n *namespaces) rotate() {
	for name, in := range n.aged {
		if n.young[name] == nil && n.large[name] == in {
			delete(n.large, name)
		}
	}
	n.young, n.aged, n.changes = map[string]*namespace{}, n.young, 0
}
