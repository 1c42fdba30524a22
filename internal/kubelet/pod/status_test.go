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

// A container that replaced the one that the API server knows has to start and to
// become ready by itself.
func TestReplacedContainerIsNotAdopted(t *testing.T) {
	now := time.Now()
	w := &worker{runtime: &kuberuntime{started: now}}
	of := func(id string, state cri.State, startedAt time.Time) *cri.Container {
		return &cri.Container{ID: id, Name: "main", State: state, StartedAt: startedAt}
	}
	before := now.Add(-time.Minute)
	known := &v1.ContainerStatus{Name: "main", ContainerID: "containerd://a"}
	for name, test := range map[string]struct {
		containers []*cri.Container // newest first
		want       bool
	}{
		"none":                      {nil, false},
		"the one of the status":     {[]*cri.Container{of("a", cri.Running, before)}, true},
		"one of this kubelet":       {[]*cri.Container{of("a", cri.Running, now.Add(time.Minute))}, false},
		"another":                   {[]*cri.Container{of("b", cri.Running, before)}, false},
		"another, and what is left": {[]*cri.Container{of("b", cri.Running, before), of("a", cri.Exited, before)}, false},
	} {
		if got := w.adopted(&cri.Pod{Containers: test.containers}, known); got != test.want {
			t.Errorf("%s: adopted %t, want %t", name, got, test.want)
		}
	}
}
