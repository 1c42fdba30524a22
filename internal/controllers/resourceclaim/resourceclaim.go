// Package resourceclaim is the ResourceClaim controller (KEP-3063, KEP-4381).
//
//	pod with a template ──► claim, named in pod.status.resourceClaimStatuses
//	pod is done or gone ──► its entry in claim.status.reservedFor is removed
//	no pod uses a claim ──► its devices are deallocated, and its finalizer is removed
//	                        a claim of a pod that is done is deleted
//	a claim is deleted  ──► the same, also if no pod ever used it
//
// The scheduler allocates devices and adds the entries and the finalizer.
package resourceclaim

import (
	"context"
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
	"k8s.io/client-go/tools/cache"
	library "k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/podquery"
)

// Descriptor describes the controller.
func Descriptor() controller.Descriptor {
	workers, creations := 50, newCreations()
	return controller.Descriptor{
		Name:           "resourceclaim-controller",
		Aliases:        []string{"resource-claim-controller"},
		ServiceAccount: "resource-claim-controller",
		EventSource:    "resource_claim",
		AddFlags:       controller.WorkersFlag(&workers, "concurrent-resource-claim-syncs", "pods and resource claims"),
		New: func(env *controller.Env) (controller.Controller, error) {
			return newController(env, workers, creations)
		},
	}
}

// key is a pod or a claim.
type key struct {
	pod bool
	controller.Key
}

type claims struct {
	env       *controller.Env
	kube      kubernetes.Interface
	pods      corelisters.PodLister
	claims    resourcelisters.ResourceClaimLister
	templates resourcelisters.ResourceClaimTemplateLister
	podIndex  cache.Indexer
	claimOf   cache.Indexer // of claims, by byOwner
	queue     *controller.Queue[key]
	workers   int
	creations *prometheus.CounterVec

	// mu guards created, the claims that were created and that the informer
	// may not show yet.
	mu      sync.Mutex
	created map[owner]*resourceapi.ResourceClaim
}

// owner is an entry of spec.resourceClaims of a pod.
type owner struct {
	pod  types.UID
	name string
}

// The indexes: pods by the templates that they use, claims by their owner.
const (
	byTemplate = "resourceClaimTemplate"
	byOwner    = "resourceClaimOwner"
)

func newController(env *controller.Env, workers int, creations *prometheus.CounterVec) (controller.Controller, error) {
	if err := env.Expose(creations); err != nil {
		return nil, err
	}
	pods, resources := env.Client.Informers.Core().V1().Pods(), env.Client.Informers.Resource().V1()
	c := &claims{
		env: env, kube: env.Client.Kubernetes, workers: workers, creations: creations,
		pods: pods.Lister(), claims: resources.ResourceClaims().Lister(), templates: resources.ResourceClaimTemplates().Lister(),
		podIndex: pods.Informer().GetIndexer(), claimOf: resources.ResourceClaims().Informer().GetIndexer(),
		created: map[owner]*resourceapi.ResourceClaim{},
	}
	c.queue = controller.NewQueue(env.Queues, "resource_claim", c.sync)
	if err := env.Index(pods.Informer(), byTemplate, templatesOf); err != nil {
		return nil, err
	}
	if err := env.Expose(newExisting(c.claims)); err != nil {
		return nil, err
	}
	return c, env.Index(resources.ResourceClaims().Informer(), byOwner, ownerOf)
}

func templatesOf(obj any) (keys []string, err error) {
	if pod, ok := obj.(*v1.Pod); ok {
		for _, c := range pod.Spec.ResourceClaims {
			if c.ResourceClaimTemplateName != nil {
				keys = append(keys, pod.Namespace+"/"+*c.ResourceClaimTemplateName)
			}
		}
	}
	return keys, nil
}

func ownerOf(obj any) ([]string, error) {
	claim, ok := obj.(*resourceapi.ResourceClaim)
	if !ok {
		return nil, nil
	}
	if ref := podOwner(claim); ref != nil {
		return []string{string(ref.UID)}, nil
	}
	return nil, nil
}

// podOwner returns the reference to the pod that a claim was created for, or nil.
func podOwner(claim *resourceapi.ResourceClaim) *metav1.OwnerReference {
	if ref := metav1.GetControllerOfNoCopy(claim); ref != nil && ref.APIVersion == "v1" && ref.Kind == "Pod" {
		return ref
	}
	return nil
}

// Run implements controller.Controller.
func (c *claims) Run(ctx context.Context) error {
	core, resources := c.env.Client.Informers.Core().V1(), c.env.Client.Informers.Resource().V1()
	return controller.Serve(ctx, []controller.Source{
		controller.On(core.Pods().Informer(), c.podChanged),
		controller.On(resources.ResourceClaims().Informer(), c.claimChanged),
		controller.On(resources.ResourceClaimTemplates().Informer(), func(old, template *resourceapi.ResourceClaimTemplate) {
			if old == nil {
				c.addWaiting(template)
			}
		}),
	}, c.queue.Workers(c.workers))
}

func (c *claims) addPod(namespace, name string) {
	c.queue.Add(key{true, controller.Key{Namespace: namespace, Name: name}})
}

func (c *claims) podChanged(old, pod *v1.Pod) {
	current := pod
	if pod == nil {
		current = old
		c.forget(old)
	}
	if len(current.Spec.ResourceClaims) == 0 && current.Status.ExtendedResourceClaimStatus == nil {
		return
	}
	if pod != nil && !isDone(pod) {
		c.addPod(pod.Namespace, pod.Name)
		return
	}
	for name := range library.PodClaims(current) {
		c.queue.Add(key{false, controller.Key{Namespace: current.Namespace, Name: name}})
	}
}

func (c *claims) claimChanged(old, claim *resourceapi.ResourceClaim) {
	if claim != nil {
		c.seen(claim)
		c.queue.Add(key{false, cache.MetaObjectToName(claim)})
		return
	}
	c.seen(old)
	if ref := podOwner(old); ref != nil {
		c.addPod(old.Namespace, ref.Name)
	}
}

// addWaiting adds the pods that wait for a template.
func (c *claims) addWaiting(template *resourceapi.ResourceClaimTemplate) {
	waiting, err := c.podIndex.ByIndex(byTemplate, cache.MetaObjectToName(template).String())
	if err != nil {
		return
	}
	for _, obj := range waiting {
		pod := obj.(*v1.Pod)
		c.addPod(pod.Namespace, pod.Name)
	}
}

// isDone reports whether a pod will not use its claims any more.
func isDone(pod *v1.Pod) bool {
	return podquery.IsFinished(pod) || pod.DeletionTimestamp != nil && pod.Spec.NodeName == ""
}

func (c *claims) sync(ctx context.Context, k key) error {
	if k.pod {
		pod, exists, err := c.podIndex.GetByKey(k.Key.String())
		if err != nil || !exists {
			return err
		}
		return c.syncPod(ctx, pod.(*v1.Pod))
	}
	claim, exists, err := c.claimOf.GetByKey(k.Key.String())
	if err != nil || !exists {
		return err
	}
	if err := c.syncClaim(ctx, claim.(*resourceapi.ResourceClaim)); err != nil {
		return fmt.Errorf("resourceclaim %s: %w", k.Key, err)
	}
	return nil
}
