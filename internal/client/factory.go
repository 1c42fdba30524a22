package client

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
)

// factory is client-go's informer factory with other informers in it: they
// read the watch cache. client-go's own keeps, starts and stops them; the
// accessors of the groups below only lead back to InformerFor here.
type factory struct {
	informers.SharedInformerFactory
	views *views
}

func newFactory(fallback kubernetes.Interface, v *views) *factory {
	return &factory{SharedInformerFactory: informers.NewSharedInformerFactory(fallback, 0), views: v}
}

// InformerFor returns the one informer of obj's type. It is made on first use;
// the selection that a caller's own newFunc would make is left out, because
// everyone shares it.
func (f *factory) InformerFor(obj runtime.Object, newFunc internalinterfaces.NewInformerFunc) cache.SharedIndexInformer {
	return f.SharedInformerFactory.InformerFor(obj, func(fallback kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		if v, ok := f.views.ofType(obj); ok {
			return newInformer(v)
		}
		return newFunc(fallback, resync)
	})
}

// ForResource implements informers.SharedInformerFactory.
func (f *factory) ForResource(gvr schema.GroupVersionResource) (informers.GenericInformer, error) {
	v, ok := f.views.ofResource(gvr)
	if !ok {
		return f.SharedInformerFactory.ForResource(gvr)
	}
	if _, builtIn := f.views.ofType(v.version.New()); !builtIn {
		return f.SharedInformerFactory.ForResource(gvr)
	}
	return genericInformer{f.InformerFor(v.version.New(), nil), gvr.GroupResource()}, nil
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

func (f *factory) Admissionregistration() admissionregistration.Interface {
	return admissionregistration.New(f, "", nil)
}
func (f *factory) Internal() apiserverinternal.Interface { return apiserverinternal.New(f, "", nil) }
func (f *factory) Apps() apps.Interface                  { return apps.New(f, "", nil) }
func (f *factory) Autoscaling() autoscaling.Interface    { return autoscaling.New(f, "", nil) }
func (f *factory) Batch() batch.Interface                { return batch.New(f, "", nil) }
func (f *factory) Certificates() certificates.Interface  { return certificates.New(f, "", nil) }
func (f *factory) Coordination() coordination.Interface  { return coordination.New(f, "", nil) }
func (f *factory) Core() core.Interface                  { return core.New(f, "", nil) }
func (f *factory) Discovery() discovery.Interface        { return discovery.New(f, "", nil) }
func (f *factory) Events() events.Interface              { return events.New(f, "", nil) }
func (f *factory) Extensions() extensions.Interface      { return extensions.New(f, "", nil) }
func (f *factory) Flowcontrol() flowcontrol.Interface    { return flowcontrol.New(f, "", nil) }
func (f *factory) Lifecycle() lifecycle.Interface        { return lifecycle.New(f, "", nil) }
func (f *factory) Networking() networking.Interface      { return networking.New(f, "", nil) }
func (f *factory) Node() node.Interface                  { return node.New(f, "", nil) }
func (f *factory) Policy() policy.Interface              { return policy.New(f, "", nil) }
func (f *factory) Rbac() rbac.Interface                  { return rbac.New(f, "", nil) }
func (f *factory) Resource() resource.Interface          { return resource.New(f, "", nil) }
func (f *factory) Scheduling() scheduling.Interface      { return scheduling.New(f, "", nil) }
func (f *factory) Storage() storage.Interface            { return storage.New(f, "", nil) }
func (f *factory) Storagemigration() storagemigration.Interface {
	return storagemigration.New(f, "", nil)
}
