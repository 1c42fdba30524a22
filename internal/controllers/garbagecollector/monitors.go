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

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/controller/kinds"
)

// ignored reports whether the objects of a resource are not collected. Events change
// often and neither have owners nor dependents.
func ignored(gr schema.GroupResource) bool {
	return gr.Resource == "events" && (gr.Group == "" || gr.Group == "events.k8s.io")
}

// monitors watch all served resources; see kinds.Watch.
type monitors struct {
	shared   informers.SharedInformerFactory
	metadata metadata.Interface
	changed  func(resource schema.GroupVersionResource, meta metav1.Object, deleted bool)

	mu      sync.RWMutex // guards the following
	running map[schema.GroupVersionResource]*kinds.Monitor
	byKind  map[schema.GroupVersionKind]kinds.Kind
	byGroup map[schema.GroupKind]kinds.Kind
	// known holds all kinds that are or were served.
	known map[schema.GroupKind]kinds.Kind
}

// syncTimeout is the maximum time to wait for the first list of resources.
const syncTimeout = 30 * time.Second

// update starts monitors of the served resources and closes all others. It returns the
// resources whose monitors were closed. It blocks until the new monitors have synced,
// for at most syncTimeout.
func (m *monitors) update(ctx context.Context, served []kinds.Kind) (ended []schema.GroupVersionResource, err error) {
	byKind, byGroup := map[schema.GroupVersionKind]kinds.Kind{}, map[schema.GroupKind]kinds.Kind{}
	wanted := map[schema.GroupVersionResource]bool{}
	for _, kind := range served {
		byKind[kind.GroupVersionKind] = kind
		byGroup[kind.GroupKind()] = kind
		if kind.SupportsAll("delete", "list", "watch") && !ignored(kind.Resource.GroupResource()) {
			wanted[kind.Resource] = true
		}
	}
	m.mu.Lock()
	m.byKind, m.byGroup = byKind, byGroup
	maps.Copy(m.known, byGroup)
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
	// An unavailable aggregated server must not block the collector.
	syncing, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	cache.WaitFor(syncing, "", fresh...)
	return ended, err
}

func (m *monitors) watch(ctx context.Context, resource schema.GroupVersionResource) (*kinds.Monitor, error) {
	return kinds.Watch(ctx, m.shared, m.metadata, resource, m.handler(resource))
}

// handler returns the event handler of a resource. An object that has replaced another one of
// the same name is a deletion, too: the dependents of the other are not those of the object.
func (m *monitors) handler(resource schema.GroupVersionResource) cache.ResourceEventHandler {
	return client.Handler(
		func(o metav1.Object) { m.changed(resource, o, false) },
		func(old, o metav1.Object) {
			if client.Replaced(old, o) {
				m.changed(resource, old, true)
			}
			m.changed(resource, o, false)
		},
		func(o metav1.Object) { m.changed(resource, o, true) },
	)
}

// closeAll closes all monitors.
func (m *monitors) closeAll() {
	m.mu.Lock()
	running := m.running
	m.running = map[schema.GroupVersionResource]*kinds.Monitor{}
	m.mu.Unlock()
	for _, monitor := range running {
		monitor.Close()
	}
}

// list returns the kinds that were served at the last update.
func (m *monitors) list() []kinds.Kind {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return slices.Collect(maps.Values(m.byKind))
}

// resolve returns the kind of an owner reference, in any version. served is false if
// the kind was served before but is not served now.
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
	kind, ok = m.known[group]
	return kind, false, ok
}

// kindOf returns the kind of a watched resource.
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

// inOtherNamespace reports whether an object with the UID exists in another namespace.
// It visits all objects of the resource.
func (m *monitors) inOtherNamespace(o object) bool {
	m.mu.RLock()
	monitor := m.running[o.resource]
	m.mu.RUnlock()
	return monitor != nil && o.namespace != "" && slices.ContainsFunc(monitor.Objects.List(), func(seen any) bool {
		meta := seen.(metav1.Object)
		return meta.GetUID() == o.uid && meta.GetNamespace() != o.namespace
	})
}

// cached returns the cached metadata of an object, or nil if the cache has no object
// with its name and UID.
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
