package podtopologyspread

import (
	"math"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// spread is how the matching pods lie over the domains of one constraint.
type spread struct {
	byValue map[string]int64
	lowest  int64
}

// Filter implements framework.Filter: a node is ruled out if the pod on it
// would make its domain exceed the emptiest one by more than maxSkew.
func (Plugin) Filter(pod *framework.Pod, cluster *framework.Cluster) framework.NodeFilter {
	constraints := constraintsOf(pod, cluster, v1.DoNotSchedule)
	if len(constraints) == 0 {
		return nil
	}
	spreads := measure(pod, cluster, constraints)
	missing := &framework.Failure{
		Plugin: Name, Unresolvable: true,
		Reasons: []string{"node(s) didn't match pod topology spread constraints (missing required label)"},
	}
	skewed := &framework.Failure{
		Plugin:  Name,
		Reasons: []string{"node(s) didn't match pod topology spread constraints"},
	}
	self := make([]int64, len(constraints)) // what the pod itself adds to its domain
	for i := range constraints {
		if constraints[i].matches.Matches(pod.Pod.Labels) {
			self[i] = 1
		}
	}
	return func(n *framework.Node) *framework.Failure {
		for i := range constraints {
			c := &constraints[i]
			value, ok := n.Node.Labels[c.TopologyKey]
			if !ok {
				return missing
			}
			if spreads[i].byValue[value]+self[i]-spreads[i].lowest > int64(c.MaxSkew) {
				return skewed
			}
		}
		return nil
	}
}

func measure(pod *framework.Pod, cluster *framework.Cluster, constraints []constraint) []spread {
	affinity := nodeaffinity.GetRequiredNodeAffinity(pod.Pod)
	spreads := make([]spread, len(constraints))
	for i := range constraints {
		c := &constraints[i]
		s := spread{byValue: map[string]int64{}}
		tally := c.tally(cluster, pod.Pod.Namespace)
		if c.countsEverywhere(pod.Pod, constraints) {
			for value := range cluster.Domains(c.TopologyKey) {
				s.byValue[value] = 0
			}
			for n, count := range tally.Nodes() {
				if value, ok := n.Node.Labels[c.TopologyKey]; ok {
					s.byValue[value] += count
				}
			}
		} else {
			for _, n := range cluster.Nodes {
				value, ok := n.Node.Labels[c.TopologyKey]
				if ok && hasAllKeys(n, constraints) && c.counted(pod, &affinity, n) {
					s.byValue[value] += tally.On(n)
				}
			}
		}
		s.lowest = math.MaxInt64
		for _, count := range s.byValue {
			s.lowest = min(s.lowest, count)
		}
		if len(s.byValue) == 0 || (c.MinDomains != nil && len(s.byValue) < int(*c.MinDomains)) {
			s.lowest = 0
		}
		spreads[i] = s
	}
	return spreads
}
