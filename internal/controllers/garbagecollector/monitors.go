package garbagecollector

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/controller/kinds"
)

// ignored resources neither own nor are owned, and change often.
var ignored = map[schema.GroupResource]bool{
	{Group: "", Resource: "events"}:              true,
	{Group: "events.k8s.io", Resource: "events"}: true,
}

// monitors watch every resource that is served. Built-in ones are watched
// through the informers that the whole process shares, others by metadata.
type monitors struct {
	shared   informers.SharedInformerFactory
	metadata metadata.Interface
	changed  func(resource schema.GroupVersionResource, meta metav1.Object, deleted bool)

	mu      sync.RWMutex // guards all below
	running map[schema.GroupVersionResource]*kinds.Monitor
	byKind  map[schema.GroupVersionKind]kinds.Kind
	byGroup map[schema.GroupKind]kinds.Kind
	// former are the kinds that were served some time.
	former map[schema.GroupKind]kinds.Kind
}

// fillPatience is how long the first list of a resource may take.
const fillPatience = 30 * time.Second

// update watches what is served from now on and no longer what is not. It
// returns the resources whose watch ended. It blocks until the stores of the
// new ones are filled, for fillPatience at most.
func (m *monitors) update(ctx context.Context, served []kinds.Kind) (ended []schema.GroupVersionResource, err error) {
	byKind, byGroup := map[schema.GroupVersionKind]kinds.Kind{}, map[schema.GroupKind]kinds.Kind{}
	wanted := map[schema.GroupVersionResource]bool{}
	for _, kind := range served {
		byKind[kind.GroupVersionKind] = kind
		byGroup[kind.GroupKind()] = kind
		if kind.Can("delete", "list", "watch") && !ignored[kind.Resource.GroupResource()] {
			wanted[kind.Resource] = true
		}
	}
	m.mu.Lock()
	m.byKind, m.byGroup = byKind, byGroup
	maps.Copy(m.former, byGroup)
	var stopped []*kinds.Monitor
	for resource, monitor := range m.running {
		if !wanted[resource] {
			delete(m.running, resource)
			stopped = append(stopped, monitor)
			ended = append(ended, resource)
		}
	}
	var fresh []cache.DoneChecker
	for resource := range wanted {
		if m.running[resource] != nil {
			continue
		}
		monitor, watchErr := m.watch(ctx, resource)
		if watchErr != nil {
			err = errors.Join(err, fmt.Errorf("watching %s: %w", resource, watchErr))
			continue
		}
		m.running[resource] = monitor
		fresh = append(fresh, monitor.Synced())
	}
	m.mu.Unlock()
	for _, monitor := range stopped {
		monitor.Close()
	}
	// An aggregated server that does not answer must not keep others waiting.
	filled, cancel := context.WithTimeout(ctx, fillPatience)
	defer cancel()
	cache.WaitFor(filled, "", fresh...)
	return ended, err
}

func (m *monitors) watch(ctx context.Context, resource schema.GroupVersionResource) (*kinds.Monitor, error) {
	return kinds.Watch(ctx, m.shared, m.metadata, resource, cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { m.changed(resource, o.(metav1.Object), false) },
		UpdateFunc: func(_, o any) {
			m.changed(resource, o.(metav1.Object), false)
		},
		DeleteFunc: func(o any) {
			if tombstone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = tombstone.Obj
			}
			m.changed(resource, o.(metav1.Object), true)
		},
	})
}

// closeAll ends all monitors.
func (m *monitors) closeAll() {
	m.mu.Lock()
	running := m.running
	m.running = map[schema.GroupVersionResource]*kinds.Monitor{}
	m.mu.Unlock()
	for _, monitor := range running {
		monitor.Close()
	}
}

// list are the kinds known from the last update.
func (m *monitors) list() []kinds.Kind {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return slices.Collect(maps.Values(m.byKind))
}

// resolve finds the kind that an owner reference names, in any version, and
// whether it is served now or only was.
func (m *monitors) resolve(ref metav1.OwnerReference) (kind kinds.Kind, served, ok bool) {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return kinds.Kind{}, false, false
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	if kind, ok := m.byKind[gv.WithKind(ref.Kind)]; ok {
		return kind, true, true
	}
	group := schema.GroupKind{Group: gv.Group, Kind: ref.Kind}
	if kind, ok := m.byGroup[group]; ok {
		return kind, true, true
	}
	kind, ok = m.former[group]
	return kind, false, ok
}

// kindOf is the kind of a resource that is watched.
func (m *monitors) kindOf(resource schema.GroupVersionResource) schema.GroupVersionKind {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for gvk, kind := range m.byKind {
		if kind.Resource == resource {
			return gvk
		}
	}
	return schema.GroupVersionKind{}
}

// elsewhere says whether an object that is not in its namespace was seen in
// another one. It looks at every object of the resource.
func (m *monitors) elsewhere(o object) bool {
	m.mu.RLock()
	monitor := m.running[o.resource]
	m.mu.RUnlock()
	return monitor != nil && o.namespace != "" && slices.ContainsFunc(monitor.Objects.List(), func(seen any) bool {
		meta := seen.(metav1.Object)
		return meta.GetUID() == o.uid && meta.GetNamespace() != o.namespace
	})
}

// cached is an object as it was seen last; nil if it was not seen, or another
// of that name was.
func (m *monitors) cached(o object) metav1.Object {
	m.mu.RLock()
	monitor := m.running[o.resource]
	m.mu.RUnlock()
	if monitor == nil {
		return nil
	}
	key := cache.ObjectName{Namespace: o.namespace, Name: o.name}
	found, exists, err := monitor.Objects.GetByKey(key.String())
	if err != nil || !exists {
		return nil
	}
	if meta := found.(metav1.Object); meta.GetUID() == o.uid {
		return meta
	}
	return nil
}
