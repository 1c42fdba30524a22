package disruption

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/wallclock/wallclocktest"
)

// An eviction that was granted counts for two minutes, though the clock is set by an hour.
func TestGrantAfterTheClockIsSet(t *testing.T) {
	begin := time.Now()
	for _, c := range []struct {
		name                  string
		created, granted, set time.Duration // set: by what the clock is set once the grant was seen; all relative to begin
	}{
		{"not set", -time.Minute, 0, 0},
		{"set back before the grant was seen", -time.Minute, time.Hour, 0},
		{"set back after the pod was created", time.Hour, 0, 0},
		{"set back", -time.Minute, 0, -time.Hour},
		{"set forward", -time.Minute, 0, time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			at := func(d time.Duration) metav1.Time { return metav1.NewTime(begin.Add(d).Round(0)) }
			p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", CreationTimestamp: at(c.created)}}
			pdb := &policy.PodDisruptionBudget{Status: policy.PodDisruptionBudgetStatus{DisruptedPods: map[string]metav1.Time{"p": at(c.granted)}}}
			controls, matching := &budgets{}, []*v1.Pod{p}
			controls.grants(pdb, matching, begin)
			for elapsed, want := range map[time.Duration]int{time.Minute: 1, 3 * time.Minute: 0} {
				now := wallclocktest.Set(begin.Add(elapsed), c.set)
				st, _ := status(pdb, matching, 1, 1, controls.grants(pdb, matching, now), now)
				if len(st.DisruptedPods) != want {
					t.Errorf("after %v the evictions of %v are pending, want %d", elapsed, st.DisruptedPods, want)
				}
			}
		})
	}
}

// A pod whose condition lies in the future, because the clock was set back, is no longer a target
// after two minutes either.
func TestDisruptionTargetAfterTheClockIsSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := podOf("running", "")
		p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{
			Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "EvictionByEvictionAPI", LastTransitionTime: metav1.NewTime(time.Now().Add(time.Hour)),
		})
		c := controllertest.New(t, p)
		c.Run(Descriptor())
		target := func() v1.ConditionStatus {
			synctest.Wait()
			return podquery.Condition(&c.Pods("default")[0].Status, v1.DisruptionTarget).Status
		}
		time.Sleep(disruptionTimeout - time.Second)
		if got := target(); got != v1.ConditionTrue {
			t.Errorf("before two minutes have passed: %s", got)
		}
		time.Sleep(2 * time.Second)
		if got := target(); got != v1.ConditionFalse {
			t.Errorf("after two minutes: %s", got)
		}
	})
}
