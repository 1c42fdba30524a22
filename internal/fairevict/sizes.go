package fairevict

import (
	"container/list"
	"math/bits"
)

// Sizes counts what members hold of a shared, bounded resource, so that its owner can
// evict who holds most. The zero value is empty. It is not safe for concurrent use.
type Sizes[M any] struct {
	classes [bits.UintSize]list.List // of *Size, by the number of bits of what they hold
	total   int
}

// Size is what a member holds. The zero value holds nothing.
type Size[M any] struct {
	Member M

	held    int
	element *list.Element // nil while it holds nothing
}

// Set records that a member holds so much now. 0 removes it.
func (s *Sizes[M]) Set(of *Size[M], held int) {
	s.total += held - of.held
	from, to := bits.Len(uint(of.held)), bits.Len(uint(held))
	of.held = held
	if from == to {
		return
	}
	if of.element != nil {
		s.classes[from].Remove(of.element)
		of.element = nil
	}
	if to > 0 {
		of.element = s.classes[to].PushBack(of)
	}
}

// Add records that a member holds so much more.
func (s *Sizes[M]) Add(to *Size[M], more int) { s.Set(to, to.held+more) }

// Total returns what all members hold together.
func (s *Sizes[M]) Total() int { return s.total }

// Largest returns a member that holds more than half of what any other one does, or nil
// if none holds anything.
func (s *Sizes[M]) Largest() *Size[M] {
	for i := len(s.classes) - 1; i > 0; i-- {
		if first := s.classes[i].Front(); first != nil {
			return first.Value.(*Size[M])
		}
	}
	return nil
}
