// Package disruption is the disruption controller. It maintains the status of
// PodDisruptionBudgets, which says how many pods may be evicted now.
package disruption

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	policylisters "k8s.io/client-go/listers/policy/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/pods"
	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/wallclock"
)

// Descriptor describes the controller.
func Descriptor() controller.Descriptor {
	o := &options{budgets: 4, pods: 1}
	return controller.Descriptor{
		Name:           "disruption-controller",
		Aliases:        []string{"disruption"},
		ServiceAccount: "disruption-controller",
		EventSource:    "controllermanager",
		AddFlags:       o.addFlags,
		New:            func(env *controller.Env) (controller.Controller, error) { return newController(env, o) },
	}
}

// options are the numbers of budgets, and of pods whose eviction did not happen,
// that are synced concurrently.
type options struct{ budgets, pods int }

func (o *options) addFlags(fs *pflag.FlagSet) {
	controller.WorkersFlag(&o.budgets, "concurrent-disruption-syncs", "pod disruption budgets")(fs)
	controller.WorkersFlag(&o.pods, "concurrent-disruption-stalepod-syncs", "pods with a stale condition DisruptionTarget")(fs)
}

type budgets struct {
	env     *controller.Env
	options *options
	kube    kubernetes.Interface
	shared  informers.SharedInformerFactory
	budgets policylisters.PodDisruptionBudgetLister
	pods    cache.SharedIndexInformer
	queue   *controller.Queue[controller.Key]
	// stale holds the pods whose condition DisruptionTarget may have to be reset.
	stale     *controller.Queue[controller.Key]
	resources resources
	// granted holds when the eviction of a pod was granted that the status of a budget names, and
	// targeted when a pod became the target of a disruption.
	granted, targeted wallclock.Moments[controller.Key]
}

func newController(env *controller.Env, o *options) (controller.Controller, error) {
	shared := env.Client.Informers
	c := &budgets{
		env: env, options: o, kube: env.Client.Kubernetes, shared: shared,
		budgets: shared.Policy().V1().PodDisruptionBudgets().Lister(), pods: shared.Core().V1().Pods().Informer(),
	}
	c.queue = controller.NewQueue(env.Queues, "disruption", controller.Existing[controller.Key](shared.Policy().V1().PodDisruptionBudgets().Informer(), c.sync))
	c.stale = controller.NewQueue(env.Queues, "stale_pod_disruption", controller.Existing[controller.Key](c.pods, c.resetDisruptionTarget))
	return c, errors.Join(env.Index(shared.Policy().V1().PodDisruptionBudgets().Informer(), pods.BySelector, budgetKeys), env.Index(c.pods, pods.ByLabel, pods.LabelKeys))
}

// budgetKeys is the index function of pods.BySelector. A malformed selector selects no pods.
func budgetKeys(o any) ([]string, error) {
	pdb, ok := o.(*policy.PodDisruptionBudget)
	if !ok {
		return nil, fmt.Errorf("cannot index a %T by its selector", o)
	}
	selector, err := metav1.LabelSelectorAsSelector(pdb.Spec.Selector)
	if err != nil {
		return nil, nil //nolint:nilerr // such a budget says so in its status
	}
	return pods.SelectorKeys(pdb.Namespace, selector), nil
}

// Run implements controller.Controller.
func (c *budgets) Run(ctx context.Context) error {
	return controller.Serve(ctx, []controller.Source{
		controller.On(c.shared.Policy().V1().PodDisruptionBudgets().Informer(), func(_, pdb *policy.PodDisruptionBudget) {
			if pdb != nil {
				c.queue.Add(cache.MetaObjectToName(pdb))
			}
		}),
		controller.On(c.pods, func(old, new *v1.Pod) {
			c.enqueueFor(old)
			if new == nil {
				c.granted.Forget(cache.MetaObjectToName(old))
				c.targeted.Forget(cache.MetaObjectToName(old))
			}
			if several := c.enqueueFor(new); len(several) > 1 && (old == nil || !maps.Equal(old.Labels, new.Labels)) {
				c.env.Events.Eventf(new, v1.EventTypeWarning, "MultiplePodDisruptionBudgets", "Pod %q/%q matches multiple PodDisruptionBudgets.  Chose %q arbitrarily.", new.Namespace, new.Name, several[0])
			}
			if new != nil && targeted(new) {
				c.stale.Add(cache.MetaObjectToName(new))
			}
		}),
		// The expected number of pods depends on the following.
		controller.On(c.shared.Apps().V1().ReplicaSets().Informer(), func(old, new *apps.ReplicaSet) {
			if old != nil && new != nil && !equality.Semantic.DeepEqual(old.Spec.Replicas, new.Spec.Replicas) {
				c.enqueueNamespace(new.Namespace)
			}
		}),
		controller.On(c.shared.Apps().V1().Deployments().Informer(), func(old, new *apps.Deployment) {
			if old != nil && new != nil && !equality.Semantic.DeepEqual(old.Spec.Replicas, new.Spec.Replicas) {
				c.enqueueNamespace(new.Namespace)
			}
		}),
		controller.On(c.shared.Apps().V1().StatefulSets().Informer(), func(old, new *apps.StatefulSet) {
			if old != nil && new != nil && !equality.Semantic.DeepEqual(old.Spec.Replicas, new.Spec.Replicas) {
				c.enqueueNamespace(new.Namespace)
			}
		}),
		controller.On(c.shared.Core().V1().ReplicationControllers().Informer(), func(old, new *v1.ReplicationController) {
			if old != nil && new != nil && !equality.Semantic.DeepEqual(old.Spec.Replicas, new.Spec.Replicas) {
				c.enqueueNamespace(new.Namespace)
			}
		}),
	}, c.queue.Workers(c.options.budgets), c.stale.Workers(c.options.pods))
}

// enqueueFor enqueues the budgets that select a pod, which may be nil. It returns their names.
func (c *budgets) enqueueFor(p *v1.Pod) (names []string) {
	if p == nil {
		return nil
	}
	candidates, err := pods.MaySelect[*policy.PodDisruptionBudget](c.shared.Policy().V1().PodDisruptionBudgets().Informer(), p.Namespace, p.Labels)
	if err != nil {
		return nil
	}
	for _, pdb := range candidates {
		if podquery.Selects(pdb.Spec.Selector, p.Labels) {
			c.queue.Add(cache.MetaObjectToName(pdb))
			names = append(names, pdb.Name)
		}
	}
	return names
}

// enqueueNamespace enqueues all budgets of a namespace.
func (c *budgets) enqueueNamespace(namespace string) {
	all, err := c.budgets.PodDisruptionBudgets(namespace).List(labels.Everything())
	if err != nil {
		return
	}
	for _, pdb := range all {
		c.queue.Add(cache.MetaObjectToName(pdb))
	}
}

func (c *budgets) sync(ctx context.Context, pdb *policy.PodDisruptionBudget) error {
	matching, err := c.selected(pdb)
	if err != nil {
		c.env.Events.Eventf(pdb, v1.EventTypeWarning, "NoPods", "Failed to get pods: %v", err)
		return c.failSafe(ctx, pdb, err)
	}
	// The status may name a pod, and must not name another one each time.
	slices.SortFunc(matching, func(a, b *v1.Pod) int { return strings.Compare(a.Name, b.Name) })
	if len(matching) == 0 {
		c.env.Events.Eventf(pdb, v1.EventTypeNormal, "NoPods", "No matching pods found")
	}
	expected, desiredHealthy, err := expectedPods(pdb, len(matching), func() (int, error) {
		total, unmanaged, err := c.scale(ctx, matching)
		if unmanaged > 0 {
			c.env.Events.Eventf(pdb, v1.EventTypeWarning, "UnmanagedPods", "Pods selected by this PodDisruptionBudget (selector: %v) were found "+
				"to be unmanaged. As a result, the status of the PDB cannot be calculated correctly, which may result in undefined behavior. "+
				`To account for these pods please set ".spec.minAvailable" field of the PDB to an integer value.`, pdb.Spec.Selector)
		}
		return total, err
	})
	if err != nil {
		c.env.Events.Eventf(pdb, v1.EventTypeWarning, "CalculateExpectedPodCountFailed", "Failed to calculate the number of expected pods: %v", err)
		return c.failSafe(ctx, pdb, err)
	}
	now := time.Now()
	grants := c.grants(pdb, matching, now)
	st, next := status(pdb, matching, expected, desiredHealthy, grants, now)
	if !next.IsZero() {
		c.queue.AddAfter(cache.MetaObjectToName(pdb), time.Until(next))
	}
	if err := c.updateStatus(ctx, pdb, st); err != nil {
		return err
	}
	for _, p := range matching {
		if at, granted := grants[p.Name]; granted && !pending(at, now) {
			c.env.Events.Eventf(p, v1.EventTypeWarning, "NotDeleted", "Pod was expected by PDB %s/%s to be deleted but it wasn't", pdb.Namespace, pdb.Name)
		}
	}
	return nil
}

// grants returns when the evictions of pods were granted, by the names of the pods.
func (c *budgets) grants(pdb *policy.PodDisruptionBudget, matching []*v1.Pod, now time.Time) map[string]time.Time {
	grants := map[string]time.Time{}
	for _, p := range matching {
		if at, granted := grantedAt(pdb, p, now); granted {
			grants[p.Name] = c.granted.At(cache.MetaObjectToName(p), at.Time, now)
		}
	}
	return grants
}

// selected returns the pods that a budget selects. It returns an error if the selector is
// malformed.
func (c *budgets) selected(pdb *policy.PodDisruptionBudget) ([]*v1.Pod, error) {
	selector, err := metav1.LabelSelectorAsSelector(pdb.Spec.Selector)
	if err != nil {
		return nil, err
	}
	return pods.Selected(c.pods, pdb.Namespace, selector)
}

// failSafe allows no disruptions, because the pods or their expected number are unknown.
// It returns cause.
func (c *budgets) failSafe(ctx context.Context, pdb *policy.PodDisruptionBudget, cause error) error {
	st := *pdb.Status.DeepCopy()
	st.DisruptionsAllowed, st.ObservedGeneration = 0, pdb.Generation
	meta.SetStatusCondition(&st.Conditions, metav1.Condition{
		Type: policy.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: policy.SyncFailedReason,
		Message: cause.Error(), ObservedGeneration: pdb.Generation,
	})
	if err := c.updateStatus(ctx, pdb, st); err != nil {
		return err
	}
	return cause
}

func (c *budgets) updateStatus(ctx context.Context, pdb *policy.PodDisruptionBudget, st policy.PodDisruptionBudgetStatus) error {
	if equality.Semantic.DeepEqual(st, pdb.Status) {
		return nil
	}
	next := *pdb
	next.Status = st
	_, err := c.kube.PolicyV1().PodDisruptionBudgets(pdb.Namespace).UpdateStatus(ctx, &next, metav1.UpdateOptions{})
	return controller.IgnoreNotFound(err)
}
