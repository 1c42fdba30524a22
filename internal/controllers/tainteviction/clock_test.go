package tainteviction

import (
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/wallclock/wallclocktest"
)

// tolerationSeconds take as long as they are, though the clock is set by an hour once the taint
// was seen.
func TestTolerationWhileTheClockIsSet(t *testing.T) {
	begin := time.Now()
	for _, set := range []time.Duration{0, -time.Hour, time.Hour} {
		taint, p := noExec("a"), pod("p", tolerate("a", 300))
		taint.TimeAdded = &metav1.Time{Time: begin.Round(0)}
		p.Status.Conditions[0].LastTransitionTime = metav1.Time{Time: begin.Round(0)}
		n, c := node("n", taint), &evictor{added: map[string]map[taintKey]time.Time{}}
		left := func(now time.Time) time.Duration {
			at, evict := evictionTime(p, c.bound.At(cache.MetaObjectToName(p), bindingTime(p), now), c.noExecuteTaints(n, now), now)
			if !evict {
				t.Fatal("the pod tolerates the taint for ever")
			}
			return at.Sub(now)
		}
		c.observeTaints(nil, n, begin)
		left(begin)
		if got := left(wallclocktest.Set(begin.Add(time.Minute), set)); got != 4*time.Minute {
			t.Errorf("set by %v: after a minute, %v are left, want 4m0s", set, got)
		}
	}
}

// Taints and bindings that lie in the future, because the clock was set back, count from when
// they are seen. A restart of the controller begins anew.
func TestTolerationAfterTheClockIsSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		taint, p := noExec("a"), pod("p", tolerate("a", 300))
		taint.TimeAdded = &metav1.Time{Time: time.Now().Add(time.Hour)}
		p.Status.Conditions[0].LastTransitionTime = metav1.Time{Time: time.Now().Add(2 * time.Hour)}
		c := start(t, node("n", taint), p)
		after(299 * time.Second)
		c.want("a second before", "p")
		after(2 * time.Second)
		c.want("a second after", "")
	})
}
