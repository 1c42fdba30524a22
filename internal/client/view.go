package client

import (
	"slices"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// view lists and watches a part of a kind in the watch cache. Nothing is
// copied or encoded: a list is pointers into the cache, a watch is a cursor.
// Objects of the hub version are the cache's own; another version is converted.
type view struct {
	cache     *watchcache.Cache
	kind      *watchcache.Kind
	version   resource.Version
	namespace string
	selector  fields.Selector // nil for everything
}

// list returns everything that the view shows, as of a revision.
func (v *view) list() (objects []runtime.Object, revision int64) {
	snapshot := v.kind.Snapshot()
	visit := func(e *watchcache.Entry) bool {
		if v.shows(e) {
			objects = append(objects, v.version.FromHub(e.Object))
		}
		return true
	}
	for _, r := range v.requirements() {
		if r.positive && snapshot.Lookup(r.field, r.value, watchcache.Position{}, visit) {
			return objects, snapshot.Revision
		}
	}
	snapshot.Ascend(v.namespace, watchcache.Position{}, visit)
	return objects, snapshot.Revision
}

// watch returns a cursor on what may change in the view after a revision.
func (v *view) watch(after int64) (*watchcache.Cursor, error) {
	return v.kind.WatchScope(after, v.scope())
}

// requirement is one term of a field selector.
type requirement struct {
	field, value string
	positive     bool
}

func (v *view) requirements() (all []requirement) {
	if v.selector == nil {
		return nil
	}
	for _, r := range v.selector.Requirements() {
		all = append(all, requirement{field: r.Field, value: r.Value, positive: r.Operator != "!="})
	}
	return all
}

// scope is the narrowest part of the kind that contains the view.
func (v *view) scope() watchcache.Scope {
	scope := watchcache.Scope{Namespace: v.namespace}
	for _, r := range v.requirements() {
		switch {
		case !r.positive:
		case r.field == "metadata.name":
			// A name alone is a scope only where it is unique.
			if v.namespace != "" || !v.kind.Resource().Namespaced {
				scope.Name = r.value
			}
		case slices.Contains(v.kind.Resource().Indexed, r.field):
			scope.Field, scope.Value = r.field, r.value
		}
	}
	return scope
}

// shows says whether the view contains an object.
func (v *view) shows(e *watchcache.Entry) bool {
	if v.namespace != "" && e.Namespace != v.namespace {
		return false
	}
	if v.selector == nil || v.selector.Empty() {
		return true
	}
	return v.selector.Matches(&shown{kind: v.kind, entry: e})
}

// shown lets a selector see an entry's fields.
type shown struct {
	kind  *watchcache.Kind
	entry *watchcache.Entry
}

// Has implements fields.Fields.
func (s *shown) Has(field string) bool {
	_, ok := s.find(field)
	return ok
}

// Get implements fields.Fields.
func (s *shown) Get(field string) string {
	value, _ := s.find(field)
	return value
}

func (s *shown) find(field string) (value string, ok bool) {
	switch field {
	case "metadata.name":
		return s.entry.Name, true
	case "metadata.namespace":
		return s.entry.Namespace, true
	}
	r := s.kind.Resource()
	if !slices.Contains(r.Fields, field) {
		return "", false
	}
	return r.Field(s.entry.Object, field), true
}

// see tells what an event is to the view: an object that comes into the
// selection is added, one that leaves it is deleted. 0 is nothing.
func (v *view) see(e *watchcache.Event) watchcache.EventType {
	before := e.Previous != nil && v.shows(e.Previous)
	after := e.Type != watchcache.Deleted && v.shows(e.Entry)
	switch {
	case before && after:
		return watchcache.Modified
	case after:
		return watchcache.Added
	case before:
		return watchcache.Deleted
	}
	return 0
}
