package apiserver

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// evict deletes a pod if its disruption budget allows.
func (q *request) evict() error {
	o, err := q.negotiate()
	if err != nil {
		return err
	}
	eviction := &policyv1.Eviction{}
	options, err := q.decodeAction(eviction, q.sub.Kind)
	if err != nil {
		return err
	}
	if err := q.placeInNamespace(eviction); err != nil {
		return err
	}
	g := q.gate(admission.Create, options, len(options.DryRun) > 0)
	if err := g.mutate(eviction, nil, q.info.Name); err != nil {
		return err
	}
	if eviction.Name != q.info.Name {
		return apierrors.NewBadRequest("name in URL does not match name in Eviction object")
	}
	if err := g.validate(eviction, nil, q.info.Name); err != nil {
		return err
	}
	deletion := eviction.DeleteOptions
	if deletion == nil {
		deletion = &metav1.DeleteOptions{}
	}
	if err := invalidOptions("DeleteOptions", metavalidation.ValidateDeleteOptions(deletion)); err != nil {
		return err
	}
	if g.dryRun {
		deletion.DryRun = options.DryRun
	}
	e, err := q.read("")
	if err != nil {
		return err
	}
	pod, ok := e.Object.(*corev1.Pod)
	if !ok {
		return errNoSuchResource()
	}
	if err := q.disrupt(pod, len(deletion.DryRun) > 0); err != nil {
		return err
	}
	if err := q.deleteEvicted(pod, deletion); err != nil {
		return err
	}
	return q.sendObject(http.StatusCreated, created(), plain(o))
}

// deleteEvicted notes on the pod why it goes, and deletes it.
func (q *request) deleteEvicted(pod *corev1.Pod, options *metav1.DeleteOptions) error {
	q.sub = nil
	if len(options.DryRun) == 0 && pod.DeletionTimestamp == nil {
		_, _, err := q.store(&change{
			options: &metav1.UpdateOptions{}, uid: pod.UID, internal: true,
			next: func(current *watchcache.Entry) (resource.Object, error) {
				next := current.Object.DeepCopyObject().(*corev1.Pod)
				setCondition(&next.Status, corev1.PodCondition{
					Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, ObservedGeneration: next.Generation,
					Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting", LastTransitionTime: seconds(q.now),
				})
				return next, nil
			},
		})
		if err != nil {
			return err
		}
	}
	g := q.gate(admission.Delete, options, len(options.DryRun) > 0)
	g.skip = true
	_, _, err := q.deleteObject(g, pod.Name, options)
	return err
}

func setCondition(status *corev1.PodStatus, c corev1.PodCondition) {
	for i := range status.Conditions {
		if status.Conditions[i].Type == c.Type {
			status.Conditions[i] = c
			return
		}
	}
	status.Conditions = append(status.Conditions, c)
}

// budgetTries is how often a disruption is tried against a changing budget.
const budgetTries = 3

// disrupt takes one disruption from the pod's budget, if it has one, or says
// why there is none to take.
func (q *request) disrupt(pod *corev1.Pod, dryRun bool) error {
	if needsNoBudget(pod) {
		return nil
	}
	budgets := q.server.routes.Load().stored("policy", "poddisruptionbudgets")
	if budgets == nil {
		return nil
	}
	for try := 0; ; try++ {
		e, err := q.budgetOf(budgets, pod)
		if e == nil || err != nil {
			return err
		}
		next, err := disrupted(e.Object.(*policyv1.PodDisruptionBudget), pod, q.now)
		if err != nil || next == nil || dryRun {
			return err
		}
		_, err = budgets.kind.Update(q.ctx, next, e)
		switch {
		case err == nil:
			return nil
		case try < budgetTries && (errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotFound)):
			if _, err := q.server.Cache.Fresh(q.ctx); err != nil {
				return storeError(err, "update", budgets.groupResource(), next.Name)
			}
		case errors.Is(err, store.ErrConflict):
			return tooManyDisruptions(fmt.Sprintf("couldn't update PodDisruptionBudget %q due to conflicts", next.Name))
		default:
			return storeError(err, "update", budgets.groupResource(), next.Name)
		}
	}
}

// needsNoBudget says that a pod that goes disrupts nothing.
func needsNoBudget(pod *corev1.Pod) bool {
	switch pod.Status.Phase {
	case corev1.PodSucceeded, corev1.PodFailed, corev1.PodPending:
		return true
	}
	return pod.DeletionTimestamp != nil
}

// budgetOf finds the budget that selects a pod. More than one is an error.
func (q *request) budgetOf(budgets *endpoint, pod *corev1.Pod) (*watchcache.Entry, error) {
	var found []*watchcache.Entry
	budgets.kind.Snapshot().Ascend(pod.Namespace, watchcache.Position{}, func(e *watchcache.Entry) bool {
		budget, ok := e.Object.(*policyv1.PodDisruptionBudget)
		if !ok {
			return true
		}
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		if err == nil && selector.Matches(labels.Set(pod.Labels)) {
			found = append(found, e)
		}
		return true
	})
	switch len(found) {
	case 0:
		return nil, nil
	case 1:
		return found[0], nil
	}
	return nil, &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInternalServerError,
		Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
	}}
}

// maxDisruptedPods bounds the evictions that the budget's controller has not
// confirmed.
const maxDisruptedPods = 2000

// retrySeconds is when to ask again for a disruption that may be allowed soon.
const retrySeconds = 10

// disrupted returns the budget with one disruption less, nil if the pod needs
// none of it, or an error that says why it has none.
func disrupted(budget *policyv1.PodDisruptionBudget, pod *corev1.Pod, now time.Time) (*policyv1.PodDisruptionBudget, error) {
	if !isReady(pod) && allowsUnhealthy(budget) {
		return nil, nil
	}
	gr := schema.GroupResource{Group: "policy", Resource: "poddisruptionbudget"}
	status := &budget.Status
	switch {
	case status.ObservedGeneration < budget.Generation:
		return nil, tooManyDisruptions(fmt.Sprintf("The disruption budget %s is still being processed by the server.", budget.Name))
	case status.DisruptionsAllowed < 0:
		return nil, apierrors.NewForbidden(gr, budget.Name, errors.New("pdb disruptions allowed is negative"))
	case len(status.DisruptedPods) > maxDisruptedPods:
		return nil, apierrors.NewForbidden(gr, budget.Name, errors.New("DisruptedPods map too big - too many evictions not confirmed by PDB controller"))
	case status.DisruptionsAllowed == 0:
		return nil, noDisruptions(budget)
	}
	next := budget.DeepCopy()
	next.Status.DisruptionsAllowed--
	if next.Status.DisruptionsAllowed == 0 {
		meta.SetStatusCondition(&next.Status.Conditions, metav1.Condition{
			Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: policyv1.InsufficientPodsReason,
			ObservedGeneration: next.Status.ObservedGeneration, LastTransitionTime: seconds(now),
		})
	}
	if next.Status.DisruptedPods == nil {
		next.Status.DisruptedPods = map[string]metav1.Time{}
	}
	next.Status.DisruptedPods[pod.Name] = seconds(now)
	return next, nil
}

func isReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// allowsUnhealthy says that a pod that is not ready may go without taking a
// disruption (KEP-3017).
func allowsUnhealthy(budget *policyv1.PodDisruptionBudget) bool {
	if policy := budget.Spec.UnhealthyPodEvictionPolicy; policy != nil && *policy == policyv1.AlwaysAllow {
		return true
	}
	return budget.Status.CurrentHealthy >= budget.Status.DesiredHealthy && budget.Status.DesiredHealthy > 0
}

func tooManyDisruptions(why string) error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", retrySeconds)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: why})
	return err
}

func noDisruptions(budget *policyv1.PodDisruptionBudget) error {
	condition := meta.FindStatusCondition(budget.Status.Conditions, policyv1.DisruptionAllowedCondition)
	why := fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently", budget.Name, budget.Status.DesiredHealthy, budget.Status.CurrentHealthy)
	if condition != nil && condition.Status == metav1.ConditionFalse && condition.Reason == policyv1.SyncFailedReason {
		why = fmt.Sprintf("The disruption budget %s does not allow evicting pods currently because it failed sync: %v", budget.Name, condition.Message)
	}
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: why})
	return err
}
