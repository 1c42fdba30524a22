package defaultpreemption

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// candidate is a node that would take the pod if its victims were gone.
type candidate struct {
	node       string
	victims    []*framework.PodInfo // most important first; none if those that are terminating are enough
	violations int                  // victims whose eviction a disruption budget forbids
}

// trials looks for candidates, by removing pods from the snapshot and putting
// them back.
type trials struct {
	plugin   *plugin
	ctx      context.Context
	state    *framework.CycleState
	pod      *framework.PodInfo
	snapshot *framework.Snapshot
	budgets  *budgetView
	known    *knownCandidates // nil: nothing is known
	failed   bool             // a filter failed for the node that was tried last
	err      error            // of the first filter that failed
	// noVictims is why a node without pods of lower priority is no candidate.
	noVictims *framework.Status
}

// best returns the candidate that costs least, or why there is none: for each node
// why it does not take the pod even without the pods of lower priority. The error is
// of a filter that failed while there is no candidate. The search begins where the last
// one ended and stops once there are enough candidates, one of which breaks no budget.
func (t *trials) best(nodes *framework.NodeToStatus) (*candidate, string, error) {
	t.noVictims = framework.NewStatus(framework.UnschedulableAndUnresolvable, Name, "No preemption victims found for incoming pod")
	all := t.snapshot.Nodes()
	if t.nobodyIsBelow() {
		possible := nodes.NumWith(framework.Unschedulable, len(all))
		return nil, noCandidates(map[string]int{t.noVictims.Message(): possible}, len(all), possible), nil
	}
	t.budgets = t.plugin.budgets.view()
	t.known = t.plugin.known.of(t.plugin.handle.Filters.PodSignature(t.state), t.pod.Priority)
	possible := make([]*framework.NodeInfo, 0, len(all))
	for _, n := range all {
		if nodes.Of(n).Code() == framework.Unschedulable {
			possible = append(possible, n)
		}
	}
	enough := max(len(possible)*int(*t.plugin.arguments.MinCandidateNodesPercentage)/100, int(*t.plugin.arguments.MinCandidateNodesAbsolute))
	var best option
	var options []option // for extenders
	found, kept, visited := 0, false, 0
	reasons := map[string]int{} // of nodes that are no candidates, until there is one
	for ; visited < len(possible) && (found < enough || !kept); visited++ {
		o, why := t.option(possible[(t.plugin.start+visited)%len(possible)])
		if why != nil {
			if found == 0 {
				count(reasons, why)
			}
			continue
		}
		if found++; found == 1 || compareCosts(o.cost, best.cost) < 0 {
			best = o
		}
		if t.plugin.handle.Extenders != nil {
			options = append(options, o)
		}
		kept = kept || o.cost.violations == 0
	}
	if found > 0 {
		t.plugin.start = (t.plugin.start + visited) % len(possible)
		if t.plugin.handle.Extenders == nil || best.cost.victims == 0 {
			return t.made(best), "", nil
		}
		return t.askExtenders(options)
	}
	if t.err != nil {
		return nil, "", t.err
	}
	return nil, noCandidates(reasons, len(all), len(possible)), nil
}

// noCandidates says why none of all nodes is a candidate. reasons are of those that could
// be one.
func noCandidates(reasons map[string]int, all, possible int) string {
	if n := all - possible; n > 0 {
		reasons["Preemption is not helpful for scheduling"] += n
	}
	maps.DeleteFunc(reasons, func(_ string, n int) bool { return n == 0 })
	return fmt.Sprintf("0/%d nodes are available: %s.", all, framework.CountReasons(reasons))
}

// nobodyIsBelow reports whether no pod on any node can be a victim, as in clusters
// whose pods all have the same priority. The nodes need not be looked at then.
func (t *trials) nobodyIsBelow() bool {
	bound := t.plugin.handle.Bound
	return bound != nil && !bound.HasBelow(t.pod.Priority)
}

// count adds the reasons of one node.
func count(reasons map[string]int, why *framework.Status) {
	for _, reason := range why.Reasons() {
		reasons[reason]++
	}
}

// askExtenders returns the best of the candidates that the extenders leave,
// with the victims that they choose.
func (t *trials) askExtenders(found []option) (*candidate, string, error) {
	victims := make(map[string]framework.Victims, len(found))
	for _, o := range found {
		c := t.made(o)
		victims[c.node] = framework.Victims{Pods: c.victims, NumPDBViolations: c.violations}
	}
	left, err := t.plugin.handle.Extenders.ProcessPreemption(t.ctx, t.pod, t.snapshot, victims)
	if err != nil {
		return nil, "", err
	}
	var agreed []*candidate
	for _, o := range found {
		v, ok := left[o.node.Name]
		if !ok {
			continue
		}
		chosen := slices.Clone(v.Pods)
		slices.SortFunc(chosen, compareImportance)
		agreed = append(agreed, &candidate{node: o.node.Name, victims: chosen, violations: v.NumPDBViolations})
	}
	if len(agreed) == 0 {
		return nil, "no candidate node for preemption", nil
	}
	return slices.MinFunc(agreed, compareCandidates), "", nil
}

// option is a candidate whose victims are listed only if it is chosen.
type option struct {
	node      *framework.NodeInfo
	cost      cost
	candidate *candidate // nil: a twin found it
}

// option returns what try finds on a node, if a twin of the pod has not tried the
// node as it is. why is not nil if the node is no candidate.
func (t *trials) option(n *framework.NodeInfo) (o option, why *framework.Status) {
	nominator := t.plugin.handle.Nominator
	version := nominator.Version()
	nominated := nominator.NominatedPodsForNode(n.Name)
	isOwn := func(p *framework.PodInfo) bool { return p.Pod.UID == t.pod.Pod.UID }
	reusable := t.known != nil && !slices.ContainsFunc(nominated, isOwn)
	undisturbed := len(nominated) == 0 && !t.plugin.isEvictingOn(n.Name)
	if reusable {
		if known, ok := t.known.get(n, nominated, t.budgets); ok && (undisturbed || known.why != nil) {
			return option{node: n, cost: known.cost}, known.why
		}
	}
	c, why := t.try(n)
	if reusable && (undisturbed || c == nil) && !t.failed && nominator.Version() == version {
		t.known.set(n, nominated, c, why, t.pod.Priority, t.budgets)
	}
	if c == nil {
		return option{}, why
	}
	return option{n, c.cost(), c}, nil
}

// made returns the candidate of an option.
func (t *trials) made(o option) *candidate {
	if o.candidate != nil {
		return o.candidate
	}
	return t.known.candidate(o.node)
}

// try returns the fewest least important pods of a node that must go, or why the pod
// would not fit without any of lower priority either.
func (t *trials) try(n *framework.NodeInfo) (c *candidate, why *framework.Status) {
	t.failed = false
	var lower []*framework.PodInfo
	for _, other := range n.Pods {
		if other.Priority < t.pod.Priority {
			lower = append(lower, other)
		}
	}
	if len(lower) == 0 {
		return nil, t.noVictims
	}
	trial := t.plugin.handle.Filters.Trial(t.ctx, t.state, t.pod)
	defer trial.Revert()
	for _, victim := range lower {
		if s := t.noted(trial.RemovePod(victim, n)); !s.IsSuccess() {
			return nil, s
		}
	}
	filtered := func() *framework.Status {
		return t.noted(t.plugin.handle.Filters.RunFilterPluginsWithNominatedPods(t.ctx, t.state, t.pod, n))
	}
	if s := filtered(); !s.IsSuccess() {
		return nil, s
	}
	lower = slices.DeleteFunc(lower, func(p *framework.PodInfo) bool { // they go anyway
		return p.Pod.DeletionTimestamp != nil || t.plugin.isEvicting(p.Pod.UID)
	})
	slices.SortFunc(lower, compareImportance)
	c = &candidate{node: n.Name}
	violating, others := t.budgets.divide(lower)
	for i, group := range [][]*framework.PodInfo{violating, others} {
		for _, victim := range group {
			if t.noted(trial.AddPod(victim, n)).IsSuccess() && filtered().IsSuccess() {
				continue
			}
			trial.RemovePod(victim, n)
			c.victims = append(c.victims, victim)
			if i == 0 {
				c.violations++
			}
		}
	}
	slices.SortFunc(c.victims, compareImportance)
	return c, nil
}

// noted returns a status of a trial, and notes a failure.
func (t *trials) noted(s *framework.Status) *framework.Status {
	if s.Code() == framework.Error {
		t.failed = true
		if t.err == nil {
			t.err = s.AsError()
		}
	}
	return s
}

// cost holds the criteria by which preemptions are compared.
type cost struct {
	violations int   // victims whose eviction a disruption budget forbids
	highest    int64 // priority among the victims
	sum        int64 // of their priorities
	victims    int
	started    int64 // when the most important one started
}

func (c *candidate) cost() cost {
	k := cost{violations: c.violations, highest: math.MinInt64, victims: len(c.victims), started: math.MaxInt64}
	if len(c.victims) > 0 {
		k.highest, k.started = int64(c.victims[0].Priority), started(c.victims[0])
	}
	for _, v := range c.victims {
		k.sum += int64(v.Priority) + math.MaxInt32 + 1 // so that more victims never sum to less
	}
	return k
}

// compareCosts orders costs, lowest first: broken budgets, the highest priority
// among the victims, the sum of their priorities, and their number. If costs are
// equal, the cost whose most important victim started last is lower.
func compareCosts(a, b cost) int {
	return cmp.Or(
		cmp.Compare(a.violations, b.violations),
		cmp.Compare(a.highest, b.highest),
		cmp.Compare(a.sum, b.sum),
		cmp.Compare(a.victims, b.victims),
		-cmp.Compare(a.started, b.started),
	)
}

func compareCandidates(a, b *candidate) int { return compareCosts(a.cost(), b.cost()) }

// compareImportance puts the pod that should stay longer first. The UID makes
// the order the same whatever order the node's pods are in.
func compareImportance(a, b *framework.PodInfo) int {
	return cmp.Or(-cmp.Compare(a.Priority, b.Priority), cmp.Compare(started(a), started(b)), cmp.Compare(a.Pod.UID, b.Pod.UID))
}

func started(p *framework.PodInfo) int64 {
	if p.Pod.Status.StartTime == nil {
		return math.MaxInt64
	}
	return p.Pod.Status.StartTime.UnixNano()
}
