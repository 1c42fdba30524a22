// Package persistent has a map of which each version stays as it is. Versions share what
// they have in common, so that a change costs the same in a map of any size, and what
// differs between two versions is found without a look at the rest.
//
//	version 1 ──► branch ─► leaf a, leaf b, ...
//	version 2 ──► branch ─► leaf a (the same), leaf b with the change
package persistent

import (
	"hash/maphash"
	"iter"
	"slices"
)

// Map is a version of a map, as a trie of the keys' hashes (Bagwell, Ideal Hash Trees,
// 2001). The zero value is empty. Any number of goroutines may use it.
type Map[K, V comparable] struct {
	root    *node[K, V]
	visited *int // see Counted
}

// entry is a key with its value.
type entry[K, V comparable] struct {
	hash  uint64
	key   K
	value V
}

// node is a leaf or a branch, and never changes. It is a leaf as long as it has at most
// mostOfLeaf entries, so that versions with the same entries have the same shape. An
// empty one is nil.
type node[K, V comparable] struct {
	size     int                  // entries in it and below it
	entries  []entry[K, V]        // of a leaf
	children *[fanout]*node[K, V] // of a branch; nil in a leaf
}

const (
	bits       = 4 // of the hash, for each level of branches
	fanout     = 1 << bits
	mostOfLeaf = 8
	// deepest is the level at which the hash is used up. Leaves have any size there.
	deepest = 64 / bits
)

// seed is that of all hashes of this process, so that all maps have the same shape.
var seed = maphash.MakeSeed()

// Of returns a map with the entries of another one.
func Of[K, V comparable](m map[K]V) Map[K, V] {
	var entries []entry[K, V]
	for key, value := range m {
		entries = append(entries, entryOf(key, value))
	}
	return Map[K, V]{root: nodeOf(entries, 0)}
}

// Counted returns the same version. Each entry that is visited in it and in those that
// are made from it, by All or as the later one of Diff, adds 1 to visited. It is for
// tests of what a change costs, in one goroutine.
func (m Map[K, V]) Counted(visited *int) Map[K, V] {
	m.visited = visited
	return m
}

// Len returns the number of entries.
func (m Map[K, V]) Len() int { return m.root.count() }

// Get returns the value of a key, or the zero value.
func (m Map[K, V]) Get(key K) V {
	value, _ := m.root.find(entryOf(key, *new(V)), 0)
	return value
}

// Has reports whether a key is there.
func (m Map[K, V]) Has(key K) bool {
	_, found := m.root.find(entryOf(key, *new(V)), 0)
	return found
}

// With returns a version in which a key has a value. If it has it already, that is the
// same version.
func (m Map[K, V]) With(key K, value V) Map[K, V] {
	m.root = m.root.with(entryOf(key, value), 0)
	return m
}

// Without returns a version without a key. If it is not there, that is the same version.
func (m Map[K, V]) Without(key K) Map[K, V] {
	m.root = m.root.without(entryOf(key, *new(V)), 0)
	return m
}

// All iterates over the entries, in any order.
func (m Map[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		m.root.each(func(e *entry[K, V]) bool {
			m.visit()
			return yield(e.key, e.value)
		})
	}
}

func (m Map[K, V]) visit() {
	if m.visited != nil {
		*m.visited++
	}
}

// Diff calls visit for each key that only one of two versions has, or that has another
// value in the second. If one was made from the other, that takes as long as the changes
// between them were many.
func Diff[K, V comparable](before, next Map[K, V], visit func(K)) {
	diff(before.root, next.root, 0, func(key K, differs bool) {
		next.visit()
		if differs {
			visit(key)
		}
	})
}

func diff[K, V comparable](a, b *node[K, V], level int, visit func(key K, differs bool)) {
	if a == b {
		return
	}
	if a != nil && b != nil && a.children != nil && b.children != nil {
		for i := range fanout {
			diff(a.children[i], b.children[i], level+1, visit)
		}
		return
	}
	a.each(func(e *entry[K, V]) bool {
		value, found := b.find(*e, level)
		visit(e.key, !found || value != e.value)
		return true
	})
	b.each(func(e *entry[K, V]) bool {
		if _, found := a.find(*e, level); !found {
			visit(e.key, true)
		}
		return true
	})
}

func entryOf[K, V comparable](key K, value V) entry[K, V] {
	return entry[K, V]{maphash.Comparable(seed, key), key, value}
}

// child returns the index of the child of a branch that has the entry.
func (e entry[K, V]) child(level int) int { return int(e.hash>>(bits*level)) & (fanout - 1) }

// nodeOf returns a node of some entries at a level.
func nodeOf[K, V comparable](entries []entry[K, V], level int) *node[K, V] {
	if len(entries) == 0 {
		return nil
	}
	n := &node[K, V]{size: len(entries)}
	if len(entries) <= mostOfLeaf || level == deepest {
		n.entries = entries
		return n
	}
	var parts [fanout][]entry[K, V]
	for _, e := range entries {
		at := e.child(level)
		parts[at] = append(parts[at], e)
	}
	n.children = &[fanout]*node[K, V]{}
	for i, part := range parts {
		n.children[i] = nodeOf(part, level+1)
	}
	return n
}

func (n *node[K, V]) count() int {
	if n == nil {
		return 0
	}
	return n.size
}

// find returns the value of the key of an entry in a node at a level.
func (n *node[K, V]) find(of entry[K, V], level int) (value V, found bool) {
	for ; n != nil && n.children != nil; level++ {
		n = n.children[of.child(level)]
	}
	if n == nil {
		return value, false
	}
	if at := n.position(of); at >= 0 {
		return n.entries[at].value, true
	}
	return value, false
}

// position returns where a leaf has the key of an entry, -1 if it does not.
func (n *node[K, V]) position(of entry[K, V]) int {
	return slices.IndexFunc(n.entries, func(e entry[K, V]) bool { return e.hash == of.hash && e.key == of.key })
}

// with returns the node with an entry, itself if it has it.
func (n *node[K, V]) with(e entry[K, V], level int) *node[K, V] {
	if n == nil {
		return &node[K, V]{size: 1, entries: []entry[K, V]{e}}
	}
	if n.children != nil {
		at := e.child(level)
		return n.replace(at, n.children[at].with(e, level+1))
	}
	at := n.position(e)
	if at < 0 {
		return nodeOf(append(slices.Clip(n.entries), e), level) // the former array stays
	}
	if n.entries[at].value == e.value {
		return n
	}
	entries := slices.Clone(n.entries)
	entries[at] = e
	return &node[K, V]{size: n.size, entries: entries}
}

// without returns the node without the key of an entry, itself if it does not have it.
func (n *node[K, V]) without(of entry[K, V], level int) *node[K, V] {
	if n == nil {
		return nil
	}
	if n.children == nil {
		at := n.position(of)
		if at < 0 {
			return n
		}
		return nodeOf(slices.Delete(slices.Clone(n.entries), at, at+1), level)
	}
	at := of.child(level)
	next := n.replace(at, n.children[at].without(of, level+1))
	if next.size > mostOfLeaf {
		return next
	}
	var entries []entry[K, V]
	next.each(func(e *entry[K, V]) bool {
		entries = append(entries, *e)
		return true
	})
	return nodeOf(entries, level)
}

// replace returns a branch with another child, itself if it is the same one.
func (n *node[K, V]) replace(at int, child *node[K, V]) *node[K, V] {
	before := n.children[at]
	if child == before {
		return n
	}
	children := *n.children
	children[at] = child
	return &node[K, V]{size: n.size - before.count() + child.count(), children: &children}
}

// each visits the entries in a node and below it, until visit returns false.
func (n *node[K, V]) each(visit func(*entry[K, V]) bool) bool {
	if n == nil {
		return true
	}
	if n.children != nil {
		for _, child := range n.children {
			if !child.each(visit) {
				return false
			}
		}
		return true
	}
	for i := range n.entries {
		if !visit(&n.entries[i]) {
			return false
		}
	}
	return true
}
