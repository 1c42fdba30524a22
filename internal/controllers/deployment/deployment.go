// Package deployment is the Deployment controller. It creates a ReplicaSet for each pod
// template and scales the ReplicaSets within maxSurge and maxUnavailable.
//
//	Deployment ──owns──▶ ReplicaSet web-6c54bd5869 (new)  0 ▲ 3
//	           ──owns──▶ ReplicaSet web-5f7cdcd4b8 (old)  3 ▼ 0
//
// Pure functions decide the sizes (scale.go) and conditions (status.go). rollout.go applies
// one step and writes the status.
package deployment

import (
	"context"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/workload"
	"github.com/coracle-io/coracle/internal/wallclock"
)

// Descriptor describes the controller.
func Descriptor() controller.Descriptor {
	workers := 5
	return controller.Descriptor{
		Name:           "deployment-controller",
		Aliases:        []string{"deployment"},
		ServiceAccount: "deployment-controller",
		EventSource:    "deployment-controller",
		AddFlags:       controller.WorkersFlag(&workers, "concurrent-deployment-syncs", "deployment objects"),
		New:            func(env *controller.Env) (controller.Controller, error) { return newController(env, workers) },
	}
}

var kind = apps.SchemeGroupVersion.WithKind("Deployment")

type deployments struct {
	*workload.Controller[*apps.Deployment, *apps.ReplicaSet]
	env         *controller.Env
	kube        kubernetes.Interface
	deployments appslisters.DeploymentLister
	replicaSets cache.SharedIndexInformer
	pods        cache.SharedIndexInformer
	writes      *writes
	// progress holds when Deployments last progressed.
	progress wallclock.Moments[controller.Key]
}

func newController(env *controller.Env, workers int) (controller.Controller, error) {
	informers := env.Client.Informers
	c := &deployments{
		env:         env,
		kube:        env.Client.Kubernetes,
		deployments: informers.Apps().V1().Deployments().Lister(),
		replicaSets: informers.Apps().V1().ReplicaSets().Informer(),
		pods:        informers.Core().V1().Pods().Informer(),
		writes:      &writes{replicas: map[controller.Key]map[types.UID]written{}},
	}
	if err := workload.IndexByController(env, c.pods); err != nil {
		return nil, err
	}
	var err error
	c.Controller, err = workload.New(env, workload.Config[*apps.Deployment, *apps.ReplicaSet]{
		Kind: kind, Queue: "deployment", Workers: workers,
		Owners: informers.Apps().V1().Deployments().Informer(), Dependents: c.replicaSets,
		Sources: []controller.Source{controller.On(c.pods, c.podChanged)},
		Client: func(namespace string) workload.Client[*apps.Deployment] {
			return c.kube.AppsV1().Deployments(namespace)
		},
		Sync: c.sync,
		OwnerGone: func(_ context.Context, key controller.Key) error {
			c.writes.forget(key)
			c.progress.Forget(key)
			return nil
		},
		Selector: func(d *apps.Deployment) *metav1.LabelSelector { return d.Spec.Selector },
		Patch: func(ctx context.Context, rs *apps.ReplicaSet, patch []byte) error {
			_, err := c.kube.AppsV1().ReplicaSets(rs.Namespace).Patch(ctx, rs.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
			return err
		},
	})
	return c, err
}

// podChanged enqueues a Deployment with the strategy Recreate when a pod is deleted, because
// it may have waited for that.
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
		c.Queue.Add(cache.MetaObjectToName(d))
	}
}

func (c *deployments) sync(ctx context.Context, before *apps.Deployment) error {
	d := before.DeepCopy()
	if selector, err := metav1.LabelSelectorAsSelector(before.Spec.Selector); err == nil && selector.Empty() {
		c.env.Events.Event(before, v1.EventTypeWarning, "SelectingAll", "This deployment is selecting all pods. A non-empty selector is required.")
		if d.Status.ObservedGeneration < d.Generation {
			d.Status.ObservedGeneration = d.Generation
			_, err = c.kube.AppsV1().Deployments(d.Namespace).UpdateStatus(ctx, d, metav1.UpdateOptions{})
		}
		return err
	}
	owned, err := c.Claim(ctx, before)
	if err != nil {
		return err
	}
	// A Deployment that is being deleted writes only its status. It neither releases ReplicaSets that
	// it no longer selects nor counts them, so it would wait for them without end.
	if d.DeletionTimestamp == nil {
		seen, err := c.writes.seen(ctx, cache.MetaObjectToName(d), d.UID, owned, c.kube.AppsV1().ReplicaSets(d.Namespace).Get)
		if err != nil {
			return err
		}
		if !seen {
			return controller.ErrStale
		}
	}
	r := &rollout{deployments: c, before: before, d: d, sets: classify(d, owned)}
	requeueAfter, err := r.run(ctx)
	if requeueAfter > 0 {
		c.Queue.AddAfter(cache.MetaObjectToName(d), requeueAfter)
	}
	if apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause) {
		return nil
	}
	return err
}
