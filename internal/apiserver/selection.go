package apiserver

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// selected is what a list or watch is about: a namespace and selectors, and
// what of them narrows the search. It is for one goroutine.
type selected struct {
	resource  *resource.Resource
	namespace string // "" is all
	name      string // "" is every name
	labels    labels.Selector
	fields    fields.Selector
	index     watchcache.Scope // an indexed field that is fixed; Field "" for none
	shown     *fieldsOf        // what fields is looking at; nil without fields
}

// newSelected reads selectors (nil is everything). A field selector for a
// namespace narrows a search in all of them.
func newSelected(r *resource.Resource, namespace string, l labels.Selector, f fields.Selector) selected {
	s := selected{resource: r, namespace: namespace}
	if l != nil && !l.Empty() {
		s.labels = l
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
			s.index = watchcache.Scope{Field: requirement.Field, Value: requirement.Value}
		}
	}
	return s
}

// everything says that all objects of the namespace are selected.
func (s *selected) everything() bool { return s.labels == nil && s.fields == nil }

// single says that at most one object can be selected.
func (s *selected) single() bool {
	return s.name != "" && (s.namespace != "" || !s.resource.Namespaced)
}

// matches decides on one object in the namespace.
func (s *selected) matches(e *watchcache.Entry) bool {
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
func (s *selected) inNamespace(e *watchcache.Entry) bool {
	return s.namespace == "" || e.Namespace == s.namespace
}

// visit calls the function with every selected entry of a snapshot after a
// position, in key order, until it returns false.
func (s *selected) visit(snapshot watchcache.Snapshot, after watchcache.Position, visit func(*watchcache.Entry) bool) {
	if s.single() {
		if e, ok := snapshot.Get(s.namespace, s.name); ok && s.matches(e) && e.Position().Compare(after) > 0 {
			visit(e)
		}
		return
	}
	filtered := func(e *watchcache.Entry) bool {
		if !s.inNamespace(e) || !s.matches(e) {
			return true
		}
		return visit(e)
	}
	if s.index.Field != "" && snapshot.Lookup(s.index.Field, s.index.Value, after, filtered) {
		return
	}
	snapshot.Ascend(s.namespace, after, filtered)
}

// fieldsOf shows an object's selectable fields to a selector, finding out
// only those that are asked for.
type fieldsOf struct {
	resource *resource.Resource
	entry    *watchcache.Entry
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

// fieldLabel returns the field that a version's label selects by, or refuses
// one that cannot be selected by. A version that lists its labels, as those of
// custom resources do, has no metadata.namespace where the kind has none.
func fieldLabel(r *resource.Resource, v *resource.Version, label string) (string, error) {
	field, known := v.FieldLabels[label]
	switch {
	case label == "metadata.name", label == "metadata.namespace" && (r.Namespaced || v.FieldLabels == nil):
		return label, nil
	case known:
		return field, nil
	case v.FieldLabels == nil && slices.Contains(r.Fields, label):
		return label, nil
	case len(r.Fields) > 0, v.FieldLabels != nil:
		return "", fmt.Errorf("field label not supported: %s", label)
	}
	return "", fmt.Errorf(`%q is not a known field selector: only "metadata.name", "metadata.namespace"`, label)
}
