// Package namespace empties namespaces that are being deleted.
//
//	kubectl delete ns ──▶ deletionTimestamp, phase Terminating
//	      pods first ──▶ then everything else ──▶ spec.finalizers without "kubernetes" ──▶ gone
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

	// mu guards waiting: for each namespace that is being emptied, the
	// resources that still had objects when it was looked at last.
	mu      sync.Mutex
	waiting map[string][]kinds.Kind
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
		waiting:    map[string][]kinds.Kind{},
	}
	c.queue = controller.NewQueueWithin("namespace", time.Minute, controller.Existing[string](env.Client.Informers.Core().V1().Namespaces().Informer(), c.sync))
	return c
}

// Run implements controller.Controller.
func (c *namespaces) Run(ctx context.Context) error {
	core := c.env.Client.Informers.Core().V1()
	return controller.Serve(ctx, []controller.Source{
		controller.On(core.Namespaces().Informer(), func(old, new *v1.Namespace) {
			switch {
			case new == nil:
				c.remember(old.Name, nil)
			case new.DeletionTimestamp != nil:
				c.queue.Add(new.Name)
			}
		}),
		// Pods take their time; the last one's end is what to wait for.
		controller.On(core.Pods().Informer(), func(old, new *v1.Pod) {
			if new != nil {
				return
			}
			if ns, err := c.namespaces.Get(old.Namespace); err == nil && ns.DeletionTimestamp != nil {
				c.queue.Add(ns.Name)
			}
		}),
	}, c.queue.Workers(c.workers))
}

func (c *namespaces) remember(namespace string, left []kinds.Kind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(left) == 0 {
		delete(c.waiting, namespace)
	} else {
		c.waiting[namespace] = left
	}
}

func (c *namespaces) remembered(namespace string) []kinds.Kind {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting[namespace]
}

// sync empties a namespace as far as that goes now. What needs time is
// looked at again, soon at first and then at growing intervals.
func (c *namespaces) sync(ctx context.Context, cached *v1.Namespace) error {
	if cached.DeletionTimestamp == nil || !slices.Contains(cached.Spec.Finalizers, v1.FinalizerKubernetes) {
		return nil
	}
	key, ns := cached.Name, cached.DeepCopy()
	var err error
	if ns.Status.Phase != v1.NamespaceTerminating {
		ns.Status.Phase = v1.NamespaceTerminating
		if ns, err = c.kube.CoreV1().Namespaces().UpdateStatus(ctx, ns, metav1.UpdateOptions{}); err != nil {
			return gone(err)
		}
	}
	// Once all was asked to go, only what was left over is looked at, until
	// nothing is; then all once more.
	if late := c.remembered(key); len(late) > 0 {
		left := c.empty(ctx, key, late)
		if !left.empty() {
			return c.unfinished(ctx, ns, late, nil, left)
		}
	}
	content, discoveryErr := c.content()
	left := c.emptyInOrder(ctx, key, content)
	if discoveryErr != nil || !left.empty() {
		return c.unfinished(ctx, ns, content, discoveryErr, left)
	}
	c.remember(key, nil)
	// Who sees nothing of the namespace any more needs no conditions.
	seen := len(cached.Status.Conditions) > 0 || len(ns.Spec.Finalizers) > 1
	if seen && merge(&ns.Status, conditions(nil, left), time.Now()) {
		if ns, err = c.kube.CoreV1().Namespaces().UpdateStatus(ctx, ns, metav1.UpdateOptions{}); err != nil {
			return gone(err)
		}
	}
	ns.Spec.Finalizers = slices.DeleteFunc(ns.Spec.Finalizers, func(f v1.FinalizerName) bool { return f == v1.FinalizerKubernetes })
	if _, err := c.kube.CoreV1().Namespaces().Finalize(ctx, ns, metav1.UpdateOptions{}); err != nil {
		return gone(err)
	}
	klog.FromContext(ctx).V(2).Info("Emptied namespace", "namespace", key)
	return nil
}

// content lists the resources that a namespace can hold.
func (c *namespaces) content() ([]kinds.Kind, error) {
	served, err := kinds.Served(c.kube.Discovery())
	return slices.DeleteFunc(served, func(k kinds.Kind) bool {
		return !k.Namespaced || !k.Can("delete") && !k.Can("deletecollection")
	}), err
}

// emptyInOrder deletes pods first and the rest only when they are gone, so
// that no pod outlives the NetworkPolicies and Secrets it relies on
// (KEP-5080).
func (c *namespaces) emptyInOrder(ctx context.Context, namespace string, content []kinds.Kind) *remains {
	isPod := func(k kinds.Kind) bool { return k.Resource.GroupResource() == v1.Resource("pods") }
	if i := slices.IndexFunc(content, isPod); i >= 0 {
		if left := c.empty(ctx, namespace, content[i:i+1]); !left.empty() {
			return left
		}
	}
	return c.empty(ctx, namespace, content)
}

// unfinished writes what is left into the namespace's conditions, remembers
// it and returns an error, so that the namespace is tried again.
func (c *namespaces) unfinished(ctx context.Context, ns *v1.Namespace, tried []kinds.Kind, discoveryErr error, left *remains) error {
	if discoveryErr == nil && len(left.failures) == 0 {
		c.remember(ns.Name, slices.DeleteFunc(slices.Clone(tried), func(k kinds.Kind) bool {
			return left.instances[k.Resource.Resource+"."+k.Resource.Group] == 0
		}))
	}
	if merge(&ns.Status, conditions(discoveryErr, left), time.Now()) {
		if _, err := c.kube.CoreV1().Namespaces().UpdateStatus(ctx, ns, metav1.UpdateOptions{}); err != nil {
			return gone(err)
		}
	}
	if discoveryErr != nil || len(left.failures) > 0 {
		return errors.Join(append(left.failures, discoveryErr)...)
	}
	return controller.ErrStale
}
