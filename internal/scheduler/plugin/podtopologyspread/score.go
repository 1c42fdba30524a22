package podtopologyspread

import (
	"context"
	"math"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// ignored marks a node that lacks a topology key of the constraints; it gets
// the worst score.
const ignored = int64(math.MinInt64)

// preScoreState is how the matching pods lie over the domains of the nodes.
type preScoreState struct {
	spreads []scoredSpread
	allKeys bool // only nodes with all keys count: not so for the system's defaults
}

// scoredSpread is how the matching pods lie over the domains of one constraint.
type scoredSpread struct {
	topology *framework.Topology
	pods     *framework.PodCount
	counts   []int64 // by domain; nil if each node is a domain, on which only its own pods count
	weight   float64
	skew     float64 // maxSkew-1
}

// PreScore implements framework.PreScorePlugin. Domains of keys with many
// values weigh more.
func (p *plugin) PreScore(_ context.Context, state *framework.CycleState, pod *framework.PodInfo, snapshot *framework.Snapshot, nodes []*framework.NodeInfo) *framework.Status {
	constraints := p.constraintsOf(pod, v1.ScheduleAnyway)
	if len(constraints) == 0 {
		return framework.NewStatus(framework.Skip, Name)
	}
	affinity := nodeaffinity.GetRequiredNodeAffinity(pod.Pod)
	measured := &preScoreState{spreads: make([]scoredSpread, len(constraints)), allKeys: len(pod.Pod.Spec.TopologySpreadConstraints) > 0 || !p.system}
	for i := range constraints {
		c := &constraints[i]
		measured.spreads[i] = scoredSpread{topology: snapshot.Topology(c.TopologyKey), pods: c.count(snapshot, pod.Pod.Namespace), skew: float64(c.MaxSkew - 1)}
	}
	for i := range constraints {
		c, s := &constraints[i], &measured.spreads[i]
		counts := make([]int64, s.topology.Size())
		for domain := range counts {
			counts[domain] = notCounted
		}
		domains := 0
		for _, n := range nodes {
			if domain := s.topology.Domain(n); domain >= 0 && counts[domain] == notCounted && measured.counts(n) {
				counts[domain] = 0
				domains++
			}
		}
		s.weight = math.Log(float64(domains + 2))
		if c.TopologyKey == v1.LabelHostname {
			continue
		}
		for n, count := range s.pods.Nodes() {
			if domain := s.topology.Domain(n); domain >= 0 && counts[domain] != notCounted && measured.counts(n) && c.counted(pod, &affinity, n) {
				counts[domain] += count
			}
		}
		s.counts = counts
	}
	p.scoreKey.Put(state, measured)
	return nil
}

// counts reports whether a node has the labels that it must have.
func (s *preScoreState) counts(n *framework.NodeInfo) bool {
	for i := range s.spreads {
		if s.allKeys && s.spreads[i].topology.Domain(n) < 0 {
			return false
		}
	}
	return true
}

// Score implements framework.ScorePlugin: the number of matching pods in the
// node's domains.
func (p *plugin) Score(_ context.Context, state *framework.CycleState, _ *framework.PodInfo, n *framework.NodeInfo) (int64, *framework.Status) {
	s, _ := p.scoreKey.Get(state)
	if !s.counts(n) {
		return ignored, nil
	}
	var sum float64
	for i := range s.spreads {
		one := &s.spreads[i]
		domain := one.topology.Domain(n)
		if domain < 0 {
			continue
		}
		count := int64(0)
		if one.counts == nil {
			count = one.pods.On(n)
		} else {
			count = max(one.counts[domain], 0)
		}
		sum += float64(count)*one.weight + one.skew
	}
	return int64(math.Round(sum)), nil
}

// NormalizeScore implements framework.ScoreNormalizer: the lowest count is the best.
func (*plugin) NormalizeScore(_ context.Context, _ *framework.CycleState, _ *framework.PodInfo, ratings []int64) *framework.Status {
	lowest, highest := int64(math.MaxInt64), int64(0)
	for _, r := range ratings {
		if r != ignored {
			lowest, highest = min(lowest, r), max(highest, r)
		}
	}
	for i, r := range ratings {
		switch {
		case r == ignored:
			ratings[i] = 0
		case highest == 0:
			ratings[i] = framework.MaxNodeScore
		default:
			ratings[i] = framework.MaxNodeScore * (highest + lowest - r) / highest
		}
	}
	return nil
}
