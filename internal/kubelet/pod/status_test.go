package pod

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/kubelet/cri"
)

// A pod that ends by itself is shown as running a moment after its start, also
// if the clock was set back since.
func TestShowRunning(t *testing.T) {
	now := time.Now()
	for name, test := range map[string]struct {
		started time.Time
		wait    time.Duration // 0: it is shown at once
	}{
		"just now":       {now, minimumShown},
		"a while ago":    {now.Add(-time.Minute), 0},
		"later than now": {now.Add(time.Hour), 0},
	} {
		observed := &cri.Pod{Containers: []*cri.Container{{State: cri.Running, StartedAt: test.started}}}
		pod := &v1.Pod{Spec: v1.PodSpec{RestartPolicy: v1.RestartPolicyNever}}
		until := showRunning(pod, v1.PodPending, v1.PodRunning, observed, now)
		if test.wait == 0 && !until.IsZero() || test.wait != 0 && until.Sub(now) != test.wait {
			t.Errorf("started %s: shown from %v, want after %v", name, until.Sub(now), test.wait)
		}
	}
}
