package volumezone

import (
	"fmt"
	"slices"
	"strings"

	"github.com/coracle-io/coracle/internal/resource/core/nodeselector"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// ExplainPod implements framework.PodExplainer.
func (p *plugin) ExplainPod(_ *framework.CycleState, pod *framework.PodInfo) []framework.Obstacle {
	return framework.MissingClaims(p.claims, pod.Pod)
}

// Explain implements framework.Explainer: it names the volumes that are in
// other zones or regions.
func (p *plugin) Explain(state *framework.CycleState, _ *framework.PodInfo, n *framework.NodeInfo) (out []framework.Obstacle) {
	all, _ := p.state.Get(state)
	for _, t := range all {
		value, ok := n.Node.Labels[t.key]
		if !ok {
			value, ok = n.Node.Labels[nodeselector.Replacement(t.key)]
		}
		if ok && slices.Contains(t.values, value) {
			continue
		}
		node := "the node has no such label"
		if ok {
			node = "the node's is " + value
		}
		out = append(out, framework.Obstacle{Text: fmt.Sprintf("PersistentVolume %s has label %s=%s, and %s", t.volume, t.key, strings.Join(t.values, zoneSeparator), node)})
	}
	return out
}
