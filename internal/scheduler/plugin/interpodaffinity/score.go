package interpodaffinity

import (
	"context"
	"iter"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// PreScore implements framework.PreScorePlugin. It sums the weights of the
// pod's preferred terms, and of the terms of existing pods that select the pod,
// by domain.
func (p *plugin) PreScore(_ context.Context, state *framework.CycleState, pod *framework.PodInfo, snapshot *framework.Snapshot, _ []*framework.NodeInfo) *framework.Status {
	if p.arguments.IgnorePreferredTermsOfExistingPods && len(pod.PreferredAffinity)+len(pod.PreferredAntiAffinity) == 0 {
		return framework.NewStatus(framework.Skip, Name)
	}
	all := p.weights(pod, snapshot)
	if len(all) == 0 {
		return framework.NewStatus(framework.Skip, Name)
	}
	p.scoreKey.Put(state, all)
	return nil
}

// Score implements framework.ScorePlugin.
func (p *plugin) Score(_ context.Context, state *framework.CycleState, _ *framework.PodInfo, n *framework.NodeInfo) (int64, *framework.Status) {
	all, _ := p.scoreKey.Get(state)
	var sum int64
	for i := range all {
		if domain := all[i].topology.Domain(n); domain >= 0 {
			sum += all[i].of[domain]
		}
	}
	return sum, nil
}

// weights are the weights of the domains of a topology.
type weights struct {
	topology *framework.Topology
	of       []int64
}

// counted is a count of pods by node and by domain.
type counted interface {
	Nodes() iter.Seq2[*framework.NodeInfo, int64]
	NumNodes() int
	By(*framework.Topology) *framework.DomainCounts
}

func (p *plugin) weights(pod *framework.PodInfo, snapshot *framework.Snapshot) (all []weights) {
	at := map[*framework.Topology]int{}
	add := func(key string, pods counted, weight int64) {
		topology := snapshot.Topology(key)
		i, ok := at[topology]
		if !ok {
			i = len(all)
			all, at[topology] = append(all, weights{topology, make([]int64, topology.Size())}), i
		}
		all[i].add(pods, weight)
	}
	own := func(terms []framework.WeightedTerm, sign int64) {
		for i := range terms {
			add(terms[i].TopologyKey, snapshot.CountPodsOfTerms([]framework.AffinityTerm{terms[i].AffinityTerm}), sign*terms[i].Weight)
		}
	}
	own(pod.PreferredAffinity, 1)
	own(pod.PreferredAntiAffinity, -1)
	for existing := range snapshot.ExistingTerms(pod.Pod.Namespace) {
		if weight := p.weight(existing); weight != 0 && existing.Term.Matches(pod.Pod, snapshot.Namespaces()) {
			add(existing.Term.TopologyKey, existing, weight)
		}
	}
	return all
}

// add adds the weight for each of the pods. It visits their nodes, or the
// domains if those are fewer.
func (w *weights) add(pods counted, weight int64) {
	if pods.NumNodes() < len(w.of) {
		for n, count := range pods.Nodes() {
			if domain := w.topology.Domain(n); domain >= 0 {
				w.of[domain] += weight * count
			}
		}
		return
	}
	counts := pods.By(w.topology)
	for domain := range w.of {
		w.of[domain] += weight * counts.At(domain)
	}
}

// weight returns the weight of an existing pod's term if this pod matches it.
func (p *plugin) weight(existing *framework.ExistingTerm) int64 {
	switch existing.Role {
	case framework.RequiredAffinity:
		return int64(*p.arguments.HardPodAffinityWeight)
	case framework.PreferredAffinity:
		return existing.Weight
	case framework.PreferredAntiAffinity:
		return -existing.Weight
	default:
		return 0
	}
}

// NormalizeScore implements framework.ScoreNormalizer: the smallest score
// becomes 0 and the largest MaxNodeScore.
func (*plugin) NormalizeScore(_ context.Context, _ *framework.CycleState, _ *framework.PodInfo, ratings []int64) *framework.Status {
	if len(ratings) == 0 {
		return nil
	}
	lowest, highest := ratings[0], ratings[0]
	for _, r := range ratings {
		lowest, highest = min(lowest, r), max(highest, r)
	}
	for i, r := range ratings {
		ratings[i] = 0
		if highest > lowest {
			ratings[i] = int64(float64(framework.MaxNodeScore) * (float64(r-lowest) / float64(highest-lowest)))
		}
	}
	return nil
}
