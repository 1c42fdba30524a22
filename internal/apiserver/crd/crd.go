// Package crd serves custom resources. It builds a resource.Resource for each
// version of a CustomResourceDefinition (apiextensions.k8s.io/v1), which the API
// server serves like a built-in one.
//
//	CustomResourceDefinition ─event─► Server.sync ─┬─► names, conditions ─► status
//	                                               ├─► watchcache.Add, SetResources
//	                                               └─► cleanup of the instances, once it is deleted
//
// The first request that needs a version compiles it: structural schema,
// validators, CEL programs, conversion.
//
//	body ─Coerce─► pruned ─Default─► admission ─Validate─► ToStored ─► store
//	                        all in the client's version
//
// The watch cache has objects in the version in which they are stored. Reads in
// another version convert them. If a webhook does that, the cache keeps the results,
// and a list or the start of a watch asks for many that are missing at once.
//
// Answers of PartialObjectMetadata, and label selectors, show the stored version,
// although a webhook may change labels and annotations. So the garbage collector and
// the deletion of namespaces, perhaps of that with the webhook, need no webhook.
package crd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/conversion"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/klog/v2"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/apiserver/apply"
	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/apiserver/recovery"
	"github.com/coracle-io/coracle/internal/apiserver/registry"
	"github.com/coracle-io/coracle/internal/apiserver/webhooks"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/supervise"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// Routes serves resources.
type Routes interface{ SetResources([]*resource.Resource) }

// Documents publishes the OpenAPI documents of group versions, which are
// rendered on demand.
type Documents interface {
	SetV3(path, tag string, render func() ([]byte, error))
	SetV2(name string, render func() (*spec.Swagger, error))
}

// Managers tracks field managers. Forget drops the cached types of a group
// version whose schemas have changed.
type Managers interface {
	registry.FieldManagers
	Forget(schema.GroupVersion)
}

// Config configures a Server.
type Config struct {
	BuiltIn []*resource.Resource // the built-in resources, which precede custom ones
	Cache   *watchcache.Cache
	// Documents, if set, publishes the OpenAPI documents.
	Documents Documents
	// Services resolves the services of conversion webhooks. It is called once,
	// when the first is needed. If nil, webhooks need URLs.
	Services func() (webhook.ServiceResolver, error)
	// Calls changes how conversion webhooks are called; it may be nil.
	Calls webhook.AuthenticationInfoResolverWrapper
	Clock clock.PassiveClock
	// Forget, if set, is called for each resource that is no longer served.
	Forget func(schema.GroupResource)
}

// Server serves the custom resources of all definitions.
type Server struct {
	Config
	converters func() (*conversion.CRConverterFactory, error)
	builtIn    map[schema.GroupResource]bool

	// Only Run's goroutine uses the following, except for served, which mu
	// guards.
	routes   Routes
	managers Managers
	mu       sync.RWMutex
	served   map[string]*definition // by the name of the CustomResourceDefinition
	seen     map[string]int64       // revisions that need no further work
	cleanups map[types.UID]bool
	wait     supervise.WaitGroup
}

// New returns a Server. Run starts it.
func New(c Config) *Server {
	s := &Server{
		Config: c, builtIn: map[schema.GroupResource]bool{}, served: map[string]*definition{},
		seen: map[string]int64{}, cleanups: map[types.UID]bool{},
	}
	for _, r := range c.BuiltIn {
		s.builtIn[r.GroupResource()] = true
	}
	s.converters = sync.OnceValues(s.newConverters)
	return s
}

func (s *Server) newConverters() (*conversion.CRConverterFactory, error) {
	services := webhook.NewDefaultServiceResolver()
	if s.Services != nil {
		var err error
		if services, err = s.Services(); err != nil {
			return nil, err
		}
	}
	return conversion.NewCRConverterFactory(services, func(resolver webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver {
		if s.Calls != nil {
			resolver = s.Calls(resolver)
		}
		return webhooks.Bounded(resolver)
	})
}

const retryAfter = 200 * time.Millisecond

// Run serves custom resources through routes until ctx ends. managers may be
// nil. The cache must be synced. Run calls ready once all definitions that
// existed at the start are served.
func (s *Server) Run(ctx context.Context, routes Routes, managers Managers, ready func()) error {
	s.routes, s.managers = routes, managers
	clear(s.cleanups) // a former, failed run has ended them
	ctx, cancel := context.WithCancel(ctx)
	defer s.wait.Wait()
	defer cancel()
	kind := s.Cache.At(objects.CustomResourceDefinitions)
	if kind == nil {
		return errors.New("customresourcedefinitions are not among the resources")
	}
	for ctx.Err() == nil {
		cursor, err := kind.Watch(kind.Snapshot().Revision)
		if errors.Is(err, watchcache.ErrRemoved) {
			return err
		}
		for err == nil {
			again := s.sync(ctx, kind)
			if ready != nil && !again {
				ready()
				ready = nil
			}
			err = next(ctx, cursor, again)
		}
		if ctx.Err() == nil && !errors.Is(err, store.ErrCompacted) {
			klog.FromContext(ctx).Error(err, "Reading the custom resource definitions again")
		}
	}
	return nil
}

// next waits for a change of a definition, or for the time of a retry.
func next(ctx context.Context, cursor *watchcache.Cursor, again bool) error {
	if !again {
		_, _, err := cursor.Next(ctx, nil)
		return err
	}
	attempt, cancel := context.WithTimeout(ctx, retryAfter)
	defer cancel()
	_, _, err := cursor.Next(attempt, nil)
	if errors.Is(err, context.DeadlineExceeded) {
		return ctx.Err()
	}
	return err
}

// sync updates the served resources and the status of the definitions. again
// means that something failed and must be retried.
func (s *Server) sync(ctx context.Context, kind *watchcache.Kind) (again bool) {
	var entries []*watchcache.Entry
	kind.Snapshot().Ascend("", watchcache.Position{}, func(e *watchcache.Entry) bool {
		entries = append(entries, e)
		return true
	})
	states := s.decide(ctx, entries)
	s.serve(ctx, states)
	for _, state := range states {
		if !state.changed() {
			continue
		}
		if err := s.writeStatus(ctx, kind, state); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot write the status of a custom resource definition", "definition", state.next.Name)
			delete(s.seen, state.next.Name)
			again = true
		}
	}
	current := map[types.UID]bool{}
	for _, state := range states {
		current[state.next.UID] = true
		s.clean(ctx, kind, state.next)
	}
	maps.DeleteFunc(s.cleanups, func(uid types.UID, _ bool) bool { return !current[uid] })
	return again
}

// state is a definition with its current and its new status.
type state struct {
	entry *watchcache.Entry
	next  *apiextensionsv1.CustomResourceDefinition
}

func (st *state) current() *apiextensionsv1.CustomResourceDefinition {
	return st.entry.Object.(*apiextensionsv1.CustomResourceDefinition)
}

func (st *state) changed() bool { return st.next != st.current() }

// decide computes the new status of each definition. The oldest is first, so
// that it keeps a name that a younger one wants, too.
func (s *Server) decide(ctx context.Context, entries []*watchcache.Entry) []*state {
	slices.SortStableFunc(entries, func(a, b *watchcache.Entry) int {
		return a.Object.GetCreationTimestamp().Compare(b.Object.GetCreationTimestamp().Time)
	})
	groups := map[string][]*state{}
	states := make([]*state, 0, len(entries))
	for _, e := range entries {
		st := &state{entry: e}
		st.next = st.current()
		states = append(states, st)
		groups[st.next.Spec.Group] = append(groups[st.next.Spec.Group], st)
	}
	released := s.anyGone(entries)
	for _, st := range states {
		if !released && s.seen[st.next.Name] == st.entry.Revision {
			continue
		}
		var others []*apiextensionsv1.CustomResourceDefinition
		for _, other := range groups[st.next.Spec.Group] {
			if other != st {
				others = append(others, other.next)
			}
		}
		var next *apiextensionsv1.CustomResourceDefinition
		err := recovery.Call(ctx, "computing the status of definition "+st.next.Name, func() error {
			next = withStatus(st.next, others, s.Clock.Now())
			return nil
		})
		if err == nil && next != nil {
			st.next = next
			released = true // a change of accepted names may free others
		}
		s.seen[st.next.Name] = st.entry.Revision
	}
	return states
}

// anyGone reports whether a served definition no longer exists, so that its
// names are free.
func (s *Server) anyGone(entries []*watchcache.Entry) bool {
	names := map[string]bool{}
	for _, e := range entries {
		names[e.Name] = true
	}
	gone := false
	for name := range s.seen {
		if !names[name] {
			delete(s.seen, name)
			gone = true
		}
	}
	return gone
}

// serve updates the API server's resources.
func (s *Server) serve(ctx context.Context, states []*state) {
	next := map[string]*definition{}
	for _, st := range states {
		crd := st.next
		if !established(crd) || s.builtIn[schema.GroupResource{Group: crd.Spec.Group, Resource: crd.Status.AcceptedNames.Plural}] {
			continue
		}
		old := s.served[crd.Name]
		if old != nil && old.same(crd) {
			next[crd.Name] = old
			continue
		}
		next[crd.Name] = s.define(ctx, crd)
	}
	changed := map[schema.GroupVersion]bool{}
	for name, old := range s.served {
		d := next[name]
		if d == old {
			continue
		}
		for _, gv := range old.groupVersions() {
			changed[gv] = true
		}
		if d != nil && d.uid != old.uid {
			s.Cache.Remove(old.stored)
		}
	}
	var added []*definition
	for name, d := range next {
		if d != s.served[name] {
			added = append(added, d)
			for _, gv := range d.groupVersions() {
				changed[gv] = true
			}
		}
	}
	if len(changed) == 0 {
		return
	}
	for _, d := range added {
		s.Cache.Add(d.stored)
	}
	for _, d := range added {
		s.publishV2(d.crd.Name, d)
	}
	gone := s.replace(next)
	all := slices.Clone(s.BuiltIn)
	for _, name := range slices.Sorted(maps.Keys(next)) {
		all = append(all, next[name].views...)
	}
	s.routes.SetResources(all)
	for _, d := range gone {
		s.Cache.Remove(d.stored)
		s.publishV2(d.crd.Name, nil)
		if s.Forget != nil {
			s.Forget(d.stored.GroupResource())
		}
	}
	for gv := range changed {
		s.publish(gv)
		if s.managers != nil {
			s.managers.Forget(gv)
		}
	}
	klog.FromContext(ctx).V(2).Info("Serving custom resources", "definitions", len(next), "changed", len(added), "gone", len(gone))
}

// replace sets the served definitions and returns those that are no longer
// served.
func (s *Server) replace(next map[string]*definition) (gone []*definition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, old := range s.served {
		if next[name] == nil {
			gone = append(gone, old)
		}
	}
	s.served = next
	return gone
}

// Schemas returns the OpenAPI v3 schemas of all custom resources of a group
// version; none if it has none.
func (s *Server) Schemas(gv schema.GroupVersion) (map[string]*spec.Schema, error) {
	all := map[string]*spec.Schema{}
	for _, d := range s.inGroup(gv.Group) {
		if !slices.ContainsFunc(d.crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == gv.Version }) {
			continue
		}
		for _, v := range d.crd.Spec.Versions {
			document, err := d.openAPI(v.Name)
			if err != nil {
				return nil, fmt.Errorf("schemas of %s: %w", d.crd.Name, err)
			}
			maps.Copy(all, document.Components.Schemas)
		}
	}
	return all, nil
}

// SchemasOr returns Schemas for the group versions of custom resources, and
// other for all others.
func (s *Server) SchemasOr(other apply.Schemas) apply.Schemas {
	return func(gv schema.GroupVersion) (map[string]*spec.Schema, error) {
		if found, err := s.Schemas(gv); err != nil || len(found) > 0 {
			return found, err
		}
		return other(gv)
	}
}

// inGroup returns the served definitions of a group, sorted by name.
func (s *Server) inGroup(group string) []*definition {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []*definition
	for _, name := range slices.Sorted(maps.Keys(s.served)) {
		if d := s.served[name]; d.crd.Spec.Group == group {
			out = append(out, d)
		}
	}
	return out
}
