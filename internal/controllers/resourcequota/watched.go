package resourcequota

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/kinds"
)

// watched are the resources that some quota limits. No others are watched.
type watched struct {
	env     *controller.Env
	objects metadata.Interface
	changed func(gr schema.GroupResource, old, new any)

	mu      sync.Mutex // guards running
	running map[schema.GroupResource]*kinds.Monitor
}

// add watches the given resources too and waits until their objects are
// known. It returns those that are not served.
func (w *watched) add(ctx context.Context, resources map[schema.GroupResource]bool) (missing []schema.GroupResource, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fresh := map[schema.GroupResource]bool{}
	for gr := range resources {
		if w.running[gr] == nil {
			fresh[gr] = true
		}
	}
	if len(fresh) == 0 {
		return nil, nil
	}
	served, err := kinds.Served(w.env.Client.Kubernetes.Discovery())
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return nil, fmt.Errorf("finding out which resources are served: %w", err)
	}
	var synced []cache.DoneChecker
	for _, kind := range served {
		gr := kind.Resource.GroupResource()
		if !fresh[gr] || !kind.Namespaced || !kind.Can("list", "watch") {
			continue
		}
		monitor, err := kinds.Watch(ctx, w.env.Client.Informers, w.objects, kind.Resource, w.handler(gr))
		if err != nil {
			return nil, fmt.Errorf("watching %s: %w", gr, err)
		}
		delete(fresh, gr)
		w.running[gr] = monitor
		synced = append(synced, monitor.Synced())
	}
	cache.WaitFor(ctx, "", synced...)
	for gr := range fresh {
		missing = append(missing, gr)
	}
	return missing, ctx.Err()
}

func (w *watched) handler(gr schema.GroupResource) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { w.changed(gr, nil, o) },
		UpdateFunc: func(old, new any) { w.changed(gr, old, new) },
		DeleteFunc: func(o any) {
			if tombstone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = tombstone.Obj
			}
			w.changed(gr, o, nil)
		},
	}
}

// in returns the objects of a resource in a namespace; false if the resource
// is not watched.
func (w *watched) in(gr schema.GroupResource, namespace string) ([]any, bool, error) {
	w.mu.Lock()
	monitor := w.running[gr]
	w.mu.Unlock()
	if monitor == nil {
		return nil, false, nil
	}
	objects, err := monitor.Objects.ByIndex(cache.NamespaceIndex, namespace)
	return objects, true, err
}

// drop ends the watches of resources that are known not to be served any
// longer, or that nobody needs.
func (w *watched) drop(needed map[schema.GroupResource]bool) {
	if served, err := kinds.Served(w.env.Client.Kubernetes.Discovery()); err == nil {
		both := map[schema.GroupResource]bool{}
		for _, kind := range served {
			gr := kind.Resource.GroupResource()
			both[gr] = needed[gr]
		}
		needed = both
	}
	w.keep(needed)
}

// keep ends the watches of all but the given resources.
func (w *watched) keep(stay map[schema.GroupResource]bool) {
	w.mu.Lock()
	var ended []*kinds.Monitor
	for gr, monitor := range w.running {
		if !stay[gr] {
			delete(w.running, gr)
			ended = append(ended, monitor)
		}
	}
	w.mu.Unlock()
	for _, monitor := range ended {
		monitor.Close()
	}
}
