package interpodaffinity

import (
	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// Score implements framework.Score: the weights of the preferred terms, the
// pod's own and those of running pods that speak of it, summed by domain.
func (p Plugin) Score(pod *framework.Pod, cluster *framework.Cluster, _ []*framework.Node) (framework.NodeScore, func([]int64)) {
	weights := p.weights(pod, cluster)
	if len(weights) == 0 {
		return nil, nil
	}
	rate := func(n *framework.Node) int64 {
		var sum int64
		for key, values := range weights {
			if value, ok := n.Node.Labels[key]; ok {
				sum += values[value]
			}
		}
		return sum
	}
	return rate, normalizeRange
}

func (p Plugin) weights(pod *framework.Pod, cluster *framework.Cluster) domains {
	out := domains{}
	own := func(terms []framework.WeightedTerm, sign int64) {
		for i := range terms {
			term := []framework.AffinityTerm{terms[i].AffinityTerm}
			for n, count := range cluster.TermsTally(term).Nodes() {
				out.add(n, term[0].TopologyKey, sign*terms[i].Weight*count)
			}
		}
	}
	own(pod.PreferredAffinity, 1)
	own(pod.PreferredAntiAffinity, -1)
	for carried := range cluster.Carried() {
		weight := p.weight(carried)
		if weight == 0 || !carried.Term.Matches(pod.Pod, cluster.Namespaces) {
			continue
		}
		for n, count := range carried.Nodes() {
			out.add(n, carried.Term.TopologyKey, weight*count)
		}
	}
	return out
}

// weight is what a running pod's term counts for when this pod matches it.
func (p Plugin) weight(carried *framework.Carried) int64 {
	switch carried.Role {
	case framework.RequiredAffinity:
		if p.HardPodAffinityWeight != 0 {
			return p.HardPodAffinityWeight
		}
		return defaultHardWeight
	case framework.PreferredAffinity:
		return carried.Weight
	case framework.PreferredAntiAffinity:
		return -carried.Weight
	default:
		return 0
	}
}

// normalizeRange maps the smallest rating to 0 and the largest to MaxScore.
func normalizeRange(ratings []int64) {
	if len(ratings) == 0 {
		return
	}
	lowest, highest := ratings[0], ratings[0]
	for _, r := range ratings {
		lowest, highest = min(lowest, r), max(highest, r)
	}
	for i, r := range ratings {
		ratings[i] = 0
		if highest > lowest {
			ratings[i] = framework.MaxScore * (r - lowest) / (highest - lowest)
		}
	}
}
