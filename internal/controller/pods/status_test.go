package pods

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/wallclock/wallclocktest"
)

// readyPod returns a pod that has been ready since a time.
func readyPod(uid string, since time.Time) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}}
	p.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(since.Round(0))}}
	return p
}

// A pod is available once it has been ready for minReadySeconds, though the clock is set since,
// or was set back before, so that it became ready in the future.
func TestAvailabilityWhileTheClockIsSet(t *testing.T) {
	begin, owner := time.Now(), cache.ObjectName{Namespace: "default", Name: "web"}
	for _, c := range []struct {
		name       string
		ready, set time.Duration // when the pod became ready, and by what the clock is set once it was seen; relative to begin
		left       time.Duration // after 10 s
	}{
		{"not set", 0, 0, 20 * time.Second},
		{"ready before", -15 * time.Second, 0, 5 * time.Second},
		{"set back before", time.Hour, 0, 20 * time.Second},
		{"set back", 0, -time.Hour, 20 * time.Second},
		{"set forward", 0, time.Hour, 20 * time.Second},
	} {
		var r Readiness
		all := []*v1.Pod{readyPod("1", begin.Add(c.ready))}
		r.Of(owner, all, 30, begin)
		now := wallclocktest.Set(begin.Add(10*time.Second), c.set)
		since := r.Of(owner, all, 30, now)
		if left, ready := since.AvailableIn(all[0], 30, now); left != c.left || !ready {
			t.Errorf("%s: ready %t, available in %v, want %v", c.name, ready, left, c.left)
		}
		if since.IsAvailable(all[0], 30, now) || !since.IsAvailable(all[0], 0, now) {
			t.Errorf("%s: the pod is available too early, or too late", c.name)
		}
	}
}

// Pods that are gone, and those of owners that need not wait, are forgotten.
func TestReadinessIsForgotten(t *testing.T) {
	var r Readiness
	now, owner := time.Now(), cache.ObjectName{Namespace: "default", Name: "web"}
	r.Of(owner, []*v1.Pod{readyPod("1", now), readyPod("2", now), {}}, 30, now)
	if n := len(r.Of(owner, []*v1.Pod{readyPod("2", now)}, 30, now)); n != 1 {
		t.Errorf("%d pods are remembered, want 1", n)
	}
	if since := r.Of(owner, []*v1.Pod{readyPod("2", now)}, 0, now); since != nil || len(r.owners) != 0 {
		t.Errorf("%v are remembered for nothing", r.owners)
	}
}
