package scheduler

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/scheduler/profile"
)

// algorithm chooses nodes. A decision depends only on the snapshot, the pod,
// and the fields of algorithm: the same seed and the same history choose the
// same nodes. It belongs to the scheduling goroutine.
type algorithm struct {
	percentage int32 // of nodes to score; 0 is adaptive
	random     *rand.Rand
	start      int // index of the node where the next search begins, so that every node gets its turn

	feasible []*framework.NodeInfo // of the current decision
	statuses []*framework.Status   // of the nodes that were visited, in order
	visited  []*framework.NodeInfo // all nodes in that order, if none is feasible
}

// schedule returns the best node for the pod. The error is a
// *framework.FitError if no node can take it.
func (a *algorithm) schedule(ctx context.Context, p *profile.Profile, state *framework.CycleState, pod *framework.PodInfo, nominated string, snapshot *framework.Snapshot) (*framework.NodeInfo, error) {
	if snapshot.NumNodes() == 0 {
		return nil, &framework.FitError{}
	}
	result, status := p.RunPreFilterPlugins(ctx, state, pod, snapshot)
	if !status.IsSuccess() {
		if !status.IsRejected() {
			return nil, fmt.Errorf("running PreFilter plugin %q: %w", status.Plugin(), status.AsError())
		}
		unfit := &framework.FitError{NumAllNodes: snapshot.NumNodes(), PreFilterMsg: status.Message(), Nodes: framework.NewNodeToStatus(status, 0)}
		unfit.AddPlugin(status)
		addNarrowing(unfit, status.Code(), result)
		return nil, unfit
	}
	if n := snapshot.Node(nominated); n != nil && (result == nil || result.NodeNames[nominated]) &&
		p.RunFilterPluginsWithNominatedPods(ctx, state, pod, n).IsSuccess() {
		left, _, err := p.FilterExtenders(ctx, pod, []*framework.NodeInfo{n})
		if err != nil {
			klog.FromContext(ctx).Error(err, "Evaluation failed on nominated node", "pod", klog.KObj(pod.Pod), "node", nominated)
		}
		if len(left) > 0 {
			return n, nil // room was made for it there
		}
	}
	began := time.Now()
	err := a.findFeasible(ctx, p, state, pod, result, snapshot)
	p.Took("Filter", err, began)
	if err != nil || len(a.feasible) == 1 {
		return a.only(), err
	}
	scores, status := p.RunScorePlugins(ctx, state, pod, snapshot, a.feasible)
	if !status.IsSuccess() {
		return nil, status.AsError()
	}
	return selectHost(a.feasible, scores, a.random), nil
}

func (a *algorithm) only() *framework.NodeInfo {
	if len(a.feasible) != 1 {
		return nil
	}
	return a.feasible[0]
}

// findFeasible fills feasible with enough nodes that pass all filters. The
// error says why none does.
func (a *algorithm) findFeasible(ctx context.Context, p *profile.Profile, state *framework.CycleState, pod *framework.PodInfo, result *framework.PreFilterResult, snapshot *framework.Snapshot) error {
	a.feasible, a.statuses = a.feasible[:0], a.statuses[:0]
	nodes := snapshot.Nodes()
	var absent *framework.Status
	if result != nil {
		nodes = narrowed(snapshot, result)
		absent = result.Absent()
	}
	enough := numFeasibleNodesToFind(len(nodes), ptr.Deref(p.PercentageOfNodesToScore, a.percentage))
	start, visited := 0, 0
	if len(nodes) > 0 {
		start = a.start % len(nodes)
	}
	for ; visited < len(nodes) && len(a.feasible) < enough; visited++ {
		i := start + visited
		if i >= len(nodes) {
			i -= len(nodes)
		}
		status := p.RunFilterPluginsWithNominatedPods(ctx, state, pod, nodes[i])
		if status.Code() == framework.Error {
			return fmt.Errorf("running %q filter plugin: %w", status.Plugin(), status.AsError())
		}
		if status == nil {
			a.feasible = append(a.feasible, nodes[i])
		}
		a.statuses = append(a.statuses, status)
	}
	if result == nil {
		a.start = (start + visited) % len(nodes)
	}
	passed := len(a.feasible)
	left, rejected, err := p.FilterExtenders(ctx, pod, a.feasible)
	if a.feasible = left; err != nil || len(left) > 0 {
		return err
	}
	a.visited = append(append(a.visited[:0], nodes[start:]...), nodes[:start]...)[:visited]
	if i := slices.IndexFunc(a.statuses, (*framework.Status).IsTransient); i >= 0 {
		return fmt.Errorf("node %s: %w", a.visited[i].Name, a.statuses[i].AsError())
	}
	unfit := &framework.FitError{NumAllNodes: snapshot.NumNodes(), Nodes: framework.NodesToStatuses(absent, a.visited, a.statuses)}
	unfit.AddPlugins()
	addNarrowing(unfit, absent.Code(), result)
	for name, status := range rejected {
		unfit.Nodes.Set(name, status)
	}
	if passed > 0 {
		unfit.UnschedulablePlugins = append(unfit.UnschedulablePlugins, framework.ExtenderName)
	}
	return unfit
}

// addNarrowing notes which plugins have taken nodes away in PreFilter. result is nil if
// none has.
func addNarrowing(unfit *framework.FitError, code framework.Code, result *framework.PreFilterResult) {
	if result == nil {
		return
	}
	for _, plugin := range result.Plugins {
		unfit.AddPlugin(framework.NewStatus(code, plugin))
	}
}

// narrowed returns the nodes that a PreFilter left, in the snapshot's order if
// they are many.
func narrowed(snapshot *framework.Snapshot, result *framework.PreFilterResult) []*framework.NodeInfo {
	var nodes []*framework.NodeInfo
	if len(result.NodeNames) == 1 {
		for name := range result.NodeNames {
			if n := snapshot.Node(name); n != nil {
				nodes = append(nodes, n)
			}
		}
		return nodes
	}
	for _, n := range snapshot.Nodes() {
		if result.NodeNames[n.Name] {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// numFeasibleNodesToFind is how many feasible nodes are enough: all up to 100,
// then a share of them, by default one that falls from 50 % to 5 %.
func numFeasibleNodesToFind(nodes int, percentage int32) int {
	const fewest = 100
	if nodes <= fewest || percentage >= 100 {
		return nodes
	}
	share := int(percentage)
	if share == 0 {
		share = max(50-nodes/125, 5)
	}
	return max(nodes*share/100, fewest)
}

// selectHost returns one of the nodes with the highest score, at random.
func selectHost(nodes []*framework.NodeInfo, scores []int64, random *rand.Rand) *framework.NodeInfo {
	best, ties := 0, 1
	for i := 1; i < len(nodes); i++ {
		switch {
		case scores[i] > scores[best]:
			best, ties = i, 1
		case scores[i] == scores[best]:
			if ties++; random.IntN(ties) == 0 {
				best = i
			}
		}
	}
	return nodes[best]
}
