package podtopologyspread

import (
	"math"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// ignored marks a node that lacks a topology key of the pod's own
// constraints; it gets the worst score.
const ignored = int64(math.MinInt64)

// Score implements framework.Score: the fewer matching pods in the node's
// domains, the better; domains of keys with many values weigh more.
func (Plugin) Score(pod *framework.Pod, cluster *framework.Cluster, feasible []*framework.Node) (framework.NodeScore, func([]int64)) {
	constraints := constraintsOf(pod, cluster, v1.ScheduleAnyway)
	if len(constraints) == 0 {
		return nil, nil
	}
	own := len(pod.Pod.Spec.TopologySpreadConstraints) > 0
	affinity := nodeaffinity.GetRequiredNodeAffinity(pod.Pod)
	counts := make([]map[string]int64, len(constraints))
	tallies := make([]*framework.Tally, len(constraints))
	weights := make([]float64, len(constraints))
	for i := range constraints {
		c := &constraints[i]
		byValue := map[string]int64{}
		tallies[i] = c.tally(cluster, pod.Pod.Namespace)
		for _, n := range feasible {
			if value, ok := n.Node.Labels[c.TopologyKey]; ok && (!own || hasAllKeys(n, constraints)) {
				byValue[value] = 0
			}
		}
		weights[i] = math.Log(float64(len(byValue) + 2))
		if c.TopologyKey != v1.LabelHostname { // on a host only its own pods count, read when it is rated
			for n, count := range tallies[i].Nodes() {
				value, ok := n.Node.Labels[c.TopologyKey]
				if _, wanted := byValue[value]; ok && wanted && c.counted(pod, &affinity, n) {
					byValue[value] += count
				}
			}
		}
		counts[i] = byValue
	}
	rate := func(n *framework.Node) int64 {
		if own && !hasAllKeys(n, constraints) {
			return ignored
		}
		var sum float64
		for i := range constraints {
			c := &constraints[i]
			value, ok := n.Node.Labels[c.TopologyKey]
			if !ok {
				continue
			}
			count := counts[i][value]
			if c.TopologyKey == v1.LabelHostname {
				count = tallies[i].On(n)
			}
			sum += float64(count)*weights[i] + float64(c.MaxSkew-1)
		}
		return int64(math.Round(sum))
	}
	return rate, normalize
}

// normalize turns counts into scores: the lowest count is the best.
func normalize(ratings []int64) {
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
			ratings[i] = framework.MaxScore
		default:
			ratings[i] = framework.MaxScore * (highest + lowest - r) / highest
		}
	}
}
