package httpserver

import "container/list"

// crowd is visitors by what they have in common.
type crowd struct {
	groups map[string]*list.List // of *visitor, as they came
	size   int
}

func newCrowd() *crowd { return &crowd{groups: map[string]*list.List{}} }

// add takes in a visitor of a group, and returns its place.
func (c *crowd) add(group string, v *visitor) place {
	members := c.groups[group]
	if members == nil {
		members = list.New()
		c.groups[group] = members
	}
	c.size++
	return place{crowd: c, group: group, element: members.PushBack(v)}
}

// displaceable is the first visitor of the largest group; nil if nobody is there.
func (c *crowd) displaceable() *visitor {
	var largest *list.List
	for _, members := range c.groups {
		if largest == nil || members.Len() > largest.Len() {
			largest = members
		}
	}
	if largest == nil {
		return nil
	}
	return largest.Front().Value.(*visitor)
}

// place is where a visitor is. The zero place is outside.
type place struct {
	crowd   *crowd
	group   string
	element *list.Element
}

func (p place) leave() {
	if p.crowd == nil {
		return
	}
	members := p.crowd.groups[p.group]
	members.Remove(p.element)
	if members.Len() == 0 {
		delete(p.crowd.groups, p.group)
	}
	p.crowd.size--
}
