package watchcache

import (
	"strings"

	"github.com/tidwall/btree"
)

// Position is a position in key order.
type Position struct{ Namespace, Name string }

// Compare compares positions in the order of their keys in the store, where '/'
// separates the two parts: "a-b/x" comes before "a/x".
func (p Position) Compare(q Position) int {
	if p.Namespace == q.Namespace {
		return strings.Compare(p.Name, q.Name)
	}
	common := min(len(p.Namespace), len(q.Namespace))
	if c := strings.Compare(p.Namespace[:common], q.Namespace[:common]); c != 0 {
		return c
	}
	if len(p.Namespace) > common {
		return int(p.Namespace[common]) - '/'
	}
	return '/' - int(q.Namespace[common])
}

// Position returns the position of the entry in key order.
func (e *Entry) Position() Position { return Position{e.Namespace, e.Name} }

// indexed is an element of an index: an entry and the value of the indexed field.
type indexed struct {
	value string
	entry *Entry
}

// state holds all objects of a kind in trees that can be copied in O(1).
type state struct {
	entries *btree.BTreeG[*Entry]
	fields  []string // what is indexed
	indexes []*btree.BTreeG[indexed]
}

func newState(fields []string) state {
	options := btree.Options{NoLocks: true}
	s := state{fields: fields, indexes: make([]*btree.BTreeG[indexed], len(fields))}
	s.entries = btree.NewBTreeGOptions(func(a, b *Entry) bool { return a.Position().Compare(b.Position()) < 0 }, options)
	for i := range fields {
		s.indexes[i] = btree.NewBTreeGOptions(func(a, b indexed) bool {
			if a.value != b.value {
				return a.value < b.value
			}
			return a.entry.Position().Compare(b.entry.Position()) < 0
		}, options)
	}
	return s
}

// copy returns a copy that shares memory until one of them changes.
func (s *state) copy() state {
	c := state{entries: s.entries.IsoCopy(), fields: s.fields, indexes: make([]*btree.BTreeG[indexed], len(s.indexes))}
	for i, index := range s.indexes {
		c.indexes[i] = index.IsoCopy()
	}
	return c
}

func (s *state) get(at Position) (*Entry, bool) {
	return s.entries.Get(&Entry{Namespace: at.Namespace, Name: at.Name})
}

// set replaces the entry at a position and returns the previous one, or nil.
func (s *state) set(e *Entry) *Entry {
	previous, _ := s.entries.Set(e)
	for i, index := range s.indexes {
		if previous != nil && previous.index[i] != e.index[i] {
			index.Delete(indexed{previous.index[i], previous})
		}
		index.Set(indexed{e.index[i], e})
	}
	return previous
}

// load is set for entries in ascending order.
func (s *state) load(e *Entry) {
	s.entries.Load(e)
	for i, index := range s.indexes {
		index.Set(indexed{e.index[i], e})
	}
}

func (s *state) remove(at Position) *Entry {
	previous, _ := s.entries.Delete(&Entry{Namespace: at.Namespace, Name: at.Name})
	if previous != nil {
		for i, index := range s.indexes {
			index.Delete(indexed{previous.index[i], previous})
		}
	}
	return previous
}

// undo reverts events, newest first.
func (s *state) undo(events []*Event) {
	for i := len(events) - 1; i >= 0; i-- {
		if e := events[i]; e.Previous != nil {
			s.set(e.Previous)
		} else {
			s.remove(e.Entry.Position())
		}
	}
}
