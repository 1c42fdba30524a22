package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/admissionregistration"
	"k8s.io/client-go/informers/apiserverinternal"
	"k8s.io/client-go/informers/apps"
	"k8s.io/client-go/informers/autoscaling"
	"k8s.io/client-go/informers/batch"
	"k8s.io/client-go/informers/certificates"
	"k8s.io/client-go/informers/coordination"
	"k8s.io/client-go/informers/core"
	"k8s.io/client-go/informers/discovery"
	"k8s.io/client-go/informers/events"
	"k8s.io/client-go/informers/extensions"
	"k8s.io/client-go/informers/flowcontrol"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/informers/lifecycle"
	"k8s.io/client-go/informers/networking"
	"k8s.io/client-go/informers/node"
	"k8s.io/client-go/informers/policy"
	"k8s.io/client-go/informers/rbac"
	"k8s.io/client-go/informers/resource"
	"k8s.io/client-go/informers/scheduling"
	"k8s.io/client-go/informers/storage"
	"k8s.io/client-go/informers/storagemigration"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/supervise"
)

// Informers are the shared informers of a provider, and own their life: each
// starts when it is first asked for and lasts until Run ends. Those who use
// them only add handlers and remove them again. Start and Shutdown, which
// belong to the users of client-go's factory, do nothing.
//
// Where there is a watch cache in the process, the informers read it instead
// of the API. The accessors of the groups below only lead back to InformerFor.
type Informers struct {
	informers.SharedInformerFactory // makes informers and keeps one of each type
	views                           *views

	mu      sync.Mutex                                 // guards the following
	known   map[reflect.Type]cache.SharedIndexInformer // by type: one informer may come in several wrappers
	life    context.Context                            // Run's; nil before
	ended   bool
	running sync.WaitGroup
}

// NewInformers makes the informers of a client. They start once Run is called.
func NewInformers(kube kubernetes.Interface) *Informers { return newInformers(kube, nil) }

func newInformers(fallback kubernetes.Interface, v *views) *Informers {
	return &Informers{
		SharedInformerFactory: informers.NewSharedInformerFactory(fallback, 0), views: v,
		known: map[reflect.Type]cache.SharedIndexInformer{},
	}
}

// Run keeps the informers running until ctx ends, and returns once no handler
// is called any more. It is called once.
func (f *Informers) Run(ctx context.Context) error {
	f.mu.Lock()
	if f.life != nil {
		f.mu.Unlock()
		return errors.New("informers cannot run twice")
	}
	f.life = ctx
	for _, informer := range f.known {
		f.begin(informer)
	}
	f.mu.Unlock()
	<-ctx.Done()
	f.mu.Lock()
	f.ended = true
	f.mu.Unlock()
	f.running.Wait()
	return nil
}

// begin runs an informer. The caller holds the mutex.
func (f *Informers) begin(informer cache.SharedIndexInformer) {
	ctx := f.life
	f.running.Go(func() {
		supervise.Note(ctx, supervise.Call(func() error {
			informer.RunWithContext(ctx)
			return nil
		}))
	})
}

// InformerFor returns the one informer of obj's type, which runs from now on;
// the selection that a caller's own newFunc would make is left out, because
// everyone shares it.
func (f *Informers) InformerFor(obj runtime.Object, newFunc internalinterfaces.NewInformerFunc) cache.SharedIndexInformer {
	informer := f.SharedInformerFactory.InformerFor(obj, func(fallback kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		if v, ok := f.views.ofType(obj); ok {
			return newInformer(v)
		}
		return newFunc(fallback, resync)
	})
	f.adopt(informer, obj)
	return informer
}

// adopt runs an informer of obj's type, unless it does already.
func (f *Informers) adopt(informer cache.SharedIndexInformer, obj runtime.Object) {
	f.mu.Lock()
	defer f.mu.Unlock()
	of := reflect.TypeOf(obj)
	if f.known[of] != nil {
		return
	}
	f.known[of] = informer
	if f.life != nil && !f.ended {
		f.begin(informer)
	}
}

// Start implements informers.SharedInformerFactory: the informers run already.
func (f *Informers) Start(<-chan struct{}) {}

// StartWithContext implements informers.SharedInformerFactory likewise.
func (f *Informers) StartWithContext(context.Context) {}

// Shutdown implements informers.SharedInformerFactory: they end with Run.
func (f *Informers) Shutdown() {}

// WaitForCacheSync implements informers.SharedInformerFactory: it waits for
// all informers that were ever asked for.
func (f *Informers) WaitForCacheSync(stop <-chan struct{}) map[reflect.Type]bool {
	return f.WaitForCacheSyncWithContext(wait.ContextForChannel(stop)).Synced
}

// WaitForCacheSyncWithContext implements informers.SharedInformerFactory likewise.
func (f *Informers) WaitForCacheSyncWithContext(ctx context.Context) cache.SyncResult {
	f.mu.Lock()
	known := maps.Clone(f.known)
	f.mu.Unlock()
	var synced []cache.DoneChecker
	for _, informer := range known {
		synced = append(synced, informer.HasSyncedChecker())
	}
	result := cache.SyncResult{Synced: map[reflect.Type]bool{}}
	if !cache.WaitFor(ctx, "", synced...) {
		result.Err = context.Cause(ctx)
	}
	for of, informer := range known {
		result.Synced[of] = informer.HasSynced()
	}
	return result
}

// ForResource implements informers.SharedInformerFactory.
func (f *Informers) ForResource(gvr schema.GroupVersionResource) (informers.GenericInformer, error) {
	if v, ok := f.views.ofResource(gvr); ok {
		if _, builtIn := f.views.ofType(v.version.New()); builtIn {
			return genericInformer{f.InformerFor(v.version.New(), nil), gvr.GroupResource()}, nil
		}
	}
	generic, err := f.SharedInformerFactory.ForResource(gvr)
	if err != nil {
		return nil, err
	}
	obj, ok := builtIn(gvr)
	if !ok {
		return nil, fmt.Errorf("no type for %s", gvr)
	}
	f.adopt(generic.Informer(), obj)
	return generic, nil
}

// genericInformer implements informers.GenericInformer.
type genericInformer struct {
	informer cache.SharedIndexInformer
	resource schema.GroupResource
}

func (g genericInformer) Informer() cache.SharedIndexInformer { return g.informer }
func (g genericInformer) Lister() cache.GenericLister {
	return cache.NewGenericLister(g.informer.GetIndexer(), g.resource)
}

func (f *Informers) Admissionregistration() admissionregistration.Interface {
	return admissionregistration.New(f, "", nil)
}
func (f *Informers) Internal() apiserverinternal.Interface { return apiserverinternal.New(f, "", nil) }
func (f *Informers) Apps() apps.Interface                  { return apps.New(f, "", nil) }
func (f *Informers) Autoscaling() autoscaling.Interface    { return autoscaling.New(f, "", nil) }
func (f *Informers) Batch() batch.Interface                { return batch.New(f, "", nil) }
func (f *Informers) Certificates() certificates.Interface  { return certificates.New(f, "", nil) }
func (f *Informers) Coordination() coordination.Interface  { return coordination.New(f, "", nil) }
func (f *Informers) Core() core.Interface                  { return core.New(f, "", nil) }
func (f *Informers) Discovery() discovery.Interface        { return discovery.New(f, "", nil) }
func (f *Informers) Events() events.Interface              { return events.New(f, "", nil) }
func (f *Informers) Extensions() extensions.Interface      { return extensions.New(f, "", nil) }
func (f *Informers) Flowcontrol() flowcontrol.Interface    { return flowcontrol.New(f, "", nil) }
func (f *Informers) Lifecycle() lifecycle.Interface        { return lifecycle.New(f, "", nil) }
func (f *Informers) Networking() networking.Interface      { return networking.New(f, "", nil) }
func (f *Informers) Node() node.Interface                  { return node.New(f, "", nil) }
func (f *Informers) Policy() policy.Interface              { return policy.New(f, "", nil) }
func (f *Informers) Rbac() rbac.Interface                  { return rbac.New(f, "", nil) }
func (f *Informers) Resource() resource.Interface          { return resource.New(f, "", nil) }
func (f *Informers) Scheduling() scheduling.Interface      { return scheduling.New(f, "", nil) }
func (f *Informers) Storage() storage.Interface            { return storage.New(f, "", nil) }
func (f *Informers) Storagemigration() storagemigration.Interface {
	return storagemigration.New(f, "", nil)
}
