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

func (p Plugin) weights(pod *framework.Pod, cluster *framework.Cluster) map[string]map[string]int64 {
	out := map[string]map[string]int64{}
	add := func(term *framework.AffinityTerm, weight int64, subject *framework.Pod, node *framework.Node) {
		value, ok := node.Node.Labels[term.TopologyKey]
		if !ok || weight == 0 || !term.Matches(subject.Pod, cluster.Namespaces) {
			return
		}
		if out[term.TopologyKey] == nil {
			out[term.TopologyKey] = map[string]int64{}
		}
		out[term.TopologyKey][value] += weight
	}
	if len(pod.PreferredAffinity)+len(pod.PreferredAntiAffinity) > 0 {
		for _, n := range cluster.Nodes {
			for _, other := range n.Pods {
				for i := range pod.PreferredAffinity {
					add(&pod.PreferredAffinity[i].AffinityTerm, pod.PreferredAffinity[i].Weight, other, n)
				}
				for i := range pod.PreferredAntiAffinity {
					add(&pod.PreferredAntiAffinity[i].AffinityTerm, -pod.PreferredAntiAffinity[i].Weight, other, n)
				}
			}
		}
	}
	hard := p.HardPodAffinityWeight
	if hard == 0 {
		hard = defaultHardWeight
	}
	for n := range cluster.WithAffinity {
		if n.Node == nil {
			continue
		}
		for _, other := range n.Pods {
			for i := range other.RequiredAffinity {
				add(&other.RequiredAffinity[i], hard, pod, n)
			}
			for i := range other.PreferredAffinity {
				add(&other.PreferredAffinity[i].AffinityTerm, other.PreferredAffinity[i].Weight, pod, n)
			}
			for i := range other.PreferredAntiAffinity {
				add(&other.PreferredAntiAffinity[i].AffinityTerm, -other.PreferredAntiAffinity[i].Weight, pod, n)
			}
		}
	}
	return out
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
