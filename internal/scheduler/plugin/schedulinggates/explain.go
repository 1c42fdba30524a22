package schedulinggates

import (
	"fmt"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// ExplainPod implements framework.PodExplainer.
func (Plugin) ExplainPod(_ *framework.CycleState, pod *framework.PodInfo) (out []framework.Obstacle) {
	for _, gate := range pod.Pod.Spec.SchedulingGates {
		out = append(out, framework.Obstacle{
			Text:     fmt.Sprintf("scheduling gate %s is set", gate.Name),
			Remedies: []string{fmt.Sprintf("let the controller that owns the gate %s remove it from spec.schedulingGates", gate.Name)},
		})
	}
	return out
}
