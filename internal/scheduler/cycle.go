package scheduler

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/all"
)

// profile is what one scheduler name decides by.
type profile struct {
	filters []framework.Filter
	scores  []all.WeightedScore
	// observe, if set, is told how long all plugins of an extension point took.
	observe func(point string, ok bool, took time.Duration)
}

// took tells how long an extension point took, which began then.
func (p *profile) took(point string, ok bool, began time.Time) {
	if p.observe != nil {
		p.observe(point, ok, time.Since(began))
	}
}

// fitError says why no node can take a pod. Its text is upstream's.
type fitError struct {
	nodes    int
	failures map[string]*framework.Failure // by node
}

func (e *fitError) Error() string {
	if e.nodes == 0 {
		return "no nodes available to schedule pods"
	}
	reasons := map[string]int{}
	for _, f := range e.failures {
		for _, reason := range f.Reasons {
			reasons[reason]++
		}
	}
	return fmt.Sprintf("0/%d nodes are available: %s.", e.nodes, counted(reasons))
}

// plugins returns the names of the filters that failed somewhere.
func (e *fitError) plugins() []string {
	var names []string
	for _, f := range e.failures {
		if !slices.Contains(names, f.Plugin) {
			names = append(names, f.Plugin)
		}
	}
	slices.Sort(names)
	return names
}

// choose returns the best node for the pod, or a *fitError. start is where
// the search for feasible nodes begins; next is where the next one should,
// so that every node gets its turn when only a sample is looked at.
func (p *profile) choose(pod *framework.Pod, cluster *framework.Cluster, start int, random *rand.Rand) (best *framework.Node, next int, err error) {
	began := time.Now()
	feasible, failures, next := p.feasible(pod, cluster, start)
	p.took("Filter", len(feasible) > 0, began)
	switch len(feasible) {
	case 0:
		return nil, next, &fitError{nodes: len(cluster.Nodes), failures: failures}
	case 1:
		return feasible[0], next, nil
	}
	began = time.Now()
	ratings := p.rate(pod, cluster, feasible)
	p.took("Score", true, began)
	return pick(feasible, ratings, random), next, nil
}

// feasible returns enough nodes that pass every filter, or why none does.
func (p *profile) feasible(pod *framework.Pod, cluster *framework.Cluster, start int) ([]*framework.Node, map[string]*framework.Failure, int) {
	checks := make([]framework.NodeFilter, 0, len(p.filters))
	for _, f := range p.filters {
		if check := f.Filter(pod, cluster); check != nil {
			checks = append(checks, check)
		}
	}
	total := len(cluster.Nodes)
	enough := sampleSize(total)
	feasible := make([]*framework.Node, 0, min(enough, total))
	failed := make([]*framework.Failure, 0, total)
	visited := 0
	for ; visited < total && len(feasible) < enough; visited++ {
		node := cluster.Nodes[(start+visited)%total]
		failure := firstFailure(checks, node)
		if failure == nil {
			feasible = append(feasible, node)
		}
		failed = append(failed, failure)
	}
	var failures map[string]*framework.Failure
	if len(feasible) == 0 {
		failures = make(map[string]*framework.Failure, len(failed))
		for i, failure := range failed {
			failures[cluster.Nodes[(start+i)%total].Name] = failure
		}
	}
	next := 0
	if total > 0 {
		next = (start + visited) % total
	}
	return feasible, failures, next
}

func firstFailure(checks []framework.NodeFilter, node *framework.Node) *framework.Failure {
	for _, check := range checks {
		if failure := check(node); failure != nil {
			return failure
		}
	}
	return nil
}

// sampleSize is how many feasible nodes are enough: all up to 100, then a
// share that falls from 50 % to 5 % as clusters grow (percentageOfNodesToScore).
func sampleSize(nodes int) int {
	const fewest = 100
	if nodes <= fewest {
		return nodes
	}
	percent := max(50-nodes/125, 5)
	return max(nodes*percent/100, fewest)
}

// rate sums the weighted scores of each feasible node.
func (p *profile) rate(pod *framework.Pod, cluster *framework.Cluster, feasible []*framework.Node) []int64 {
	total := make([]int64, len(feasible))
	ratings := make([]int64, len(feasible))
	for _, s := range p.scores {
		rate, normalize := s.Score.Score(pod, cluster, feasible)
		if rate == nil {
			continue
		}
		for i, n := range feasible {
			ratings[i] = rate(n)
		}
		if normalize != nil {
			normalize(ratings)
		}
		for i := range total {
			total[i] += ratings[i] * s.Weight
		}
	}
	return total
}

// pick returns one of the nodes with the highest rating, at random.
func pick(nodes []*framework.Node, ratings []int64, random *rand.Rand) *framework.Node {
	best, ties := 0, 1
	for i := 1; i < len(nodes); i++ {
		switch {
		case ratings[i] > ratings[best]:
			best, ties = i, 1
		case ratings[i] == ratings[best]:
			if ties++; random.IntN(ties) == 0 {
				best = i
			}
		}
	}
	return nodes[best]
}
