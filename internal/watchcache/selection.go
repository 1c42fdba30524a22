package watchcache

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/coracle-io/coracle/internal/resource"
)

// Selection is what a list or watch is about: a namespace and selectors, and
// what of them narrows the search. It is for one goroutine.
type Selection struct {
	resource  *resource.Resource
	namespace string  // "" is all
	name      string  // "" is every name
	labels    matcher // nil is everything
	fields    fields.Selector
	index     Scope     // an indexed field that is fixed; Field "" for none
	shown     *fieldsOf // what fields is looking at; nil without fields
}

// NewSelection reads selectors (nil is everything). A field selector for a
// namespace narrows a search in all of them.
func NewSelection(r *resource.Resource, namespace string, l labels.Selector, f fields.Selector) Selection {
	s := Selection{resource: r, namespace: namespace}
	if l != nil && !l.Empty() {
		s.labels = quick(l)
	}
	if f == nil || f.Empty() {
		return s
	}
	s.fields, s.shown = f, &fieldsOf{resource: r}
	for _, requirement := range f.Requirements() {
		if requirement.Operator != selection.Equals && requirement.Operator != selection.DoubleEquals {
			continue
		}
		switch {
		case requirement.Field == "metadata.name":
			s.name = requirement.Value
		case requirement.Field == "metadata.namespace":
			if s.namespace == "" && r.Namespaced {
				s.namespace = requirement.Value
			}
		case s.index.Field == "" && slices.Contains(r.Indexed, requirement.Field):
			s.index = Scope{Field: requirement.Field, Value: requirement.Value}
		}
	}
	return s
}

// Namespace is the one that is selected; "" is all.
func (s *Selection) Namespace() string { return s.namespace }

// Everything says that all objects of the namespace are selected.
func (s *Selection) Everything() bool { return s.labels == nil && s.fields == nil }

// single says that at most one object can be selected.
func (s *Selection) single() bool {
	return s.name != "" && (s.namespace != "" || !s.resource.Namespaced)
}

// matches decides on one object in the namespace.
func (s *Selection) matches(e *Entry) bool {
	if s.labels != nil && !s.labels.Matches(labels.Set(e.Object.GetLabels())) {
		return false
	}
	if s.fields == nil {
		return true
	}
	s.shown.entry = e
	return s.fields.Matches(s.shown)
}

// inNamespace says whether an entry lies in the selected namespace.
func (s *Selection) inNamespace(e *Entry) bool {
	return s.namespace == "" || e.Namespace == s.namespace
}

// visitsBetweenLooks is how many objects are gone through before it is looked
// whether anybody still waits for them: a selector may take its time for each.
const visitsBetweenLooks = 64

// Visit calls the function with every selected entry of a snapshot after a
// position, in key order, until it returns false or ctx has ended.
func (s *Selection) Visit(ctx context.Context, snapshot Snapshot, after Position, visit func(*Entry) bool) error {
	if s.single() {
		if e, ok := snapshot.Get(s.namespace, s.name); ok && s.matches(e) && e.Position().Compare(after) > 0 {
			visit(e)
		}
		return nil
	}
	var ended error
	seen := 0
	filtered := func(e *Entry) bool {
		if seen++; seen%visitsBetweenLooks == 0 {
			if ended = ctx.Err(); ended != nil {
				return false
			}
		}
		if !s.inNamespace(e) || !s.matches(e) {
			return true
		}
		return visit(e)
	}
	if s.index.Field == "" || !snapshot.Lookup(s.index.Field, s.index.Value, after, filtered) {
		snapshot.Ascend(s.namespace, after, filtered)
	}
	return ended
}

// VisitPast is Visit for a state that the cache does not reach back to; about
// is how many entries are wanted; 0 is all.
func (s *Selection) VisitPast(ctx context.Context, past Past, after Position, about int, visit func(*Entry) bool) error {
	return past.Ascend(ctx, s.namespace, after, about, func(e *Entry) bool { return !s.matches(e) || visit(e) })
}

// Scope is the narrowest log that holds all that can be selected.
func (s *Selection) Scope() Scope {
	if s.single() {
		return Scope{Namespace: s.namespace, Name: s.name}
	}
	if s.index.Field != "" {
		return s.index
	}
	return Scope{Namespace: s.namespace}
}

// Seen is what a change is to a watcher of the selection; 0 is nothing. left
// says that the object is still there but no longer selected.
func (s *Selection) Seen(e *Event) (what EventType, left bool) {
	if !s.inNamespace(e.Entry) {
		return 0, false
	}
	before := e.Previous != nil && s.matches(e.Previous)
	now := e.Type != Deleted && s.matches(e.Entry)
	switch {
	case now && before:
		return Modified, false
	case now:
		return Added, false
	case before:
		return Deleted, e.Type != Deleted
	}
	return 0, false
}

// matcher decides by labels.
type matcher interface{ Matches(labels.Labels) bool }

// fewValues is how many values a requirement may have that is not worth a set.
const fewValues = 16

// quick returns what decides as a selector does, in a time that does not grow
// with the values of its requirements.
func quick(l labels.Selector) matcher {
	requirements, selectable := l.Requirements()
	if !selectable || !slices.ContainsFunc(requirements, func(r labels.Requirement) bool { return len(r.ValuesUnsorted()) > fewValues }) {
		return l
	}
	all := make(allOf, len(requirements))
	for i := range requirements {
		r := &requirements[i]
		all[i] = r
		if operator := r.Operator(); operator == selection.In || operator == selection.NotIn {
			all[i] = oneOf{key: r.Key(), values: sets.New(r.ValuesUnsorted()...), not: operator == selection.NotIn}
		}
	}
	return all
}

type allOf []matcher

func (all allOf) Matches(l labels.Labels) bool {
	for _, m := range all {
		if !m.Matches(l) {
			return false
		}
	}
	return true
}

// oneOf is a requirement of the operators in and notin.
type oneOf struct {
	key    string
	values sets.Set[string]
	not    bool
}

func (o oneOf) Matches(l labels.Labels) bool {
	value, ok := l.Lookup(o.key)
	if !ok {
		return o.not
	}
	return o.values.Has(value) != o.not
}

// fieldsOf shows an object's selectable fields to a selector, finding out
// only those that are asked for.
type fieldsOf struct {
	resource *resource.Resource
	entry    *Entry
}

// Has implements fields.Fields.
func (f *fieldsOf) Has(string) bool { return true }

// Get implements fields.Fields.
func (f *fieldsOf) Get(field string) string {
	switch field {
	case "metadata.name":
		return f.entry.Name
	case "metadata.namespace":
		return f.entry.Namespace
	}
	return f.resource.Field(f.entry.Object, field)
}
