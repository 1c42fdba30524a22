package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// Informers is the shared informer factory of a provider. An informer starts when
// it is first requested and stops when Run ends. Start and Shutdown do nothing.
//
// If the watch cache is in the same process, the informers read it instead of the
// API. Objects from the API have no managedFields. The accessors of the API groups
// below use InformerFor.
type Informers struct {
	informers.SharedInformerFactory // creates and stores one informer for each type
	views                           *views

	mu      sync.Mutex                                 // guards the following
	started map[reflect.Type]cache.SharedIndexInformer // by type, because an informer may have several wrappers
	ctx     context.Context                            // of Run; nil before
	ended   bool
	running sync.WaitGroup
}

// NewInformers returns the informers of a client. They start when Run is called.
func NewInformers(kube kubernetes.Interface) *Informers { return newInformers(kube, nil) }

func newInformers(fallback kubernetes.Interface, v *views) *Informers {
	return &Informers{
		SharedInformerFactory: informers.NewSharedInformerFactoryWithOptions(fallback, 0, informers.WithTransform(trim)), views: v,
		started: map[reflect.Type]cache.SharedIndexInformer{},
	}
}

// Run runs the informers until ctx is done, and returns when all handlers have
// returned. It must be called at most once.
func (f *Informers) Run(ctx context.Context) error {
	f.mu.Lock()
	if f.ctx != nil {
		f.mu.Unlock()
		return errors.New("informers cannot run twice")
	}
	f.ctx = ctx
	for _, informer := range f.started {
		f.run(informer)
	}
	f.mu.Unlock()
	<-ctx.Done()
	f.mu.Lock()
	f.ended = true
	f.mu.Unlock()
	f.running.Wait()
	return nil
}

// run runs an informer in a goroutine. Callers hold mu.
func (f *Informers) run(informer cache.SharedIndexInformer) {
	ctx := f.ctx
	f.running.Go(func() {
		supervise.RecordPanic(ctx, supervise.Call(func() error {
			informer.RunWithContext(ctx)
			return nil
		}))
	})
}

// InformerFor returns the shared informer of obj's type and starts it. If the watch
// cache has the type, newFunc is not called.
func (f *Informers) InformerFor(obj runtime.Object, newFunc internalinterfaces.NewInformerFunc) cache.SharedIndexInformer {
	informer := f.SharedInformerFactory.InformerFor(obj, func(fallback kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		if v, ok := f.views.ofType(obj); ok {
			return newInformer(v)
		}
		return newFunc(fallback, resync)
	})
	f.start(informer, obj)
	return informer
}

// start starts the informer of obj's type if it has not been started.
func (f *Informers) start(informer cache.SharedIndexInformer, obj runtime.Object) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := reflect.TypeOf(obj)
	if f.started[t] != nil {
		return
	}
	f.started[t] = informer
	if f.ctx != nil && !f.ended {
		f.run(informer)
	}
}

// Start implements informers.SharedInformerFactory. It does nothing.
func (f *Informers) Start(<-chan struct{}) {}

// StartWithContext implements informers.SharedInformerFactory. It does nothing.
func (f *Informers) StartWithContext(context.Context) {}

// Shutdown implements informers.SharedInformerFactory. It does nothing.
func (f *Informers) Shutdown() {}

// WaitForCacheSync implements informers.SharedInformerFactory. It waits for all
// informers that have been requested.
func (f *Informers) WaitForCacheSync(stop <-chan struct{}) map[reflect.Type]bool {
	return f.WaitForCacheSyncWithContext(wait.ContextForChannel(stop)).Synced
}

// WaitForCacheSyncWithContext implements informers.SharedInformerFactory. It waits
// for all informers that have been requested.
func (f *Informers) WaitForCacheSyncWithContext(ctx context.Context) cache.SyncResult {
	f.mu.Lock()
	started := maps.Clone(f.started)
	f.mu.Unlock()
	var synced []cache.DoneChecker
	for _, informer := range started {
		synced = append(synced, informer.HasSyncedChecker())
	}
	result := cache.SyncResult{Synced: map[reflect.Type]bool{}}
	if !cache.WaitFor(ctx, "", synced...) {
		result.Err = context.Cause(ctx)
	}
	for t, informer := range started {
		result.Synced[t] = informer.HasSynced()
	}
	return result
}

// Fill starts Run in the component that ctx belongs to, and returns once all informers
// that have been requested have listed their objects, or after patience. refused has
// the error for each resource that the user may not list, or that is not served.
func (f *Informers) Fill(ctx context.Context, patience time.Duration) (refused []string, err error) {
	f.mu.Lock()
	started := maps.Clone(f.started)
	f.mu.Unlock()
	denials := map[reflect.Type]chan error{}
	for t, informer := range started {
		denied := make(chan error, 1)
		denials[t] = denied
		if err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
			if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
				select {
				case denied <- err:
				default:
				}
			}
		}); err != nil {
			return nil, err
		}
	}
	supervise.Go(ctx, func() {
		if err := f.Run(ctx); err != nil {
			supervise.Fail(ctx, err)
		}
	})
	within, cancel := context.WithTimeoutCause(ctx, patience, errors.New("the API server did not answer in time"))
	defer cancel()
	for t, informer := range started {
		select {
		case <-informer.HasSyncedChecker().Done():
		case err := <-denials[t]:
			refused = append(refused, err.Error())
		case <-within.Done():
			return nil, context.Cause(within)
		}
	}
	slices.Sort(refused)
	return refused, nil
}

// Add puts an object into the informer of its type, unless nobody requested that one or it
// has an object of that name. It is for programs that examine a hypothetical cluster. The
// informers must be filled: an informer that lists again forgets the object.
func (f *Informers) Add(obj runtime.Object) error {
	f.mu.Lock()
	informer := f.started[reflect.TypeOf(obj)]
	f.mu.Unlock()
	if informer == nil {
		return nil
	}
	if _, exists, err := informer.GetIndexer().Get(obj); exists || err != nil {
		return err
	}
	return informer.GetIndexer().Add(obj)
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
	f.start(generic.Informer(), obj)
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
