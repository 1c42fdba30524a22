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

// Selection is the set of objects of a list or watch: a namespace and selectors. It
// must not be used by several goroutines at the same time.
type Selection struct {
	resource  *resource.Resource
	namespace string  // "" is all
	name      string  // "" is every name
	labels    matcher // nil means everything
	fields    fields.Selector
	index     Scope     // an indexed field with a required value; Field is "" if there is none
	shown     *fieldsOf // argument for fields; nil without a field selector
	// version is that of a custom resource whose fields are selected; nil if the
	// selectors need no conversion.
	version *resource.Version
	failed  error // of a conversion
}

// NewSelection returns the selection for a namespace ("" means all) and selectors
// (nil means everything). A field selector for metadata.namespace restricts a
// selection of all namespaces.
func NewSelection(r *resource.Resource, namespace string, l labels.Selector, f fields.Selector) Selection {
	s := Selection{resource: r, namespace: namespace}
	if l != nil && !l.Empty() {
		s.labels = optimize(l)
	}
	if f == nil || f.Empty() {
		return s
	}
	s.fields, s.shown = f, &fieldsOf{resource: r}
	for _, requirement := range f.Requirements() {
		if requirement.Field != "metadata.name" && requirement.Field != "metadata.namespace" {
			if hub := r.Hub(); hub.Convert != nil {
				s.version = hub
			}
		}
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
		case s.index.Field == "" && slices.Contains(r.FieldSelectors.Indexed, requirement.Field):
			s.index = Scope{Field: requirement.Field, Value: requirement.Value}
		}
	}
	return s
}

// Namespace returns the selected namespace; "" means all.
func (s *Selection) Namespace() string { return s.namespace }

// Everything reports whether all objects of the namespace are selected.
func (s *Selection) Everything() bool { return s.labels == nil && s.fields == nil }

// Err returns the error of an object whose fields could not be converted. Visit ends
// with it or takes it for selected, as EventFor does, so that its reader is not told
// that it is gone.
func (s *Selection) Err() error { return s.failed }

// single reports whether at most one object can be selected.
func (s *Selection) single() bool {
	return s.name != "" && (s.namespace != "" || !s.resource.Namespaced)
}

// matches reports whether the selectors match an entry.
func (s *Selection) matches(e *Entry) bool {
	return s.matchesLabels(e) && s.matchesFields(e)
}

func (s *Selection) matchesLabels(e *Entry) bool {
	return s.labels == nil || s.labels.Matches(labels.Set(e.Object.GetLabels()))
}

func (s *Selection) matchesFields(e *Entry) bool {
	if s.fields == nil {
		return true
	}
	s.shown.entry, s.shown.obj = e, e.Object
	if s.version != nil {
		obj, err := e.In(s.version)
		if err != nil {
			s.failed = err
			return true
		}
		s.shown.obj = obj
	}
	return s.fields.Matches(s.shown)
}

// inNamespace reports whether an entry is in the selected namespace.
func (s *Selection) inNamespace(e *Entry) bool {
	return s.namespace == "" || e.Namespace == s.namespace
}

// visitsPerContextCheck is the number of objects between two checks of the context,
// because a selector may be slow.
const visitsPerContextCheck = 64

// Visit calls visit for the selected entries of a snapshot after a position, in key
// order, until it returns false. It returns an error if ctx is done.
func (s *Selection) Visit(ctx context.Context, snapshot Snapshot, after Position, visit func(*Entry) bool) error {
	through := sieve{selection: s, visit: visit}
	if s.single() {
		if e, ok := snapshot.Get(s.namespace, s.name); ok && e.Position().Compare(after) > 0 && through.add(e) {
			through.flush()
		}
		return nil
	}
	var ended error
	seen := 0
	filtered := func(e *Entry) bool {
		if seen++; seen%visitsPerContextCheck == 0 {
			if ended = ctx.Err(); ended != nil {
				return false
			}
		}
		return !s.inNamespace(e) || through.add(e)
	}
	if s.index.Field == "" || !snapshot.Lookup(s.index.Field, s.index.Value, after, filtered) {
		snapshot.Ascend(s.namespace, after, filtered)
	}
	if ended == nil {
		through.flush()
	}
	return ended
}

// VisitHistorical is like Visit for a state that is no longer in the cache. about is the
// expected number of entries; 0 means all.
func (s *Selection) VisitHistorical(ctx context.Context, past HistoricalSnapshot, after Position, about int, visit func(*Entry) bool) error {
	through := sieve{selection: s, visit: visit}
	err := past.Ascend(ctx, s.namespace, after, about, through.add)
	if err == nil {
		through.flush()
	}
	return err
}

// sieve passes the selected ones of entries to visit. Those whose fields a webhook must
// convert wait for others, so that it is asked once for many.
type sieve struct {
	selection *Selection
	visit     func(*Entry) bool
	waiting   []*Entry
	size      int // stored bytes of waiting
}

// add takes an entry. It returns false if no more are wanted.
func (v *sieve) add(e *Entry) bool {
	s := v.selection
	if s.version == nil || s.version.ConvertAll == nil {
		return !s.matches(e) || v.visit(e)
	}
	if !s.matchesLabels(e) {
		return true
	}
	if !fits(len(v.waiting), v.size, e) && !v.flush() {
		return false
	}
	v.waiting = append(v.waiting, e)
	v.size += e.size
	return true
}

// flush visits the selected ones of the waiting entries.
func (v *sieve) flush() bool {
	s, waiting := v.selection, v.waiting
	v.waiting, v.size = nil, 0
	if len(waiting) == 0 {
		return true
	}
	if err := Convert(s.version, waiting); err != nil {
		s.failed = err
		return false
	}
	for _, e := range waiting {
		if s.matchesFields(e) && !v.visit(e) {
			return false
		}
	}
	return true
}

// Scope returns the smallest scope that contains all events of selected objects.
func (s *Selection) Scope() Scope {
	if s.single() {
		return Scope{Namespace: s.namespace, Name: s.name}
	}
	if s.index.Field != "" {
		return s.index
	}
	return Scope{Namespace: s.namespace}
}

// EventFor returns the type of an event for a watcher of the selection, or 0 if the
// event is not visible to it. left is true if the object still exists but is no
// longer selected.
func (s *Selection) EventFor(e *Event) (what EventType, left bool) {
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

// matcher matches labels.
type matcher interface{ Matches(labels.Labels) bool }

// fewValues is the maximum number of values of a requirement for which no set is
// built.
const fewValues = 16

// optimize returns a matcher that is equivalent to a selector and whose cost does
// not depend on the number of values.
func optimize(l labels.Selector) matcher {
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

// oneOf is a requirement with the operator in or notin.
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

// fieldsOf implements fields.Fields for an entry. It computes a field when it is
// requested.
type fieldsOf struct {
	resource *resource.Resource
	entry    *Entry
	obj      resource.Object // of the entry, in the version whose fields are selected
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
	return f.resource.Field(f.obj, field)
}
