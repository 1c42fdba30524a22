package disruption

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	pdbhelper "k8s.io/component-helpers/apps/poddisruptionbudget"

	"github.com/coracle-io/coracle/internal/podquery"
)

// disruptionTimeout is how long a pod with a granted eviction counts as disrupted
// if it is not deleted.
const disruptionTimeout = 2 * time.Minute

// grantedAt returns when an eviction of a pod that is not being deleted was granted. One that was granted
// before the pod was created is that of another pod with its name, as StatefulSets have. If the clock
// was set back since the pod was created, nothing is known of that.
func grantedAt(pdb *policy.PodDisruptionBudget, p *v1.Pod, now time.Time) (at metav1.Time, granted bool) {
	at, granted = pdb.Status.DisruptedPods[p.Name]
	return at, granted && p.DeletionTimestamp == nil && (!at.Before(&p.CreationTimestamp) || p.CreationTimestamp.After(now))
}

// pending reports whether an eviction that was granted at a time may still delete the pod.
func pending(at, now time.Time) bool { return now.Before(at.Add(disruptionTimeout)) }

// expectedPods returns the expected number of pods and how many of them must be
// healthy. scale returns the replicas of the pods' controllers. It is called only
// for maxUnavailable and percentages.
func expectedPods(pdb *policy.PodDisruptionBudget, matching int, scale func() (int, error)) (expected, desiredHealthy int, err error) {
	switch {
	case pdb.Spec.MaxUnavailable != nil:
		if expected, err = scale(); err != nil {
			return 0, 0, err
		}
		n, err := intstr.GetScaledValueFromIntOrPercent(pdb.Spec.MaxUnavailable, expected, true)
		if err != nil {
			return 0, 0, fmt.Errorf("maxUnavailable: %w", err)
		}
		return expected, max(0, expected-n), nil
	case pdb.Spec.MinAvailable == nil:
		return matching, 0, nil
	case pdb.Spec.MinAvailable.Type == intstr.Int:
		return matching, pdb.Spec.MinAvailable.IntValue(), nil
	}
	if expected, err = scale(); err != nil {
		return 0, 0, err
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(pdb.Spec.MinAvailable, expected, true)
	if err != nil {
		return 0, 0, fmt.Errorf("minAvailable: %w", err)
	}
	return expected, n, nil
}

// status computes the status of a budget. grants holds when evictions were granted, by the names
// of the pods. next is when the next one of them times out, or zero if there is none.
func status(pdb *policy.PodDisruptionBudget, matching []*v1.Pod, expected, desiredHealthy int, grants map[string]time.Time, now time.Time) (st policy.PodDisruptionBudgetStatus, next time.Time) {
	disrupted := map[string]metav1.Time{}
	current := 0
	for _, p := range matching {
		if at, granted := grants[p.Name]; granted && pending(at, now) {
			disrupted[p.Name] = pdb.Status.DisruptedPods[p.Name]
			if end := at.Add(disruptionTimeout); next.IsZero() || end.Before(next) {
				next = end
			}
			continue
		}
		if p.DeletionTimestamp == nil && podquery.IsReady(p) {
			current++
		}
	}
	st = *pdb.Status.DeepCopy()
	st.DisruptedPods = nil
	if len(disrupted) > 0 {
		st.DisruptedPods = disrupted
	}
	st.CurrentHealthy, st.DesiredHealthy, st.ExpectedPods = int32(current), int32(desiredHealthy), int32(expected)
	st.DisruptionsAllowed = int32(max(0, current-desiredHealthy))
	if expected <= 0 {
		st.DisruptionsAllowed = 0
	}
	st.ObservedGeneration = pdb.Generation
	holder := &policy.PodDisruptionBudget{ObjectMeta: pdb.ObjectMeta, Status: st}
	pdbhelper.UpdateDisruptionAllowedCondition(holder)
	return holder.Status, next
}
