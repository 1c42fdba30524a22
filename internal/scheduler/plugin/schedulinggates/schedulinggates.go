// Package schedulinggates keeps pods with scheduling gates out of the queue
// (KEP-3521).
package schedulinggates

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// Name is the plugin's name in configurations.
const Name = "SchedulingGates"

// Plugin implements PreEnqueue.
type Plugin struct{}

// Name implements framework.Plugin.
func (Plugin) Name() string { return Name }

// PreEnqueue implements framework.PreEnqueuePlugin.
func (Plugin) PreEnqueue(_ context.Context, pod *framework.PodInfo) *framework.Status {
	gates := pod.Pod.Spec.SchedulingGates
	if len(gates) == 0 {
		return nil
	}
	names := make([]string, len(gates))
	for i := range gates {
		names[i] = gates[i].Name
	}
	return framework.NewStatus(framework.UnschedulableAndUnresolvable, Name, fmt.Sprintf("waiting for scheduling gates: %v", names))
}

// EventsToRegister implements framework.EnqueueExtensions: only the removal of
// the pod's own gates helps.
func (Plugin) EventsToRegister(context.Context) ([]framework.ClusterEventWithHint, error) {
	return []framework.ClusterEventWithHint{
		framework.On(framework.TargetPod, framework.UpdatePodSchedulingGatesEliminated, func(_ *framework.PodInfo, _, pod *v1.Pod) framework.QueueingHint {
			return framework.QueueIf(len(pod.Spec.SchedulingGates) == 0)
		}),
	}, nil
}
