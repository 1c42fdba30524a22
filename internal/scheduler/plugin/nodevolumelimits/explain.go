package nodevolumelimits

import (
	"fmt"
	"maps"
	"slices"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// Explain implements framework.Explainer: it counts the volumes of each driver
// that the node has too many of.
func (p *plugin) Explain(state *framework.CycleState, _ *framework.PodInfo, n *framework.NodeInfo) (out []framework.Obstacle) {
	w, ok := p.state.Get(state)
	if !ok || w.failed != nil {
		return nil
	}
	csiNode, err := p.nodes.Get(n.Name)
	if err != nil {
		return nil
	}
	u, err := p.usageOf(w, n, csiNode)
	if err != nil {
		return nil
	}
	more := map[string]int64{}
	for id := range u.missing {
		more[id.driver]++
	}
	for _, driver := range slices.Sorted(maps.Keys(more)) {
		if limit := u.limits[driver]; u.counts[driver] > limit {
			out = append(out, framework.Obstacle{
				Text:     fmt.Sprintf("the node takes %d volumes of driver %s: it has %d, and the pod needs %d more", limit, driver, u.counts[driver]-more[driver], more[driver]),
				Remedies: []string{fmt.Sprintf("delete pods of the node that use %d volumes of driver %s", u.counts[driver]-limit, driver)},
			})
		}
	}
	return out
}
