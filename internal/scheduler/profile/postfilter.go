package profile

import (
	"context"
	"strings"
	"time"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// RunPostFilterPlugins asks each plugin in turn to make room, until one succeeds.
// A nomination that none of them keeps ends: its room is not being made.
func (p *Profile) RunPostFilterPlugins(ctx context.Context, state *framework.CycleState, pod *framework.PodInfo, snapshot *framework.Snapshot, nodes *framework.NodeToStatus) (result *framework.PostFilterResult, status *framework.Status) {
	began := time.Now()
	defer func() { p.took("PostFilter", status, began) }()
	asked := p.askPostFilters(state)
	resizing := pod.IsResizing()
	for _, plugin := range p.points.postFilter {
		if resizing && !framework.HandlesDeferredResizes(plugin) {
			continue
		}
		began := asked.began()
		r, s := plugin.PostFilter(ctx, state, pod, snapshot, nodes)
		p.samples.ran("PostFilter", plugin, s, began)
		if asked.decides(plugin, r, s) {
			return asked.result, asked.status
		}
	}
	return asked.failed()
}

// RunPodGroupPostFilterPlugins is RunPostFilterPlugins for a pod of a group that
// is decided together. Plugins that can reserve a preemption before they execute it are
// asked for that, after the others. pending is nil if none is reserved.
func (p *Profile) RunPodGroupPostFilterPlugins(ctx context.Context, state *framework.CycleState, pod *framework.PodInfo, snapshot *framework.Snapshot, nodes *framework.NodeToStatus) (pending framework.PendingPreemption, result *framework.PostFilterResult, status *framework.Status) {
	began := time.Now()
	defer func() { p.took("PodGroupPostFilter", status, began) }()
	asked := p.askPostFilters(state)
	for _, plugin := range p.points.postFilter {
		if _, reserves := plugin.(framework.PodGroupPostFilterPlugin); reserves {
			continue
		}
		began := asked.began()
		r, s := plugin.PostFilter(ctx, state, pod, snapshot, nodes)
		p.samples.ran("PostFilter", plugin, s, began)
		if asked.decides(plugin, r, s) {
			return nil, asked.result, asked.status
		}
	}
	for _, plugin := range p.points.groupPostFilter {
		began := asked.began()
		pending, r, s := plugin.PodGroupPostFilter(ctx, state, pod, snapshot, nodes)
		p.samples.ran("PodGroupPostFilter", plugin, s, began)
		if asked.decides(plugin, r, s) {
			return pending, asked.result, asked.status
		}
	}
	result, status = asked.failed()
	return nil, result, status
}

// postFilters collects the results of PostFilter plugins.
type postFilters struct {
	*cycle
	reasons []string
	result  *framework.PostFilterResult
	status  *framework.Status
}

func (p *Profile) askPostFilters(state *framework.CycleState) *postFilters {
	c, _ := p.cycles.Get(state)
	return &postFilters{cycle: c, result: &framework.PostFilterResult{}}
}

// decides notes the answer of a plugin. It returns true if no other is asked.
func (a *postFilters) decides(plugin framework.Plugin, result *framework.PostFilterResult, status *framework.Status) bool {
	if result != nil {
		if a.result = result; result.KeepsNomination || result.NominatedNodeName != "" {
			result.Plugin = plugin.Name()
		}
	}
	if status.IsRejected() {
		a.reasons = append(a.reasons, status.Reasons()...)
		return false
	}
	if a.status = status; !status.IsSuccess() {
		a.result = nil
	}
	return true
}

// failed is the outcome if no plugin could make room.
func (a *postFilters) failed() (*framework.PostFilterResult, *framework.Status) {
	return a.result, framework.NewStatus(framework.Unschedulable, "", strings.Join(a.reasons, ", "))
}
