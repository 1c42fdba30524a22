package nodename

import "github.com/coracle-io/coracle/internal/scheduler/framework"

// Explain implements framework.Explainer.
func (Plugin) Explain(_ *framework.CycleState, pod *framework.PodInfo, _ *framework.NodeInfo) []framework.Obstacle {
	return []framework.Obstacle{{Text: "the pod asks for node " + pod.Pod.Spec.NodeName + " (spec.nodeName)"}}
}
