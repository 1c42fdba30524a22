// Package disruption keeps the status of PodDisruptionBudgets: how many pods
// may be evicted now.
package disruption

import (
	"context"
	"fmt"
	"time"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	policylisters "k8s.io/client-go/listers/policy/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/kinds"
)

// Descriptor describes the controller.
func Descriptor() controller.Descriptor {
	return controller.Descriptor{
		Name:           "disruption-controller",
		Aliases:        []string{"disruption"},
		ServiceAccount: "disruption-controller",
		EventSource:    "controllermanager",
		New:            newController,
	}
}

type budgets struct {
	env     *controller.Env
	kube    kubernetes.Interface
	shared  informers.SharedInformerFactory
	budgets policylisters.PodDisruptionBudgetLister
	pods    corelisters.PodLister
	queue   *controller.Queue[controller.Key]
}

func newController(env *controller.Env) (controller.Controller, error) {
	shared := env.Client.Informers
	c := &budgets{
		env: env, kube: env.Client.Kubernetes, shared: shared,
		budgets: shared.Policy().V1().PodDisruptionBudgets().Lister(), pods: shared.Core().V1().Pods().Lister(),
	}
	c.queue = controller.NewQueue("disruption", controller.Existing[controller.Key](shared.Policy().V1().PodDisruptionBudgets().Informer(), c.sync))
	return c, nil
}

// Run implements controller.Controller.
func (c *budgets) Run(ctx context.Context) error {
	return controller.Serve(ctx, []controller.Source{
		controller.On(c.shared.Policy().V1().PodDisruptionBudgets().Informer(), func(_, pdb *policy.PodDisruptionBudget) {
			if pdb != nil {
				c.queue.Add(cache.MetaObjectToName(pdb))
			}
		}),
		controller.On(c.shared.Core().V1().Pods().Informer(), func(old, new *v1.Pod) {
			c.wake(old)
			c.wake(new)
		}),
		// How many pods there should be depends on these.
		controller.On(c.shared.Apps().V1().ReplicaSets().Informer(), func(old, new *apps.ReplicaSet) {
			if old != nil && new != nil && !equality.Semantic.DeepEqual(old.Spec.Replicas, new.Spec.Replicas) {
				c.wakeNamespace(new.Namespace)
			}
		}),
		controller.On(c.shared.Apps().V1().Deployments().Informer(), func(old, new *apps.Deployment) {
			if old != nil && new != nil && !equality.Semantic.DeepEqual(old.Spec.Replicas, new.Spec.Replicas) {
				c.wakeNamespace(new.Namespace)
			}
		}),
		controller.On(c.shared.Apps().V1().StatefulSets().Informer(), func(old, new *apps.StatefulSet) {
			if old != nil && new != nil && !equality.Semantic.DeepEqual(old.Spec.Replicas, new.Spec.Replicas) {
				c.wakeNamespace(new.Namespace)
			}
		}),
		controller.On(c.shared.Core().V1().ReplicationControllers().Informer(), func(old, new *v1.ReplicationController) {
			if old != nil && new != nil && !equality.Semantic.DeepEqual(old.Spec.Replicas, new.Spec.Replicas) {
				c.wakeNamespace(new.Namespace)
			}
		}),
	}, c.queue.Workers(4))
}

func (c *budgets) wake(p *v1.Pod) {
	if p == nil {
		return
	}
	all, err := c.budgets.PodDisruptionBudgets(p.Namespace).List(labels.Everything())
	if err != nil {
		return
	}
	for _, pdb := range all {
		if s, err := metav1.LabelSelectorAsSelector(pdb.Spec.Selector); err == nil && s.Matches(labels.Set(p.Labels)) {
			c.queue.Add(cache.MetaObjectToName(pdb))
		}
	}
}

// wakeNamespace queues all budgets of a namespace.
func (c *budgets) wakeNamespace(namespace string) {
	all, err := c.budgets.PodDisruptionBudgets(namespace).List(labels.Everything())
	if err != nil {
		return
	}
	for _, pdb := range all {
		c.queue.Add(cache.MetaObjectToName(pdb))
	}
}

func (c *budgets) sync(ctx context.Context, pdb *policy.PodDisruptionBudget) error {
	selector, err := metav1.LabelSelectorAsSelector(pdb.Spec.Selector)
	if err != nil {
		return fmt.Errorf("selector of PodDisruptionBudget %s: %w", cache.MetaObjectToName(pdb), err)
	}
	matching, err := c.pods.Pods(pdb.Namespace).List(selector)
	if err != nil {
		return err
	}
	if len(matching) == 0 {
		c.env.Events.Eventf(pdb, v1.EventTypeNormal, "NoPods", "No matching pods found")
	}
	wanted, healthy, err := demand(pdb, len(matching), func() (int, error) { return c.expected(ctx, matching) })
	if err != nil {
		c.env.Events.Eventf(pdb, v1.EventTypeWarning, "CalculateExpectedPodCountFailed", "Failed to calculate the number of expected pods: %v", err)
		return c.fail(ctx, pdb, err)
	}
	st, next := status(pdb, matching, wanted, healthy, time.Now())
	if !next.IsZero() {
		c.queue.AddAfter(cache.MetaObjectToName(pdb), time.Until(next))
	}
	return c.write(ctx, pdb, st)
}

// fail allows no disruption while it is not known how many pods there should
// be.
func (c *budgets) fail(ctx context.Context, pdb *policy.PodDisruptionBudget, cause error) error {
	st := *pdb.Status.DeepCopy()
	st.DisruptionsAllowed, st.ObservedGeneration = 0, pdb.Generation
	meta.SetStatusCondition(&st.Conditions, metav1.Condition{
		Type: policy.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: policy.SyncFailedReason,
		Message: cause.Error(), ObservedGeneration: pdb.Generation,
	})
	if err := c.write(ctx, pdb, st); err != nil {
		return err
	}
	return cause
}

func (c *budgets) write(ctx context.Context, pdb *policy.PodDisruptionBudget, st policy.PodDisruptionBudgetStatus) error {
	if equality.Semantic.DeepEqual(st, pdb.Status) {
		return nil
	}
	next := *pdb
	next.Status = st
	_, err := c.kube.PolicyV1().PodDisruptionBudgets(pdb.Namespace).UpdateStatus(ctx, &next, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// expected adds up how many pods the controllers of some pods want. Pods
// without a controller are not expected.
func (c *budgets) expected(ctx context.Context, matching []*v1.Pod) (total int, err error) {
	counted := map[types.UID]bool{}
	for _, p := range matching {
		ref := metav1.GetControllerOfNoCopy(p)
		if ref == nil {
			continue
		}
		uid, n, err := c.scaleOf(ctx, p.Namespace, *ref)
		if err != nil {
			return 0, err
		}
		if !counted[uid] {
			counted[uid] = true
			total += n
		}
	}
	return total, nil
}

// scaleOf is how many pods a controller wants. A ReplicaSet's is that of its
// Deployment, if it has one.
func (c *budgets) scaleOf(ctx context.Context, namespace string, ref metav1.OwnerReference) (types.UID, int, error) {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return "", 0, err
	}
	number := func(n *int32) int {
		if n == nil {
			return 1
		}
		return int(*n)
	}
	switch gv.WithKind(ref.Kind).GroupKind() {
	case schema.GroupKind{Group: apps.GroupName, Kind: "ReplicaSet"}:
		rs, err := c.shared.Apps().V1().ReplicaSets().Lister().ReplicaSets(namespace).Get(ref.Name)
		if err != nil {
			return "", 0, err
		}
		if up := metav1.GetControllerOfNoCopy(rs); up != nil && up.Kind == "Deployment" {
			return c.scaleOf(ctx, namespace, *up)
		}
		return rs.UID, number(rs.Spec.Replicas), nil
	case schema.GroupKind{Group: apps.GroupName, Kind: "Deployment"}:
		d, err := c.shared.Apps().V1().Deployments().Lister().Deployments(namespace).Get(ref.Name)
		if err != nil {
			return "", 0, err
		}
		return d.UID, number(d.Spec.Replicas), nil
	case schema.GroupKind{Group: apps.GroupName, Kind: "StatefulSet"}:
		s, err := c.shared.Apps().V1().StatefulSets().Lister().StatefulSets(namespace).Get(ref.Name)
		if err != nil {
			return "", 0, err
		}
		return s.UID, number(s.Spec.Replicas), nil
	case schema.GroupKind{Kind: "ReplicationController"}:
		rc, err := c.shared.Core().V1().ReplicationControllers().Lister().ReplicationControllers(namespace).Get(ref.Name)
		if err != nil {
			return "", 0, err
		}
		return rc.UID, number(rc.Spec.Replicas), nil
	}
	return c.scaleOfCustom(ctx, namespace, gv, ref)
}

// scaleOfCustom asks a custom controller's scale subresource.
func (c *budgets) scaleOfCustom(ctx context.Context, namespace string, gv schema.GroupVersion, ref metav1.OwnerReference) (types.UID, int, error) {
	served, err := kinds.Served(c.kube.Discovery())
	if err != nil && len(served) == 0 {
		return "", 0, err
	}
	for _, kind := range served {
		if kind.Kind != ref.Kind || kind.Group != gv.Group {
			continue
		}
		scale, err := c.env.Client.Dynamic.Resource(kind.Resource).Namespace(namespace).Get(ctx, ref.Name, metav1.GetOptions{}, "scale")
		if err != nil {
			return "", 0, fmt.Errorf("%s %s does not implement the scale subresource: %w", ref.Kind, ref.Name, err)
		}
		spec, _ := scale.Object["spec"].(map[string]any)
		n, _ := spec["replicas"].(int64)
		return ref.UID, int(n), nil
	}
	return "", 0, fmt.Errorf("found no controllers for pods of %s %s", ref.Kind, ref.Name)
}
