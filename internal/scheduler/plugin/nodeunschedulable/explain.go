package nodeunschedulable

import "github.com/coracle-io/coracle/internal/scheduler/framework"

// Explain implements framework.Explainer.
func (*plugin) Explain(_ *framework.CycleState, _ *framework.PodInfo, n *framework.NodeInfo) []framework.Obstacle {
	return []framework.Obstacle{{Text: "the node is cordoned (spec.unschedulable)", Remedies: []string{"kubectl uncordon " + n.Name}}}
}
