package kinds

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
)

// Monitor is the watch of all objects of one resource, whatever it is.
type Monitor struct {
	// Objects are those there are, indexed by namespace
	// (cache.NamespaceIndex). They are shared and must never be changed.
	Objects      cache.Indexer
	informer     cache.SharedIndexInformer
	registration cache.ResourceEventHandlerRegistration
	// stop ends an informer of the monitor's own; nil for a shared one.
	stop func()
}

// Watch watches a resource: a built-in one through the informers that the
// whole process shares, as typed objects, any other by an informer of its own
// that lasts until ctx ends or Close, as metav1.PartialObjectMetadata. The
// caller starts the shared informers afterwards.
func Watch(ctx context.Context, shared informers.SharedInformerFactory, objects metadata.Interface, resource schema.GroupVersionResource, changed cache.ResourceEventHandler) (*Monitor, error) {
	m := &Monitor{}
	if generic, err := shared.ForResource(resource); err == nil {
		m.informer = generic.Informer()
	} else {
		index := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
		m.informer = metadatainformer.NewFilteredMetadataInformer(objects, resource, metav1.NamespaceAll, 0, index, nil).Informer()
		own, cancel := context.WithCancel(ctx)
		done := make(chan struct{})
		m.stop = func() { cancel(); <-done }
		go func() {
			defer close(done)
			m.informer.RunWithContext(own)
		}()
	}
	registration, err := m.informer.AddEventHandler(changed)
	if err != nil {
		if m.stop != nil {
			m.stop()
		}
		return nil, err
	}
	m.registration = registration
	m.Objects = m.informer.GetIndexer()
	return m, nil
}

// Synced is done when every object that was there at first has been handled.
func (m *Monitor) Synced() cache.DoneChecker { return m.registration.HasSyncedChecker() }

// Close ends the monitor; no event of it is being handled afterwards.
func (m *Monitor) Close() {
	_ = cache.ShutDownEventHandler(m.informer, m.registration)
	if m.stop != nil {
		m.stop()
	}
}
