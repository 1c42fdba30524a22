package disruption

import (
	"errors"
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestStatus(t *testing.T) {
	now := time.Unix(10000, 0)
	budget := func(min, max string) *policy.PodDisruptionBudget {
		pdb := &policy.PodDisruptionBudget{}
		if min != "" {
			pdb.Spec.MinAvailable = new(intstr.Parse(min))
		}
		if max != "" {
			pdb.Spec.MaxUnavailable = new(intstr.Parse(max))
		}
		return pdb
	}
	evicted := budget("2", "")
	evicted.Status.DisruptedPods = map[string]metav1.Time{"p0": metav1.NewTime(now.Add(-time.Minute)), "p1": metav1.NewTime(now.Add(-time.Hour))}
	for _, c := range []struct {
		name            string
		pdb             *policy.PodDisruptionBudget
		healthy, broken int
		expected        int
		want            string
	}{
		{"minAvailable 2", budget("2", ""), 3, 0, 0, "allowed 1, healthy 3 of 2, expected 3, SufficientPods"},
		{"too few healthy", budget("2", ""), 1, 1, 0, "allowed 0, healthy 1 of 2, expected 2, InsufficientPods"},
		{"minAvailable 50%", budget("50%", ""), 3, 0, 5, "allowed 0, healthy 3 of 3, expected 5, InsufficientPods"},
		{"maxUnavailable 1", budget("", "1"), 3, 0, 3, "allowed 1, healthy 3 of 2, expected 3, SufficientPods"},
		{"maxUnavailable 1, one unhealthy", budget("", "1"), 2, 1, 3, "allowed 0, healthy 2 of 2, expected 3, InsufficientPods"},
		{"no pods", budget("", "1"), 0, 0, 0, "allowed 0, healthy 0 of 0, expected 0, InsufficientPods"},
		{"one is being evicted", evicted, 4, 0, 0, "allowed 1, healthy 3 of 2, expected 4, SufficientPods"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var matching []*v1.Pod
			for i := range c.healthy + c.broken {
				p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i)}}
				if i < c.healthy {
					p.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
				}
				matching = append(matching, p)
			}
			expected, desiredHealthy, err := expectedPods(c.pdb, len(matching), func() (int, error) { return c.expected, nil })
			if err != nil {
				t.Fatal(err)
			}
			st, _ := status(c.pdb, matching, expected, desiredHealthy, new(budgets).grants(c.pdb, matching, now), now)
			got := fmt.Sprintf("allowed %d, healthy %d of %d, expected %d, %s", st.DisruptionsAllowed, st.CurrentHealthy, st.DesiredHealthy, st.ExpectedPods, st.Conditions[0].Reason)
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
	again := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p0", CreationTimestamp: metav1.NewTime(now.Add(-time.Second))}}
	again.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
	if st, next := status(evicted, []*v1.Pod{again}, 1, 1, new(budgets).grants(evicted, []*v1.Pod{again}, now), now); st.CurrentHealthy != 1 || len(st.DisruptedPods) != 0 || !next.IsZero() {
		t.Errorf("a pod that was created again after its eviction: %+v, next %v", st, next)
	}
	unknown := errors.New("no scale")
	if _, _, err := expectedPods(budget("", "1"), 1, func() (int, error) { return 0, unknown }); !errors.Is(err, unknown) {
		t.Errorf("got %v", err)
	}
}
