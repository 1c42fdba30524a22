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

// domains are values of topology keys.
type domains map[string]map[string]int64

func (d domains) add(n *framework.Node, key string, count int64) {
	value, ok := n.Node.Labels[key]
	if !ok {
		return
	}
	if d[key] == nil {
		d[key] = map[string]int64{}
	}
	d[key][value] += count
}

// Filter implements framework.Filter.
func (Plugin) Filter(pod *framework.Pod, cluster *framework.Cluster) framework.NodeFilter {
	existing := forbiddenByOthers(pod, cluster)
	if len(existing) == 0 && len(pod.RequiredAntiAffinity) == 0 && len(pod.RequiredAffinity) == 0 {
		return nil
	}
	anti, affinity := countAny(pod.RequiredAntiAffinity, cluster), countAll(pod.RequiredAffinity, cluster)
	// the first pod of a group that wants to be near its own kind may go anywhere
	first := len(affinity) == 0 && len(pod.RequiredAffinity) > 0 && matchesAll(pod.RequiredAffinity, pod, cluster)
	far := &framework.Failure{Plugin: Name, Unresolvable: true, Reasons: []string{"node(s) didn't match pod affinity rules"}}
	near := &framework.Failure{Plugin: Name, Reasons: []string{"node(s) didn't match pod anti-affinity rules"}}
	unwanted := &framework.Failure{Plugin: Name, Reasons: []string{"node(s) didn't satisfy existing pods anti-affinity rules"}}
	return func(n *framework.Node) *framework.Failure {
		for i := range pod.RequiredAffinity {
			key := pod.RequiredAffinity[i].TopologyKey
			value, ok := n.Node.Labels[key]
			if !ok || (affinity[key][value] == 0 && !first) {
				return far
			}
		}
		for i := range pod.RequiredAntiAffinity {
			key := pod.RequiredAntiAffinity[i].TopologyKey
			if value, ok := n.Node.Labels[key]; ok && anti[key][value] > 0 {
				return near
			}
		}
		for key, values := range existing {
			if value, ok := n.Node.Labels[key]; ok && values[value] > 0 {
				return unwanted
			}
		}
		return nil
	}
}

// forbiddenByOthers returns the domains where a running pod's required
// anti-affinity speaks of this pod.
func forbiddenByOthers(pod *framework.Pod, cluster *framework.Cluster) domains {
	out := domains{}
	for carried := range cluster.Carried() {
		if carried.Role != framework.RequiredAntiAffinity || !carried.Term.Matches(pod.Pod, cluster.Namespaces) {
			continue
		}
		for n, count := range carried.Nodes() {
			out.add(n, carried.Term.TopologyKey, count)
		}
	}
	return out
}

// countAny counts the running pods that the terms speak of, by domain. A pod
// counts for each term that it matches.
func countAny(terms []framework.AffinityTerm, cluster *framework.Cluster) domains {
	out := domains{}
	for i := range terms {
		for n, count := range cluster.TermsTally(terms[i : i+1]).Nodes() {
			out.add(n, terms[i].TopologyKey, count)
		}
	}
	return out
}

// countAll counts the running pods that match every term, by domain.
func countAll(terms []framework.AffinityTerm, cluster *framework.Cluster) domains {
	out := domains{}
	if len(terms) == 0 {
		return out
	}
	for n, count := range cluster.TermsTally(terms).Nodes() {
		for i := range terms {
			out.add(n, terms[i].TopologyKey, count)
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
