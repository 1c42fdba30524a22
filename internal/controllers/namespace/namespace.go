// Package namespace is the namespace controller. It deletes the content of namespaces
// that are being deleted.
//
//	kubectl delete ns ──▶ deletionTimestamp, phase Terminating
//	      delete pods ──▶ delete everything else ──▶ remove "kubernetes" from spec.finalizers
package namespace

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/kinds"
)

// Descriptor describes the controller.
func Descriptor() controller.Descriptor {
	workers := 10
	return controller.Descriptor{
		Name:           "namespace-controller",
		Aliases:        []string{"namespace"},
		ServiceAccount: "namespace-controller",
		EventSource:    "namespace-controller",
		AddFlags:       controller.WorkersFlag(&workers, "concurrent-namespace-syncs", "namespace objects"),
		New:            func(env *controller.Env) (controller.Controller, error) { return newController(env, workers) },
	}
}

type namespaces struct {
	env        *controller.Env
	kube       kubernetes.Interface
	metadata   metadata.Interface
	namespaces corelisters.NamespaceLister
	queue      *controller.Queue[string]
	workers    int

	// mu guards nonempty, which holds the resources that had objects at the last sync of
	// each terminating namespace.
	mu       sync.Mutex
	nonempty map[string][]kinds.Kind
}

func newController(env *controller.Env, workers int) (controller.Controller, error) {
	objects, err := env.Metadata()
	if err != nil {
		return nil, err
	}
	return newNamespaces(env, objects, workers), nil
}

func newNamespaces(env *controller.Env, objects metadata.Interface, workers int) *namespaces {
	c := &namespaces{
		env:        env,
		workers:    workers,
		kube:       env.Client.Kubernetes,
		metadata:   objects,
		namespaces: env.Client.Informers.Core().V1().Namespaces().Lister(),
		nonempty:   map[string][]kinds.Kind{},
	}
	c.queue = controller.NewQueueWithMaxDelay(env.Queues, "namespace", time.Minute, controller.Existing[string](env.Client.Informers.Core().V1().Namespaces().Informer(), c.sync))
	return c
}

// Run implements controller.Controller.
func (c *namespaces) Run(ctx context.Context) error {
	core := c.env.Client.Informers.Core().V1()
	pods := map[string]int{} // in each namespace; of the handler of pods alone
	return controller.Serve(ctx, []controller.Source{
		controller.On(core.Namespaces().Informer(), func(old, new *v1.Namespace) {
			switch {
			case new == nil:
				c.setNonempty(old.Name, nil)
			case new.DeletionTimestamp != nil && (old == nil || old.DeletionTimestamp == nil || !slices.Equal(old.Spec.Finalizers, new.Spec.Finalizers)):
				c.queue.Add(new.Name) // other changes are of what a sync has written
			}
		}),
		// Pods terminate slowly. Sync again when the last one is gone, and not for each:
		// a sync asks for all of them.
		controller.On(core.Pods().Informer(), func(old, new *v1.Pod) {
			switch {
			case old == nil:
				pods[new.Namespace]++
				return
			case new != nil:
				return
			}
			if pods[old.Namespace]--; pods[old.Namespace] > 0 {
				return
			}
			delete(pods, old.Namespace)
			if ns, err := c.namespaces.Get(old.Namespace); err == nil && ns.DeletionTimestamp != nil {
				c.queue.Add(ns.Name)
			}
		}),
	}, c.queue.Workers(c.workers))
}

func (c *namespaces) setNonempty(namespace string, resources []kinds.Kind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(resources) == 0 {
		delete(c.nonempty, namespace)
	} else {
		c.nonempty[namespace] = resources
	}
}

func (c *namespaces) getNonempty(namespace string) []kinds.Kind {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nonempty[namespace]
}

// sync deletes the content of a namespace as far as possible now. It returns an error
// while content remains, so that the queue retries with growing delays.
func (c *namespaces) sync(ctx context.Context, cached *v1.Namespace) error {
	if cached.DeletionTimestamp == nil || !slices.Contains(cached.Spec.Finalizers, v1.FinalizerKubernetes) {
		return nil
	}
	// Deleting cannot be undone, so do not rely on the cache: another namespace may have this
	// name now.
	key := cached.Name
	ns, err := c.kube.CoreV1().Namespaces().Get(ctx, key, metav1.GetOptions{})
	if err != nil {
		return controller.IgnoreNotFound(err)
	}
	if ns.UID != cached.UID || ns.DeletionTimestamp == nil || !slices.Contains(ns.Spec.Finalizers, v1.FinalizerKubernetes) {
		return nil
	}
	if ns.Status.Phase != v1.NamespaceTerminating {
		ns.Status.Phase = v1.NamespaceTerminating
		if ns, err = c.kube.CoreV1().Namespaces().UpdateStatus(ctx, ns, metav1.UpdateOptions{}); err != nil {
			return ignoreNotServed(err)
		}
	}
	// After everything was deleted once, only process resources that still had objects.
	// When these are empty, process everything once more.
	if resources := c.getNonempty(key); len(resources) > 0 {
		left := c.deleteAll(ctx, key, resources, true)
		if !left.empty() {
			return c.reportRemaining(ctx, ns, resources, nil, left)
		}
	}
	resources, discoveryErr := c.resources()
	left := c.deleteAllInOrder(ctx, key, resources)
	if discoveryErr != nil || !left.empty() {
		return c.reportRemaining(ctx, ns, resources, discoveryErr, left)
	}
	c.setNonempty(key, nil)
	// Do not write conditions if the namespace will be gone at once.
	visible := len(cached.Status.Conditions) > 0 || len(ns.Spec.Finalizers) > 1
	if visible && setConditions(&ns.Status, conditions(nil, left), time.Now()) {
		if ns, err = c.kube.CoreV1().Namespaces().UpdateStatus(ctx, ns, metav1.UpdateOptions{}); err != nil {
			return ignoreNotServed(err)
		}
	}
	ns.Spec.Finalizers = slices.DeleteFunc(ns.Spec.Finalizers, func(f v1.FinalizerName) bool { return f == v1.FinalizerKubernetes })
	if _, err := c.kube.CoreV1().Namespaces().Finalize(ctx, ns, metav1.UpdateOptions{}); err != nil {
		return ignoreNotServed(err)
	}
	klog.FromContext(ctx).V(2).Info("Finalized namespace", "namespace", key)
	return nil
}

// resources returns the namespaced resources whose objects can be deleted.
func (c *namespaces) resources() ([]kinds.Kind, error) {
	served, err := kinds.Served(c.kube.Discovery())
	return slices.DeleteFunc(served, func(k kinds.Kind) bool {
		return !k.Namespaced || !k.SupportsAll("delete") && !k.SupportsAll("deletecollection")
	}), err
}

// deleteAllInOrder deletes pods first, and everything else when no pods remain, so that
// NetworkPolicies and Secrets outlive the pods that rely on them (KEP-5080).
func (c *namespaces) deleteAllInOrder(ctx context.Context, namespace string, resources []kinds.Kind) *remaining {
	isPod := func(k kinds.Kind) bool { return k.Resource.GroupResource() == v1.Resource("pods") }
	if i := slices.IndexFunc(resources, isPod); i >= 0 {
		if left := c.deleteAll(ctx, namespace, resources[i:i+1], false); !left.empty() {
			return left
		}
	}
	return c.deleteAll(ctx, namespace, resources, false)
}

// reportRemaining records what remains in the namespace's conditions and in nonempty. It
// returns an error, so that the namespace is synced again.
func (c *namespaces) reportRemaining(ctx context.Context, ns *v1.Namespace, processed []kinds.Kind, discoveryErr error, left *remaining) error {
	if discoveryErr == nil && len(left.failures) == 0 {
		nonempty := slices.DeleteFunc(slices.Clone(processed), func(k kinds.Kind) bool {
			return left.instances[k.Resource.Resource+"."+k.Resource.Group] == 0
		})
		if !slices.EqualFunc(nonempty, c.getNonempty(ns.Name), func(a, b kinds.Kind) bool { return a.Resource == b.Resource }) {
			c.queue.Forget(ns.Name) // what is left now may be gone long before pods would be
		}
		c.setNonempty(ns.Name, nonempty)
	}
	if setConditions(&ns.Status, conditions(discoveryErr, left), time.Now()) {
		if _, err := c.kube.CoreV1().Namespaces().UpdateStatus(ctx, ns, metav1.UpdateOptions{}); err != nil {
			return ignoreNotServed(err)
		}
	}
	if discoveryErr != nil || len(left.failures) > 0 {
		return errors.Join(append(left.failures, discoveryErr)...)
	}
	return controller.ErrStale
}
