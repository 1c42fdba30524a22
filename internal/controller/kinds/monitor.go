package kinds

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Monitor watches all objects of one resource.
type Monitor struct {
	// Objects holds the current objects, indexed by namespace
	// (cache.NamespaceIndex). They are shared and must not be changed.
	Objects cache.Indexer
	synced  cache.DoneChecker
	stop    func()
}

// Watch watches a resource until ctx is done or the monitor is closed. Built-in
// resources are watched through the shared informers, as typed objects. Other
// resources get their own informer of metav1.PartialObjectMetadata. A panic in
// the handler fails the supervised component of ctx.
func Watch(ctx context.Context, shared informers.SharedInformerFactory, objects metadata.Interface, resource schema.GroupVersionResource, changed cache.ResourceEventHandler) (*Monitor, error) {
	var informer cache.SharedIndexInformer
	watch := client.Subscribe
	if generic, err := shared.ForResource(resource); err == nil {
		informer = generic.Informer()
	} else {
		index := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
		informer = metadatainformer.NewFilteredMetadataInformer(objects, resource, metav1.NamespaceAll, 0, index, nil).Informer()
		watch = client.Follow
	}
	m := &Monitor{Objects: informer.GetIndexer()}
	watching, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	ready := make(chan error, 1)
	m.stop = func() { cancel(); <-ended }
	supervise.Go(ctx, func() {
		defer close(ended)
		err := supervise.Run(watching, func(ctx context.Context) (err error) {
			m.synced, err = watch(ctx, informer, changed)
			ready <- err
			if err == nil {
				<-ctx.Done()
			}
			return err
		})
		if panicked := (*supervise.Panic)(nil); errors.As(err, &panicked) {
			supervise.Fail(ctx, err)
		}
	})
	if err := <-ready; err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// Synced returns a checker that is done once the handler has processed the
// initial list.
func (m *Monitor) Synced() cache.DoneChecker { return m.synced }

// Close stops the monitor and waits for its handler to return.
func (m *Monitor) Close() { m.stop() }
