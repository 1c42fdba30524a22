// Package interpodaffinity places pods near to or away from other pods.
package interpodaffinity

import (
	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// Name is the plugin's name in configurations.
const Name = "InterPodAffinity"

// defaultHardWeight is what a required term of a running pod counts for when
// nodes are ranked for a pod that it matches.
const defaultHardWeight = 1

// Plugin is the filter and score InterPodAffinity.
type Plugin struct {
	// HardPodAffinityWeight as in InterPodAffinityArgs; 0 is the default, 1.
	HardPodAffinityWeight int64
}

// Name implements framework.Filter and framework.Score.
func (Plugin) Name() string { return Name }

// domain is one value of a topology key.
type domain struct{ key, value string }

// Filter implements framework.Filter.
func (Plugin) Filter(pod *framework.Pod, cluster *framework.Cluster) framework.NodeFilter {
	existing := forbiddenByOthers(pod, cluster)
	anti := countMatches(pod.RequiredAntiAffinity, cluster, anyTerm)
	affinity := countMatches(pod.RequiredAffinity, cluster, allTerms)
	if len(existing) == 0 && len(pod.RequiredAntiAffinity) == 0 && len(pod.RequiredAffinity) == 0 {
		return nil
	}
	// the first pod of a group that wants to be near its own kind may go anywhere
	first := len(affinity) == 0 && len(pod.RequiredAffinity) > 0 && matchesAll(pod.RequiredAffinity, pod, cluster)
	return func(n *framework.Node) *framework.Failure {
		for i := range pod.RequiredAffinity {
			key := pod.RequiredAffinity[i].TopologyKey
			value, ok := n.Node.Labels[key]
			if !ok || (affinity[domain{key, value}] == 0 && !first) {
				return &framework.Failure{Plugin: Name, Unresolvable: true, Reasons: []string{"node(s) didn't match pod affinity rules"}}
			}
		}
		for i := range pod.RequiredAntiAffinity {
			key := pod.RequiredAntiAffinity[i].TopologyKey
			if value, ok := n.Node.Labels[key]; ok && anti[domain{key, value}] > 0 {
				return &framework.Failure{Plugin: Name, Reasons: []string{"node(s) didn't match pod anti-affinity rules"}}
			}
		}
		for d := range existing {
			if value, ok := n.Node.Labels[d.key]; ok && value == d.value {
				return &framework.Failure{Plugin: Name, Reasons: []string{"node(s) didn't satisfy existing pods anti-affinity rules"}}
			}
		}
		return nil
	}
}

// forbiddenByOthers returns the domains where a running pod's required
// anti-affinity speaks of this pod.
func forbiddenByOthers(pod *framework.Pod, cluster *framework.Cluster) map[domain]int {
	out := map[domain]int{}
	for n := range cluster.WithAntiAffinity {
		if n.Node == nil {
			continue
		}
		for _, other := range n.Pods {
			for i := range other.RequiredAntiAffinity {
				term := &other.RequiredAntiAffinity[i]
				if value, ok := n.Node.Labels[term.TopologyKey]; ok && term.Matches(pod.Pod, cluster.Namespaces) {
					out[domain{term.TopologyKey, value}]++
				}
			}
		}
	}
	return out
}

type matchRule bool

const (
	anyTerm  matchRule = false // a pod counts for each term that it matches
	allTerms matchRule = true  // a pod counts only when it matches every term
)

// countMatches counts the running pods that the terms speak of, by domain.
func countMatches(terms []framework.AffinityTerm, cluster *framework.Cluster, rule matchRule) map[domain]int {
	if len(terms) == 0 {
		return nil
	}
	out := map[domain]int{}
	for _, n := range cluster.Nodes {
		for _, other := range n.Pods {
			if rule == allTerms && !matchesAll(terms, other, cluster) {
				continue
			}
			for i := range terms {
				value, ok := n.Node.Labels[terms[i].TopologyKey]
				if ok && (rule == allTerms || terms[i].Matches(other.Pod, cluster.Namespaces)) {
					out[domain{terms[i].TopologyKey, value}]++
				}
			}
		}
	}
	return out
}

func matchesAll(terms []framework.AffinityTerm, pod *framework.Pod, cluster *framework.Cluster) bool {
	for i := range terms {
		if !terms[i].Matches(pod.Pod, cluster.Namespaces) {
			return false
		}
	}
	return true
}
