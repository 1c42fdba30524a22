package schedulinggates

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/plugintest"
)

func gated(gates ...string) *v1.Pod {
	p := &v1.Pod{}
	for _, gate := range gates {
		p.Spec.SchedulingGates = append(p.Spec.SchedulingGates, v1.PodSchedulingGate{Name: gate})
	}
	return p
}

func TestSchedulingGates(t *testing.T) {
	for _, test := range []struct {
		pod     *v1.Pod
		want    string
		removed framework.QueueingHint // hint for the update that leaves the gates
	}{
		{gated(), "", framework.Queue},
		{gated("a"), "waiting for scheduling gates: [a]", framework.QueueSkip},
		{gated("a", "b"), "waiting for scheduling gates: [a b]", framework.QueueSkip},
	} {
		if got := (Plugin{}).PreEnqueue(t.Context(), framework.NewPodInfo(test.pod)); got.Message() != test.want || got.IsSuccess() != (test.want == "") {
			t.Errorf("%s %q, want %q", got.Code(), got.Message(), test.want)
		}
		got, _ := plugintest.Hint(t, Plugin{}, test.pod, framework.TargetPod, framework.UpdatePodSchedulingGatesEliminated, gated("a", "b", "c"), test.pod)
		if got != test.removed {
			t.Errorf("hint %d with the gates %v, want %d", got, test.pod.Spec.SchedulingGates, test.removed)
		}
	}
}
