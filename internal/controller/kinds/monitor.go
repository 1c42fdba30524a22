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

// Monitor is the watch of all objects of one resource, whatever it is.
type Monitor struct {
	// Objects are those there are, indexed by namespace
	// (cache.NamespaceIndex). They are shared and must never be changed.
	Objects cache.Indexer
	synced  cache.DoneChecker
	end     func()
}

// Watch watches a resource until ctx ends or Close: a built-in one through the
// informers that the whole process shares, as typed objects, any other by an
// informer of its own, as metav1.PartialObjectMetadata. A panic of the handler
// ends the component that ctx belongs to.
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
	m.end = func() { cancel(); <-ended }
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

// Synced is done when every object that was there at first has been handled.
func (m *Monitor) Synced() cache.DoneChecker { return m.synced }

// Close ends the monitor; no event of it is being handled afterwards.
func (m *Monitor) Close() { m.end() }
