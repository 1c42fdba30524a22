// Package fairevict keeps the holders of a shared, bounded resource by group,
// in the order of their arrival. When the resource is full, its owner evicts
// the oldest member of the largest group, so that small groups keep theirs.
package fairevict

import "container/list"

// Set holds members by group. The zero value is empty. It is not safe for
// concurrent use.
type Set[G comparable, M any] struct {
	groups map[G]*list.List // of *Entry, oldest first
	size   int
}

// Entry is a member's place in a Set.
type Entry[G comparable, M any] struct {
	Member M

	set     *Set[G, M] // nil once removed
	group   G
	element *list.Element
}

// Add adds a member to a group, as its youngest.
func (s *Set[G, M]) Add(group G, member M) *Entry[G, M] {
	if s.groups == nil {
		s.groups = map[G]*list.List{}
	}
	members := s.groups[group]
	if members == nil {
		members = list.New()
		s.groups[group] = members
	}
	e := &Entry[G, M]{Member: member, set: s, group: group}
	e.element = members.PushBack(e)
	s.size++
	return e
}

// Len returns the number of members in all groups.
func (s *Set[G, M]) Len() int { return s.size }

// GroupLen returns the number of members in a group.
func (s *Set[G, M]) GroupLen(group G) int {
	if members := s.groups[group]; members != nil {
		return members.Len()
	}
	return 0
}

// Victim returns the oldest member of the largest group, or nil if the set is
// empty. It does not remove it.
func (s *Set[G, M]) Victim() *Entry[G, M] {
	var largest *list.List
	for _, members := range s.groups {
		if largest == nil || members.Len() > largest.Len() {
			largest = members
		}
	}
	if largest == nil {
		return nil
	}
	return largest.Front().Value.(*Entry[G, M])
}

// Remove removes the entry from its set. On a nil entry, and on one that has
// been removed already, it does nothing.
func (e *Entry[G, M]) Remove() {
	if e == nil || e.set == nil {
		return
	}
	members := e.set.groups[e.group]
	if members.Remove(e.element); members.Len() == 0 {
		delete(e.set.groups, e.group)
	}
	e.set.size--
	e.set = nil
}
