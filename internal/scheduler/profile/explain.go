package profile

import (
	"context"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// Verdict is the result of one filter for a node.
type Verdict struct {
	Plugin string
	// Status is nil if the filter lets the node pass.
	Status *framework.Status
	// Obstacles are of plugins that implement framework.Explainer.
	Obstacles []framework.Obstacle
	// Nominated says that only pods that are nominated for the node are in the way.
	Nominated bool
}

// ExplainFilters asks every filter about a node, even if one has rejected it.
// RunPreFilterPlugins has prepared the state.
func (p *Profile) ExplainFilters(ctx context.Context, state *framework.CycleState, pod *framework.PodInfo, node *framework.NodeInfo) []Verdict {
	c, _ := p.cycles.Get(state)
	verdicts := c.verdicts(ctx, state, pod, node)
	t := c.newTrial(ctx, state, pod)
	defer t.Revert()
	if asked, _ := t.addNominated(node, p.handle.Nominator.NominatedPodsForNode(node.Name)); !asked {
		return verdicts
	}
	for i, with := range c.verdicts(ctx, state, pod, node) {
		if verdicts[i].Status.IsSuccess() && !with.Status.IsSuccess() {
			with.Nominated = true
			verdicts[i] = with
		}
	}
	return verdicts
}

func (c *cycle) verdicts(ctx context.Context, state *framework.CycleState, pod *framework.PodInfo, node *framework.NodeInfo) []Verdict {
	out := make([]Verdict, 0, len(c.filters))
	for _, f := range c.filters {
		v := Verdict{Plugin: f.Name(), Status: f.Filter(ctx, state, pod, node)}
		if e, ok := f.FilterPlugin.(framework.Explainer); ok && v.Status.IsRejected() {
			v.Obstacles = e.Explain(state, pod, node)
		}
		out = append(out, v)
	}
	return out
}

// ExplainPod returns the obstacles of a plugin that rejected the whole pod.
// There are none if the plugin is no framework.PodExplainer.
func (p *Profile) ExplainPod(state *framework.CycleState, pod *framework.PodInfo, plugin string) []framework.Obstacle {
	if e, ok := p.plugins[plugin].(framework.PodExplainer); ok {
		return e.ExplainPod(state, pod)
	}
	return nil
}

// PluginScores are the scores that one plugin gives.
type PluginScores struct {
	Plugin string
	Weight int64
	// Scores are normalized and not weighted, in the order of the nodes.
	Scores []int64
}

// ExplainScores returns the scores of each plugin. RunScorePlugins returns their
// weighted sum.
func (p *Profile) ExplainScores(ctx context.Context, state *framework.CycleState, pod *framework.PodInfo, snapshot *framework.Snapshot, nodes []*framework.NodeInfo) ([]PluginScores, *framework.Status) {
	active, status := p.runPreScorePlugins(ctx, state, pod, snapshot, nodes)
	if !status.IsSuccess() {
		return nil, status
	}
	out := make([]PluginScores, 0, len(active))
	for _, position := range active {
		plugin := &p.points.score[position]
		scores := make([]int64, len(nodes))
		if s := plugin.scoreNodes(ctx, state, pod, nodes, scores); !s.IsSuccess() {
			return nil, s
		}
		out = append(out, PluginScores{Plugin: plugin.Name(), Weight: plugin.weight, Scores: scores})
	}
	return out, nil
}

// DryRunPostFilter asks the PostFilter plugins that can say what they would do.
func (p *Profile) DryRunPostFilter(ctx context.Context, state *framework.CycleState, pod *framework.PodInfo, snapshot *framework.Snapshot, nodes *framework.NodeToStatus) (*framework.Preemption, *framework.Status) {
	var status *framework.Status
	for _, plugin := range p.points.postFilter {
		d, ok := plugin.(framework.DryRunPostFilterPlugin)
		if !ok {
			continue
		}
		preemption, s := d.DryRunPostFilter(ctx, state, pod, snapshot, nodes)
		if preemption != nil || !s.IsRejected() {
			return preemption, s
		}
		status = s
	}
	return nil, status
}
