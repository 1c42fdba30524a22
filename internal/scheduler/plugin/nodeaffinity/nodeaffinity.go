// Package nodeaffinity matches a pod's nodeSelector and node affinity.
package nodeaffinity

import (
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// Name is the plugin's name in configurations.
const Name = "NodeAffinity"

// Plugin is the filter and score NodeAffinity.
type Plugin struct{}

// Name implements framework.Filter and framework.Score.
func (Plugin) Name() string { return Name }

// Filter implements framework.Filter.
func (Plugin) Filter(pod *framework.Pod, _ *framework.Cluster) framework.NodeFilter {
	spec := &pod.Pod.Spec
	if len(spec.NodeSelector) == 0 && (spec.Affinity == nil || spec.Affinity.NodeAffinity == nil ||
		spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil) {
		return nil
	}
	required := nodeaffinity.GetRequiredNodeAffinity(pod.Pod)
	failure := &framework.Failure{
		Plugin: Name, Unresolvable: true,
		Reasons: []string{"node(s) didn't match Pod's node affinity/selector"},
	}
	return func(n *framework.Node) *framework.Failure {
		if ok, err := required.Match(n.Node); err != nil || !ok {
			return failure
		}
		return nil
	}
}

// Score implements framework.Score: the sum of the weights of the preferred
// terms that the node matches.
func (Plugin) Score(pod *framework.Pod, _ *framework.Cluster, _ []*framework.Node) (framework.NodeScore, func([]int64)) {
	affinity := pod.Pod.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil ||
		len(affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution) == 0 {
		return nil, nil
	}
	terms, err := nodeaffinity.NewPreferredSchedulingTerms(affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	if err != nil {
		return nil, nil
	}
	rate := func(n *framework.Node) int64 { return terms.Score(n.Node) }
	return rate, func(r []int64) { framework.NormalizeByMax(r, false) }
}
