package disruption

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	pdbhelper "k8s.io/component-helpers/apps/poddisruptionbudget"

	podutil "github.com/coracle-io/coracle/internal/pod"
)

// disruptionTimeout is how long a pod whose eviction was granted is taken for
// going, if it does not.
const disruptionTimeout = 2 * time.Minute

// demand is how many pods there should be and how many of them healthy.
// expected counts what the pods' controllers want; it matters for
// maxUnavailable and for percentages.
func demand(pdb *policy.PodDisruptionBudget, matching int, expected func() (int, error)) (wanted, healthy int, err error) {
	switch {
	case pdb.Spec.MaxUnavailable != nil:
		if wanted, err = expected(); err != nil {
			return 0, 0, err
		}
		n, err := intstr.GetScaledValueFromIntOrPercent(pdb.Spec.MaxUnavailable, wanted, true)
		if err != nil {
			return 0, 0, fmt.Errorf("maxUnavailable: %w", err)
		}
		return wanted, max(0, wanted-n), nil
	case pdb.Spec.MinAvailable == nil:
		return matching, 0, nil
	case pdb.Spec.MinAvailable.Type == intstr.Int:
		return matching, pdb.Spec.MinAvailable.IntValue(), nil
	}
	if wanted, err = expected(); err != nil {
		return 0, 0, err
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(pdb.Spec.MinAvailable, wanted, true)
	if err != nil {
		return 0, 0, fmt.Errorf("minAvailable: %w", err)
	}
	return wanted, n, nil
}

// status works out a budget's status. next is when a granted eviction that
// does not happen is forgotten; zero if there is none.
func status(pdb *policy.PodDisruptionBudget, matching []*v1.Pod, wanted, healthy int, now time.Time) (st policy.PodDisruptionBudgetStatus, next time.Time) {
	going := map[string]metav1.Time{}
	current := 0
	for _, p := range matching {
		at, granted := pdb.Status.DisruptedPods[p.Name]
		if granted && p.DeletionTimestamp == nil && now.Before(at.Add(disruptionTimeout)) {
			going[p.Name] = at
			if end := at.Add(disruptionTimeout); next.IsZero() || end.Before(next) {
				next = end
			}
			continue
		}
		if p.DeletionTimestamp == nil && podutil.IsReady(p) {
			current++
		}
	}
	st = *pdb.Status.DeepCopy()
	st.DisruptedPods = nil
	if len(going) > 0 {
		st.DisruptedPods = going
	}
	st.CurrentHealthy, st.DesiredHealthy, st.ExpectedPods = int32(current), int32(healthy), int32(wanted)
	st.DisruptionsAllowed = int32(max(0, current-healthy))
	if wanted <= 0 {
		st.DisruptionsAllowed = 0
	}
	st.ObservedGeneration = pdb.Generation
	holder := &policy.PodDisruptionBudget{ObjectMeta: pdb.ObjectMeta, Status: st}
	pdbhelper.UpdateDisruptionAllowedCondition(holder)
	return holder.Status, next
}
