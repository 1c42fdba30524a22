package client

import (
	"context"
	"errors"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// view lists and watches a part of a kind in the watch cache, as a
// cache.ListerWatcher. Nothing is copied or encoded: a list is pointers into
// the cache, a watch is a cursor. Objects of the hub version are the cache's
// own; another version is converted.
type view struct {
	cache     *watchcache.Cache
	kind      *watchcache.Kind
	version   resource.Version
	namespace string
	selector  fields.Selector // nil for everything
}

// objectList is a list of shared objects.
type objectList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []runtime.Object
}

// DeepCopyObject copies the list, not the objects, which never change.
func (l *objectList) DeepCopyObject() runtime.Object {
	c := *l
	c.Items = append([]runtime.Object(nil), l.Items...)
	return &c
}

// IsWatchListSemanticsUnSupported tells client-go to list, since a list costs
// nothing here.
func (v *view) IsWatchListSemanticsUnSupported() bool { return true }

// List implements cache.ListerWatcher.
func (v *view) List(options metav1.ListOptions) (runtime.Object, error) {
	return v.ListWithContext(context.Background(), options)
}

// ListWithContext returns everything that the view shows, as of now.
func (v *view) ListWithContext(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
	select {
	case <-v.cache.Synced():
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	snapshot := v.kind.Snapshot()
	list := &objectList{}
	list.ResourceVersion = strconv.FormatInt(snapshot.Revision, 10)
	visit := func(e *watchcache.Entry) bool {
		if v.shows(e) {
			list.Items = append(list.Items, v.version.FromHub(e.Object))
		}
		return true
	}
	for _, r := range v.requirements() {
		if r.positive && snapshot.Lookup(r.field, r.value, watchcache.Position{}, visit) {
			return list, nil
		}
	}
	snapshot.Ascend(v.namespace, watchcache.Position{}, visit)
	return list, nil
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

// Watch implements cache.ListerWatcher.
func (v *view) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return v.WatchWithContext(context.Background(), options)
}

// WatchWithContext delivers what changes in the view after
// options.ResourceVersion, until it is stopped or ctx ends.
func (v *view) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	after, err := strconv.ParseInt(options.ResourceVersion, 10, 64)
	if err != nil {
		return nil, apierrors.NewBadRequest("invalid resource version " + strconv.Quote(options.ResourceVersion))
	}
	cursor, err := v.kind.WatchScope(after, v.scope())
	if err != nil {
		return nil, expired(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &viewWatch{view: v, cancel: cancel, events: make(chan watch.Event)}
	go w.run(ctx, cursor)
	return w, nil
}

// expired is what a client is told to begin anew.
func expired(err error) error {
	if errors.Is(err, store.ErrCompacted) {
		return apierrors.NewResourceExpired("too old resource version")
	}
	return err
}

// viewWatch implements watch.Interface.
type viewWatch struct {
	view   *view
	cancel context.CancelFunc
	events chan watch.Event
}

// Stop implements watch.Interface.
func (w *viewWatch) Stop() { w.cancel() }

// ResultChan implements watch.Interface.
func (w *viewWatch) ResultChan() <-chan watch.Event { return w.events }

func (w *viewWatch) run(ctx context.Context, cursor *watchcache.Cursor) {
	defer close(w.events)
	defer w.cancel()
	for {
		events, _, err := cursor.Next(ctx, nil)
		if errors.Is(err, store.ErrCompacted) {
			status := apierrors.NewResourceExpired("too old resource version").Status()
			w.send(ctx, watch.Event{Type: watch.Error, Object: &status})
		}
		if err != nil {
			return
		}
		for _, e := range events {
			if seen, ok := w.view.see(e); ok && !w.send(ctx, seen) {
				return
			}
		}
	}
}

func (w *viewWatch) send(ctx context.Context, e watch.Event) bool {
	select {
	case w.events <- e:
		return true
	case <-ctx.Done():
		return false
	}
}

// see translates an event to what it is in the view: an object that comes
// into the selection is added, one that leaves it is deleted.
func (v *view) see(e *watchcache.Event) (watch.Event, bool) {
	before := e.Previous != nil && v.shows(e.Previous)
	after := e.Type != watchcache.Deleted && v.shows(e.Entry)
	out := watch.Event{}
	switch {
	case before && after:
		out.Type = watch.Modified
	case after:
		out.Type = watch.Added
	case before:
		out.Type = watch.Deleted
	default:
		return out, false
	}
	out.Object = v.version.FromHub(e.Entry.Object)
	return out, true
}
