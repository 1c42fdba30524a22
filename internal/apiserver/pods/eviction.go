package pods

import (
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"

	"github.com/coracle-io/coracle/internal/apiserver/registry"
	"github.com/coracle-io/coracle/internal/apiserver/status"
	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// Evict deletes the pod that the request names if its disruption budget
// allows that.
func Evict(q *registry.Request, eviction *policyv1.Eviction, options *metav1.CreateOptions) error {
	if err := q.PlaceInNamespace(eviction); err != nil {
		return err
	}
	dryRun := len(options.DryRun) > 0
	g := q.Admitter(admission.Create, options, dryRun)
	if err := g.Mutate(eviction, nil, q.Info.Name); err != nil {
		return err
	}
	if eviction.Name != q.Info.Name {
		return apierrors.NewBadRequest("name in URL does not match name in Eviction object")
	}
	if err := g.Validate(eviction, nil, q.Info.Name); err != nil {
		return err
	}
	deletion := eviction.DeleteOptions
	if deletion == nil {
		deletion = &metav1.DeleteOptions{}
	}
	if err := status.InvalidOptions("DeleteOptions", metavalidation.ValidateDeleteOptions(deletion)); err != nil {
		return err
	}
	if dryRun {
		deletion.DryRun = options.DryRun
	}
	return evict(q, deletion)
}

// evictionTries is the number of attempts to evict a pod that changes between
// the read and the write.
const evictionTries = 20

// evict deletes the pod if its budget allows that. It starts again if the pod
// changes in a way that matters.
func evict(q *registry.Request, options *metav1.DeleteOptions) error {
	var judged types.UID
	for try := 1; ; try++ {
		e, err := q.Get("")
		if err != nil {
			return err
		}
		pod, ok := e.Object.(*corev1.Pod)
		switch {
		case !ok:
			return status.NoSuchResource()
		case try > 1 && pod.UID != judged: // another pod of the same name
			return apierrors.NewNotFound(q.Endpoint.GroupResource(), pod.Name)
		}
		judged = pod.UID
		if err := registry.CheckPreconditions(q.Endpoint, pod, options); err != nil {
			return err
		}
		asJudged, err := disrupt(q, pod, options.DryRun)
		if err != nil {
			return err
		}
		err = deleteEvicted(q, pod, only(pod, asJudged, options))
		if try == evictionTries || !apierrors.IsConflict(err) {
			return err
		}
	}
}

// only returns options that delete no other pod of the same name and, with
// asJudged, no other state of the pod.
func only(pod *corev1.Pod, asJudged bool, options *metav1.DeleteOptions) *metav1.DeleteOptions {
	options = options.DeepCopy()
	if options.Preconditions == nil {
		options.Preconditions = &metav1.Preconditions{}
	}
	options.Preconditions.UID = &pod.UID
	if asJudged {
		options.Preconditions.ResourceVersion = &pod.ResourceVersion
	}
	return options
}

// deleteEvicted sets the condition DisruptionTarget of the pod and deletes
// the pod. A resourceVersion in the preconditions is that before the change.
func deleteEvicted(q *registry.Request, pod *corev1.Pod, options *metav1.DeleteOptions) error {
	if len(options.DryRun) == 0 && pod.DeletionTimestamp == nil {
		e, err := q.UpdateUnchecked("", nil, func(current resource.Object) (resource.Object, error) {
			if err := registry.CheckPreconditions(q.Endpoint, current, options); err != nil {
				return nil, err
			}
			next := current.DeepCopyObject().(*corev1.Pod)
			podquery.SetCondition(&next.Status, podquery.DisruptionTarget(next, "EvictionByEvictionAPI", "Eviction API: evicting", resource.Seconds(q.Now)))
			return next, nil
		})
		if err != nil {
			return err
		}
		if options.Preconditions.ResourceVersion != nil {
			noted := e.Object.GetResourceVersion()
			options.Preconditions.ResourceVersion = &noted
		}
	}
	_, _, err := q.DeleteAdmitted(options)
	return err
}

// disrupt uses one disruption of the pod's budget, if there is a budget, or
// returns why the eviction is refused. asJudged reports that the pod needs no
// disruption because it is not ready, which must still hold when it is
// deleted.
func disrupt(q *registry.Request, pod *corev1.Pod, dryRun []string) (asJudged bool, err error) {
	if needsNoBudget(pod) {
		return pod.Status.Phase == corev1.PodPending && pod.DeletionTimestamp == nil, nil
	}
	budgets := q.Registry.Routes().Stored("policy", "poddisruptionbudgets")
	if budgets == nil {
		return false, nil
	}
	e, err := budgetOf(budgets, pod)
	if e == nil || err != nil {
		return false, err
	}
	budget := *q
	budget.Endpoint, budget.Subresource, budget.Info.Name = budgets, nil, e.Name
	_, err = budget.UpdateUnchecked("", dryRun, func(current resource.Object) (resource.Object, error) {
		next, err := disrupted(current.(*policyv1.PodDisruptionBudget), pod, q.Now)
		if asJudged = err == nil && next == nil; err != nil || asJudged {
			return nil, err
		}
		return next, nil
	})
	if apierrors.IsNotFound(err) { // the budget was deleted
		err = nil
	}
	return asJudged, err
}

// needsNoBudget reports whether a pod can be evicted regardless of budgets.
func needsNoBudget(pod *corev1.Pod) bool {
	switch pod.Status.Phase {
	case corev1.PodSucceeded, corev1.PodFailed, corev1.PodPending:
		return true
	}
	return pod.DeletionTimestamp != nil
}

// errManyBudgets becomes an internal error without a reason.
var errManyBudgets = errors.New("This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.") //nolint:staticcheck // upstream's sentence

// budgetOf returns the budget that selects a pod, or nil. More than one is an
// error.
func budgetOf(budgets *registry.Endpoint, pod *corev1.Pod) (*watchcache.Entry, error) {
	var found []*watchcache.Entry
	budgets.Kind.Snapshot().Ascend(pod.Namespace, watchcache.Position{}, func(e *watchcache.Entry) bool {
		budget, ok := e.Object.(*policyv1.PodDisruptionBudget)
		if !ok {
			return true
		}
		if podquery.Selects(budget.Spec.Selector, pod.Labels) {
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
	return nil, errManyBudgets
}

// maxDisruptedPods bounds the evictions that the disruption controller has
// not yet observed.
const maxDisruptedPods = 2000

// retrySeconds is the suggested delay before another attempt.
const retrySeconds = 10

// disrupted returns the budget with one disruption less, nil if the pod needs
// none, or an error if the budget allows none.
func disrupted(budget *policyv1.PodDisruptionBudget, pod *corev1.Pod, now time.Time) (*policyv1.PodDisruptionBudget, error) {
	if !podquery.IsReady(pod) && allowsUnhealthy(budget) {
		return nil, nil
	}
	gr := schema.GroupResource{Group: "policy", Resource: "poddisruptionbudget"}
	switch have := &budget.Status; {
	case have.ObservedGeneration < budget.Generation:
		return nil, tooManyDisruptions(fmt.Sprintf("The disruption budget %s is still being processed by the server.", budget.Name))
	case have.DisruptionsAllowed < 0:
		return nil, apierrors.NewForbidden(gr, budget.Name, errors.New("pdb disruptions allowed is negative"))
	case len(have.DisruptedPods) > maxDisruptedPods:
		return nil, apierrors.NewForbidden(gr, budget.Name, errors.New("DisruptedPods map too big - too many evictions not confirmed by PDB controller"))
	case have.DisruptionsAllowed == 0:
		return nil, noDisruptions(budget)
	}
	next := budget.DeepCopy()
	next.Status.DisruptionsAllowed--
	if next.Status.DisruptionsAllowed == 0 {
		meta.SetStatusCondition(&next.Status.Conditions, metav1.Condition{
			Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: policyv1.InsufficientPodsReason,
			ObservedGeneration: next.Status.ObservedGeneration, LastTransitionTime: resource.Seconds(now),
		})
	}
	if next.Status.DisruptedPods == nil {
		next.Status.DisruptedPods = map[string]metav1.Time{}
	}
	next.Status.DisruptedPods[pod.Name] = resource.Seconds(now)
	return next, nil
}

// allowsUnhealthy reports whether a pod that is not ready may be evicted
// without a disruption (KEP-3017).
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
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: whyNone(budget)})
	return err
}

// whyNone says why a budget allows no disruption: its controller may have failed, or
// know more than the numbers of pods say.
func whyNone(budget *policyv1.PodDisruptionBudget) string {
	have, currently := &budget.Status, fmt.Sprintf("The disruption budget %s does not allow evicting pods currently", budget.Name)
	condition := meta.FindStatusCondition(have.Conditions, policyv1.DisruptionAllowedCondition)
	explained := condition != nil && condition.Status == metav1.ConditionFalse && condition.Message != ""
	switch {
	case explained && condition.Reason == policyv1.SyncFailedReason: // the numbers may be wrong
		return fmt.Sprintf("%s because it failed sync: %s", currently, condition.Message)
	case have.CurrentHealthy <= have.DesiredHealthy:
		return fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently", budget.Name, have.DesiredHealthy, have.CurrentHealthy)
	case explained:
		return fmt.Sprintf("%s (%s): %s", currently, condition.Reason, condition.Message)
	}
	return currently
}
