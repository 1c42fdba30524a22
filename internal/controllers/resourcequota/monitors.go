package resourcequota

import (
	"context"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/kinds"
	"github.com/coracle-io/coracle/internal/quota"
)

// monitors watch the resources that quotas limit, and those on which their usage depends.
type monitors struct {
	env     *controller.Env
	objects metadata.Interface
	changed func(gr schema.GroupResource, old, new any)

	starting sync.Mutex // held by start: one of its callers discovers at a time

	mu      sync.Mutex // guards running; never held during a request
	running map[schema.GroupResource]*kinds.Monitor
}

// syncTimeout is how long add waits for new monitors. A resource whose list fails, such as
// one with a broken conversion webhook, must not keep quotas for others waiting.
const syncTimeout = 2 * time.Second

// add starts monitors for resources that have none, and waits until they have
// synced, at most syncTimeout. It returns the resources that cannot be counted: they are
// not served, or their monitors have not synced.
func (w *monitors) add(ctx context.Context, resources map[schema.GroupResource]bool) (missing []schema.GroupResource, err error) {
	started, err := w.start(ctx, resources)
	if err != nil {
		return nil, err
	}
	if started {
		waiting, cancel := context.WithTimeout(ctx, syncTimeout)
		defer cancel()
		cache.WaitFor(waiting, "", w.syncing(resources)...)
	}
	for gr := range resources {
		if !w.counts(gr) {
			missing = append(missing, gr)
		}
	}
	return missing, ctx.Err()
}

// syncing returns checkers for the monitors of resources.
func (w *monitors) syncing(resources map[schema.GroupResource]bool) (synced []cache.DoneChecker) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for gr := range resources {
		if monitor := w.running[gr]; monitor != nil {
			synced = append(synced, monitor.Synced())
		}
	}
	return synced
}

// counts reports whether the objects of a resource are watched and known.
func (w *monitors) counts(gr schema.GroupResource) bool { return w.known(gr) != nil }

// known returns the objects of a resource, or nil if they are not watched or not known.
func (w *monitors) known(gr schema.GroupResource) cache.Indexer {
	w.mu.Lock()
	defer w.mu.Unlock()
	if monitor := w.running[gr]; monitor != nil && cache.IsDone(monitor.Synced()) {
		return monitor.Objects
	}
	return nil
}

// watches reports whether the objects of a resource are watched, known or not.
func (w *monitors) watches(gr schema.GroupResource) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.running[gr] != nil
}

// lookup finds watched objects, and has the feature gates.
func (w *monitors) lookup() quota.Lookup {
	return quota.Lookup{
		Features: w.env.Features,
		Class: func(name string) (*resourceapi.DeviceClass, bool) {
			return find[*resourceapi.DeviceClass](w.known(quota.DeviceClasses), cache.NewObjectName("", name))
		},
		Pod: func(namespace, name string) (*v1.Pod, bool) {
			return find[*v1.Pod](w.known(quota.Pods), cache.NewObjectName(namespace, name))
		},
	}
}

// find returns an object of an indexer, which may be nil.
func find[T any](objects cache.Indexer, name cache.ObjectName) (found T, ok bool) {
	if objects == nil {
		return found, false
	}
	o, exists, err := objects.GetByKey(name.String())
	if err != nil || !exists {
		return found, false
	}
	found, ok = o.(T)
	return found, ok
}

// start starts monitors for resources that have none and are served. started is true if
// there is any. What is watched already can be counted meanwhile.
func (w *monitors) start(ctx context.Context, resources map[schema.GroupResource]bool) (started bool, err error) {
	if len(w.unwatched(resources)) == 0 {
		return false, nil
	}
	w.starting.Lock()
	defer w.starting.Unlock()
	unwatched := w.unwatched(resources)
	if len(unwatched) == 0 {
		return false, nil
	}
	served, err := kinds.Served(w.env.Client.Kubernetes.Discovery())
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return false, fmt.Errorf("discovering resources: %w", err)
	}
	for _, kind := range served {
		gr := kind.Resource.GroupResource()
		if !unwatched[gr] || !kind.Namespaced && gr != quota.DeviceClasses || !kind.SupportsAll("list", "watch") {
			continue
		}
		monitor, err := kinds.Watch(ctx, w.env.Client.Informers, w.objects, kind.Resource, w.handler(gr))
		if err != nil {
			return started, fmt.Errorf("watching %s: %w", gr, err)
		}
		delete(unwatched, gr)
		w.mu.Lock()
		w.running[gr] = monitor
		w.mu.Unlock()
		started = true
	}
	return started, nil
}

// unwatched returns those of the resources that have no monitor.
func (w *monitors) unwatched(resources map[schema.GroupResource]bool) map[schema.GroupResource]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	unwatched := map[schema.GroupResource]bool{}
	for gr := range resources {
		if w.running[gr] == nil {
			unwatched[gr] = true
		}
	}
	return unwatched
}

func (w *monitors) handler(gr schema.GroupResource) cache.ResourceEventHandler {
	return client.Handler(
		func(o any) { w.changed(gr, nil, o) },
		func(old, new any) { w.changed(gr, old, new) },
		func(o any) { w.changed(gr, o, nil) },
	)
}

// objectsIn returns the objects of a resource in a namespace, or false if they, or those on
// which their usage depends, are not known.
func (w *monitors) objectsIn(gr schema.GroupResource, namespace string) ([]any, bool, error) {
	known := w.known(gr)
	if known == nil || gr == quota.ResourceClaims && (!w.counts(quota.DeviceClasses) || !w.counts(quota.Pods)) {
		return nil, false, nil
	}
	objects, err := known.ByIndex(cache.NamespaceIndex, namespace)
	return objects, true, err
}

// closeUnneeded closes the monitors of resources that are not needed or no longer
// served.
func (w *monitors) closeUnneeded(needed map[schema.GroupResource]bool) {
	if served, err := kinds.Served(w.env.Client.Kubernetes.Discovery()); err == nil {
		neededAndServed := map[schema.GroupResource]bool{}
		for _, kind := range served {
			gr := kind.Resource.GroupResource()
			neededAndServed[gr] = needed[gr]
		}
		needed = neededAndServed
	}
	w.closeExcept(needed)
}

// closeExcept closes the monitors of all resources that are not needed.
func (w *monitors) closeExcept(needed map[schema.GroupResource]bool) {
	w.mu.Lock()
	var ended []*kinds.Monitor
	for gr, monitor := range w.running {
		if !needed[gr] {
			delete(w.running, gr)
			ended = append(ended, monitor)
		}
	}
	w.mu.Unlock()
	for _, monitor := range ended {
		monitor.Close()
	}
}
