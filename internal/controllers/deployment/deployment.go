// Package deployment rolls out Deployments: one ReplicaSet for each pod
// template, sized so that the change from one template to the next keeps
// within maxSurge and maxUnavailable.
//
//	Deployment ──owns──▶ ReplicaSet web-6c54bd5869 (current)  0 ▲ 3
//	           ──owns──▶ ReplicaSet web-5f7cdcd4b8 (old)      3 ▼ 0
//
// Sizes are decided by pure functions (scale.go), conditions by others
// (status.go); rollout.go carries out one step and reports.
package deployment

import (
	"context"
	"fmt"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/own"
)

// Descriptor describes the controller.
var Descriptor = controller.Descriptor{
	Name:           "deployment-controller",
	Aliases:        []string{"deployment"},
	ServiceAccount: "deployment-controller",
	EventSource:    "deployment-controller",
	New:            New,
}

var kind = apps.SchemeGroupVersion.WithKind("Deployment")

type deployments struct {
	env         *controller.Env
	kube        kubernetes.Interface
	deployments appslisters.DeploymentLister
	replicaSets cache.SharedIndexInformer
	pods        cache.SharedIndexInformer
	queue       *controller.Queue[controller.Key]
}

// New builds the controller.
func New(env *controller.Env) (controller.Controller, error) {
	informers := env.Client.Informers
	c := &deployments{
		env:         env,
		kube:        env.Client.Kubernetes,
		deployments: informers.Apps().V1().Deployments().Lister(),
		replicaSets: informers.Apps().V1().ReplicaSets().Informer(),
		pods:        informers.Core().V1().Pods().Informer(),
	}
	c.queue = controller.NewQueue("deployment", c.sync)
	for _, informer := range []cache.SharedIndexInformer{c.replicaSets, c.pods} {
		if err := env.Index(informer, own.ByController, own.ControllerKeys); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Run implements controller.Controller.
func (c *deployments) Run(ctx context.Context) error {
	owners := own.Follower[*apps.ReplicaSet]{Kind: kind, Wake: c.queue.Add, Orphaned: c.orphaned}
	return controller.Serve(ctx, []controller.Source{
		controller.On(c.env.Client.Informers.Apps().V1().Deployments().Informer(), func(old, new *apps.Deployment) {
			if new != nil {
				c.queue.Add(cache.MetaObjectToName(new))
			}
		}),
		controller.On(c.replicaSets, owners.Changed),
		controller.On(c.pods, c.podChanged),
	}, c.queue.Workers(c.env.Options.ConcurrentDeploymentSyncs))
}

// orphaned queues the Deployments that would adopt a ReplicaSet.
func (c *deployments) orphaned(rs *apps.ReplicaSet) {
	all, err := c.deployments.Deployments(rs.Namespace).List(labels.Everything())
	if err != nil {
		return
	}
	for _, d := range all {
		if own.Selects(d.Spec.Selector, rs) {
			c.queue.Add(cache.MetaObjectToName(d))
		}
	}
}

// podChanged wakes a Recreate that waits for the last of its old pods.
func (c *deployments) podChanged(old, new *v1.Pod) {
	if new != nil {
		return
	}
	ref := metav1.GetControllerOfNoCopy(old)
	if ref == nil || ref.Kind != "ReplicaSet" {
		return
	}
	o, exists, err := c.replicaSets.GetIndexer().GetByKey(old.Namespace + "/" + ref.Name)
	if err != nil || !exists {
		return
	}
	owner := metav1.GetControllerOfNoCopy(o.(*apps.ReplicaSet))
	if owner == nil || owner.Kind != kind.Kind {
		return
	}
	d, err := c.deployments.Deployments(old.Namespace).Get(owner.Name)
	if err == nil && d.Spec.Strategy.Type == apps.RecreateDeploymentStrategyType {
		c.queue.Add(cache.MetaObjectToName(d))
	}
}

func (c *deployments) sync(ctx context.Context, key controller.Key) error {
	before, err := c.deployments.Deployments(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	selector, err := metav1.LabelSelectorAsSelector(before.Spec.Selector)
	if err != nil {
		return fmt.Errorf("selector of Deployment %s: %w", key, err)
	}
	d := before.DeepCopy()
	if selector.Empty() {
		c.env.Events.Event(before, v1.EventTypeWarning, "SelectingAll", "This deployment is selecting all pods. A non-empty selector is required.")
		if d.Status.ObservedGeneration < d.Generation {
			d.Status.ObservedGeneration = d.Generation
			_, err = c.kube.AppsV1().Deployments(d.Namespace).UpdateStatus(ctx, d, metav1.UpdateOptions{})
		}
		return err
	}
	owned, err := c.claim(ctx, before, selector)
	if err != nil {
		return err
	}
	r := &rollout{deployments: c, before: before, d: d, sets: classify(d, owned)}
	recheck, err := r.run(ctx)
	if recheck > 0 {
		c.queue.AddAfter(key, recheck)
	}
	if apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause) {
		return nil
	}
	return err
}

// claim returns the ReplicaSets that a Deployment owns, after it has adopted
// and released what it should.
func (c *deployments) claim(ctx context.Context, d *apps.Deployment, selector labels.Selector) ([]*apps.ReplicaSet, error) {
	candidates, err := own.Candidates[*apps.ReplicaSet](c.replicaSets.GetIndexer(), d)
	if err != nil {
		return nil, err
	}
	claim := own.Claim[*apps.ReplicaSet]{
		Owner: d, Kind: kind, Selector: selector,
		Patch: func(ctx context.Context, rs *apps.ReplicaSet, patch []byte) error {
			_, err := c.kube.AppsV1().ReplicaSets(rs.Namespace).Patch(ctx, rs.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
			return err
		},
		Fresh: func(ctx context.Context) (metav1.Object, error) {
			return c.kube.AppsV1().Deployments(d.Namespace).Get(ctx, d.Name, metav1.GetOptions{})
		},
	}
	return claim.Objects(ctx, candidates)
}
