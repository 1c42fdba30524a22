// Package crowd bounds what many share: it remembers who came when in which
// group, so that whoever runs out of room can send away the oldest member of
// the largest group, and small groups keep theirs.
package crowd

import "container/list"

// Crowd is members by group. The zero value is empty. It is not safe for
// concurrent use.
type Crowd[G comparable, M any] struct {
	groups map[G]*list.List // of *Place, as they came
	size   int
}

// Place is where a member is in a crowd.
type Place[G comparable, M any] struct {
	Member M

	crowd   *Crowd[G, M] // nil once the member has left
	group   G
	element *list.Element
}

// Add takes a member into a group.
func (c *Crowd[G, M]) Add(group G, member M) *Place[G, M] {
	if c.groups == nil {
		c.groups = map[G]*list.List{}
	}
	members := c.groups[group]
	if members == nil {
		members = list.New()
		c.groups[group] = members
	}
	p := &Place[G, M]{Member: member, crowd: c, group: group}
	p.element = members.PushBack(p)
	c.size++
	return p
}

// Len is how many members the crowd has.
func (c *Crowd[G, M]) Len() int { return c.size }

// LenOf is how many members a group has.
func (c *Crowd[G, M]) LenOf(group G) int {
	if members := c.groups[group]; members != nil {
		return members.Len()
	}
	return 0
}

// Oldest is the oldest member of the largest group; nil if nobody is there.
func (c *Crowd[G, M]) Oldest() *Place[G, M] {
	var largest *list.List
	for _, members := range c.groups {
		if largest == nil || members.Len() > largest.Len() {
			largest = members
		}
	}
	if largest == nil {
		return nil
	}
	return largest.Front().Value.(*Place[G, M])
}

// Leave takes the member out of its crowd, unless it has left already. A nil
// place is outside.
func (p *Place[G, M]) Leave() {
	if p == nil || p.crowd == nil {
		return
	}
	members := p.crowd.groups[p.group]
	if members.Remove(p.element); members.Len() == 0 {
		delete(p.crowd.groups, p.group)
	}
	p.crowd.size--
	p.crowd = nil
}
