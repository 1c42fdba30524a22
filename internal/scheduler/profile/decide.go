package profile

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// scoreLevel is the level of the log at which the scores of nodes are logged, as
// upstream does. Nothing is shared then, so that there are scores of each plugin.
const scoreLevel = 10

// cycle holds the plugins that take part in one attempt.
type cycle struct {
	snapshot   *framework.Snapshot
	filters    []filter // that are not skipped, in order
	extensions []framework.PreFilterExtensions
	checkAll   bool // ask every filter, even if one has rejected the node
	preBind    []framework.PreBindPlugin

	shared   *sharedResults // nil: nothing is shared
	unsigned []filter       // of filters: those whose results are not shared
	last     int            // greater than every position
	trials   int            // that are not reverted: the nodes are not as others see them

	logged             bool // the scores are logged
	timed, timeFilters bool // the attempt is measured; so is the next call of filters
	// asked counts the nodes for which so many of filters were asked; likewise
	// askedSigned of those that are shared and askedUnsigned of unsigned.
	asked, askedSigned, askedUnsigned []int
}

// filter is a filter of a cycle.
type filter struct {
	framework.FilterPlugin
	position int  // in points.filter
	signed   bool // its results are shared
}

// RunPreFilterPlugins prepares the filters. A rejection is of the whole pod; there is a
// result beside it if plugins leave no node together. If preemption may help, the other
// plugins are prepared too: its trials ask their filters. Of several rejections the last
// one counts then.
func (p *Profile) RunPreFilterPlugins(ctx context.Context, state *framework.CycleState, pod *framework.PodInfo, snapshot *framework.Snapshot) (result *framework.PreFilterResult, status *framework.Status) {
	began := time.Now()
	defer func() { p.took("PreFilter", status, began) }()
	c := &cycle{snapshot: snapshot, checkAll: p.checkAll, filters: make([]filter, 0, len(p.points.filter)), last: len(p.points.filter)}
	c.logged = klog.FromContext(ctx).V(scoreLevel).Enabled()
	p.cycles.Put(state, c)
	p.samples.begin(c)
	var skipped, narrowing []string
	var names map[string]bool
	var rejected *framework.Status
	resizing := pod.IsResizing()
	for i, plugin := range p.points.preFilter {
		if resizing && !framework.HandlesDeferredResizes(plugin) {
			continue
		}
		began := c.began()
		r, s := plugin.PreFilter(ctx, state, pod, snapshot)
		p.samples.ran("PreFilter", plugin, s, began)
		if !s.IsSkip() {
			evaluated(p.samples.preFilter, i)
		}
		switch {
		case s.IsSkip():
			skipped = append(skipped, plugin.Name())
			continue
		case s.Code() == framework.Unschedulable:
			rejected = s
		case !s.IsSuccess():
			return nil, s
		}
		if e, ok := plugin.(framework.PreFilterExtensions); ok {
			c.extensions = append(c.extensions, e)
		}
		if r == nil || r.NodeNames == nil {
			continue
		}
		narrowing = append(narrowing, plugin.Name())
		if names == nil {
			names = maps.Clone(r.NodeNames)
		} else {
			maps.DeleteFunc(names, func(name string, _ bool) bool { return !r.NodeNames[name] })
		}
		if len(names) == 0 {
			slices.Sort(narrowing)
			message := fmt.Sprintf("node(s) didn't satisfy plugin(s) %v simultaneously", narrowing)
			if len(narrowing) == 1 {
				message = fmt.Sprintf("node(s) didn't satisfy plugin %v", narrowing[0])
			}
			return &framework.PreFilterResult{NodeNames: names, Plugins: narrowing}, framework.NewStatus(framework.UnschedulableAndUnresolvable, plugin.Name(), message)
		}
	}
	// Results of a few nodes are not worth a table of all.
	few := names != nil && len(names) < snapshot.NumSlots()/16
	if p.sharing != nil && !p.checkAll && rejected == nil && !few && !c.logged && !resizing {
		c.shared = p.sharing.of(pod, snapshot)
	}
	p.prepareFilters(c, resizing, skipped)
	if rejected != nil {
		return nil, rejected
	}
	if names != nil {
		slices.Sort(narrowing)
		return &framework.PreFilterResult{NodeNames: names, Plugins: narrowing}, nil
	}
	return nil, nil
}

// prepareFilters fills the filters of a cycle. resizing is whether the resize of the pod
// is deferred.
func (p *Profile) prepareFilters(c *cycle, resizing bool, skipped []string) {
	for i, f := range p.points.filter {
		if slices.Contains(skipped, f.Name()) || resizing && !framework.HandlesDeferredResizes(f) {
			continue
		}
		one := filter{FilterPlugin: f, position: i, signed: c.shared != nil && c.shared.signs(p.sharing.filters[i])}
		c.filters = append(c.filters, one)
		if !one.signed {
			c.unsigned = append(c.unsigned, one)
		}
	}
	n := len(c.filters) + 1
	asked := make([]int, 3*n)
	c.asked, c.askedSigned, c.askedUnsigned = asked[:n:n], asked[n:2*n:2*n], asked[2*n:]
}

// runFilters returns what the filters say of a node.
func (c *cycle) runFilters(ctx context.Context, state *framework.CycleState, pod *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	if c.shared == nil || c.trials > 0 {
		return c.askFilters(ctx, state, pod, node)
	}
	return c.runShared(ctx, state, pod, node)
}

// askFilters asks each filter about a node until one rejects it, or all of them
// if the policy wants every reason.
func (c *cycle) askFilters(ctx context.Context, state *framework.CycleState, pod *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	var rejected *framework.Status
	for i, f := range c.filters {
		s := f.Filter(ctx, state, pod, node)
		if s == nil || s.IsSuccess() {
			continue
		}
		if !c.checkAll || !s.IsRejected() {
			c.asked[i+1]++
			return s
		}
		rejected = rejected.And(s)
	}
	c.asked[len(c.filters)]++
	return rejected
}

// RunFilterPluginsWithNominatedPods implements framework.FilterRunner. A node must
// pass the filters with the nominated pods and without them. The filters without
// come first: their answers are shared, and no trial is needed for a node that
// fails them.
func (p *Profile) RunFilterPluginsWithNominatedPods(ctx context.Context, state *framework.CycleState, pod *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	c, _ := p.cycles.Get(state)
	var s *framework.Status
	if c.timeFilters {
		s = p.askTimed(ctx, c, state, pod, node)
	} else {
		s = c.runFilters(ctx, state, pod, node)
	}
	if !s.IsSuccess() {
		return s
	}
	if nominated := p.handle.Nominator.NominatedPodsForNode(node.Name); len(nominated) > 0 {
		if with, asked := c.filtersWithNominated(ctx, state, pod, node, nominated); asked {
			return with
		}
	}
	return s
}

// filtersWithNominated asks the filters with the nominated pods on the node
// that have at least the pod's priority. asked is false if there are none.
func (c *cycle) filtersWithNominated(ctx context.Context, state *framework.CycleState, pod *framework.PodInfo, node *framework.NodeInfo, nominated []*framework.PodInfo) (s *framework.Status, asked bool) {
	t := c.newTrial(ctx, state, pod)
	defer t.Revert()
	if asked, s = t.addNominated(node, nominated); !asked || !s.IsSuccess() {
		return s, asked
	}
	return c.runFilters(ctx, state, pod, node), true
}

// addNominated adds the nominated pods that have at least the pod's priority.
// added is false if there are none.
func (t *trial) addNominated(node *framework.NodeInfo, nominated []*framework.PodInfo) (added bool, status *framework.Status) {
	for _, other := range nominated {
		if other.Priority < t.pod.Priority || other.Pod.UID == t.pod.Pod.UID || t.cycle.snapshot.PodOn(node.Name, other.Pod.UID) != nil {
			continue
		}
		if s := t.AddPod(other, node); !s.IsSuccess() {
			return true, s
		}
		added = true
	}
	return added, nil
}

// PodSignature implements framework.FilterRunner: filters that sign the pod look
// only at the pod and the node.
func (p *Profile) PodSignature(state *framework.CycleState) any {
	c, ok := p.cycles.Get(state)
	if !ok || c.shared == nil || len(c.unsigned) > 0 {
		return nil
	}
	return c.shared
}

// Trial implements framework.FilterRunner.
func (p *Profile) Trial(ctx context.Context, state *framework.CycleState, pod *framework.PodInfo) framework.Trial {
	c, _ := p.cycles.Get(state)
	return c.newTrial(ctx, state, pod)
}

func (c *cycle) newTrial(ctx context.Context, state *framework.CycleState, pod *framework.PodInfo) *trial {
	c.trials++
	return &trial{ctx: ctx, cycle: c, state: state, pod: pod}
}

// trial is a what-if: changes of the snapshot and of the plugins' states, with
// what it takes to undo them.
type trial struct {
	ctx   context.Context
	cycle *cycle
	state *framework.CycleState
	pod   *framework.PodInfo
	done  []step
}

type step struct {
	pod        *framework.PodInfo
	node       *framework.NodeInfo
	added      bool
	generation uint64 // of the node before
}

// AddPod implements framework.Trial.
func (t *trial) AddPod(added *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	t.done = append(t.done, step{added, node, true, node.Generation})
	return t.add(added, node)
}

// RemovePod implements framework.Trial.
func (t *trial) RemovePod(removed *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	t.done = append(t.done, step{removed, node, false, node.Generation})
	return t.remove(removed, node)
}

// Revert implements framework.Trial. A node that is as it was has its old
// generation again.
func (t *trial) Revert() {
	t.cycle.trials--
	defer t.restoreSnapshot()
	for len(t.done) > 0 {
		s := t.undo()
		if s.added {
			t.remove(s.pod, s.node)
		} else {
			t.add(s.pod, s.node)
		}
		s.node.Generation = s.generation
	}
}

// undo returns the last step, which the caller undoes.
func (t *trial) undo() step {
	last := t.done[len(t.done)-1]
	t.done = t.done[:len(t.done)-1]
	return last
}

// restoreSnapshot undoes in the snapshot the steps that Revert did not reach
// because a plugin panicked: later decisions use the same snapshot.
func (t *trial) restoreSnapshot() {
	for len(t.done) > 0 {
		if s := t.undo(); s.added {
			t.cycle.snapshot.RemovePod(s.pod, s.node.Name)
		} else {
			t.cycle.snapshot.AddPod(s.pod, s.node.Name)
		}
	}
}

func (t *trial) add(pod *framework.PodInfo, node *framework.NodeInfo) (first *framework.Status) {
	t.cycle.snapshot.AddPod(pod, node.Name)
	for _, e := range t.cycle.extensions {
		if s := e.AddPod(t.ctx, t.state, t.pod, pod, node); first.IsSuccess() {
			first = s
		}
	}
	return first
}

func (t *trial) remove(pod *framework.PodInfo, node *framework.NodeInfo) (first *framework.Status) {
	t.cycle.snapshot.RemovePod(pod, node.Name)
	for _, e := range t.cycle.extensions {
		if s := e.RemovePod(t.ctx, t.state, t.pod, pod, node); first.IsSuccess() {
			first = s
		}
	}
	return first
}

// RunScorePlugins returns the weighted sum of the scores of each node, which is
// valid until the next call. It belongs to the scheduling cycle.
func (p *Profile) RunScorePlugins(ctx context.Context, state *framework.CycleState, pod *framework.PodInfo, snapshot *framework.Snapshot, nodes []*framework.NodeInfo) (total []int64, status *framework.Status) {
	began := time.Now()
	active, status := p.runPreScorePlugins(ctx, state, pod, snapshot, nodes)
	if p.took("PreScore", status, began); !status.IsSuccess() {
		return nil, status
	}
	began = time.Now()
	defer func() { p.took("Score", status, began) }()
	var shared *sharedResults
	logged := false
	if c, ok := p.cycles.Get(state); ok {
		logged = c.logged
		if shared = c.shared; c.timed {
			p.timeScores(ctx, state, pod, nodes[0], active)
		}
	}
	p.scores = slices.Grow(p.scores[:0], 2*len(nodes))[:2*len(nodes)]
	total, scores := p.scores[:len(nodes):len(nodes)], p.scores[len(nodes):]
	clear(total)
	if shared != nil {
		for i, n := range nodes {
			if shared.ratings[n.Slot].generation != n.Generation {
				if s := p.rate(ctx, state, pod, shared, n, active); !s.IsSuccess() {
					return nil, s
				}
			}
			total[i] = shared.ratings[n.Slot].sum
		}
	}
	for _, i := range active {
		if s := p.addScores(ctx, state, pod, nodes, shared, i, scores, total); !s.IsSuccess() {
			return nil, s
		}
		if logged {
			p.points.score[i].log(ctx, pod, nodes, scores)
		}
	}
	p.samples.flushScores()
	if p.extenders != nil {
		p.extenders.Prioritize(ctx, pod, nodes, total)
	}
	if logged {
		for i, n := range nodes {
			klog.FromContext(ctx).V(scoreLevel).Info("Calculated node's final score for pod", "pod", klog.KObj(pod.Pod), "node", n.Name, "score", total[i])
		}
	}
	return total, nil
}

// runPreScorePlugins returns the positions in points.score of the plugins that
// have something to say about the pod.
func (p *Profile) runPreScorePlugins(ctx context.Context, state *framework.CycleState, pod *framework.PodInfo, snapshot *framework.Snapshot, nodes []*framework.NodeInfo) ([]int, *framework.Status) {
	var skipped []string
	c, _ := p.cycles.Get(state)
	for i, plugin := range p.points.preScore {
		began := c.began()
		s := plugin.PreScore(ctx, state, pod, snapshot, nodes)
		p.samples.ran("PreScore", plugin, s, began)
		if s.IsSkip() {
			skipped = append(skipped, plugin.Name())
			continue
		}
		evaluated(p.samples.preScore, i)
		if !s.IsSuccess() {
			return nil, failure(s, plugin, "running PreScore plugin %q: %w")
		}
	}
	active := make([]int, 0, len(p.points.score))
	for i := range p.points.score {
		if !slices.Contains(skipped, p.points.score[i].Name()) {
			active = append(active, i)
		}
	}
	return active, nil
}

// addScores adds the weighted scores of a plugin to the total. scores has room
// for one of each node.
func (p *Profile) addScores(ctx context.Context, state *framework.CycleState, pod *framework.PodInfo, nodes []*framework.NodeInfo, shared *sharedResults, position int, scores, total []int64) (status *framework.Status) {
	plugin := &p.points.score[position]
	switch {
	case p.sharing == nil || !shared.signs(p.sharing.scores[position]):
		p.samples.scored[position] += len(nodes)
		status = plugin.scoreNodes(ctx, state, pod, nodes, scores)
	case plugin.normalize == nil:
		return nil // in the sum of the rating
	default:
		for i, n := range nodes {
			scores[i] = shared.raw[n.Slot*shared.stride+p.sharing.raw[position]]
		}
		status = plugin.normalized(ctx, state, pod, scores)
	}
	if !status.IsSuccess() {
		return status
	}
	for i, score := range scores {
		total[i] += score * plugin.weight
	}
	return nil
}

// log logs the weighted score of each node.
func (w *weightedScore) log(ctx context.Context, pod *framework.PodInfo, nodes []*framework.NodeInfo, scores []int64) {
	for i, n := range nodes {
		klog.FromContext(ctx).V(scoreLevel).Info("Plugin scored node for pod", "pod", klog.KObj(pod.Pod), "plugin", w.Name(), "node", n.Name, "score", scores[i]*w.weight)
	}
}

// scoreFailure is the format of failure for Score.
const scoreFailure = "running Score plugins: plugin %q failed with: %w"

// scoreNodes fills scores with the normalized score of each node.
func (w *weightedScore) scoreNodes(ctx context.Context, state *framework.CycleState, pod *framework.PodInfo, nodes []*framework.NodeInfo, scores []int64) *framework.Status {
	for i, n := range nodes {
		score, s := w.Score(ctx, state, pod, n)
		if !s.IsSuccess() {
			return failure(s, w, scoreFailure)
		}
		scores[i] = score
	}
	return w.normalized(ctx, state, pod, scores)
}

// normalized brings the scores of all nodes into range.
func (w *weightedScore) normalized(ctx context.Context, state *framework.CycleState, pod *framework.PodInfo, scores []int64) *framework.Status {
	if w.normalize != nil {
		if s := w.normalize.NormalizeScore(ctx, state, pod, scores); !s.IsSuccess() {
			return failure(s, w, "running Normalize on Score plugins: plugin %q failed with: %w")
		}
	}
	for _, score := range scores {
		if s := inRange(w, score); !s.IsSuccess() {
			return s
		}
	}
	return nil
}
