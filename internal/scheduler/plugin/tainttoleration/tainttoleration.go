// Package tainttoleration keeps pods off nodes with taints that they do not
// tolerate, and away from those with PreferNoSchedule taints.
package tainttoleration

import (
	v1 "k8s.io/api/core/v1"

	podutil "github.com/coracle-io/coracle/internal/pod"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// Name is the plugin's name in configurations.
const Name = "TaintToleration"

// Plugin is the filter and score TaintToleration.
type Plugin struct{}

// Name implements framework.Filter and framework.Score.
func (Plugin) Name() string { return Name }

// Filter implements framework.Filter.
func (Plugin) Filter(pod *framework.Pod, _ *framework.Cluster) framework.NodeFilter {
	return func(n *framework.Node) *framework.Failure {
		for i := range n.Node.Spec.Taints {
			taint := &n.Node.Spec.Taints[i]
			if taint.Effect == v1.TaintEffectPreferNoSchedule || podutil.Tolerates(pod.Pod.Spec.Tolerations, taint, false) {
				continue
			}
			return &framework.Failure{
				Plugin: Name, Unresolvable: true,
				Reasons: []string{"node(s) had untolerated taint(s)"},
			}
		}
		return nil
	}
}

// Score implements framework.Score: the fewer intolerable PreferNoSchedule
// taints, the better.
func (Plugin) Score(pod *framework.Pod, _ *framework.Cluster, _ []*framework.Node) (framework.NodeScore, func([]int64)) {
	rate := func(n *framework.Node) int64 {
		var count int64
		for i := range n.Node.Spec.Taints {
			taint := &n.Node.Spec.Taints[i]
			if taint.Effect == v1.TaintEffectPreferNoSchedule && !podutil.Tolerates(pod.Pod.Spec.Tolerations, taint, false) {
				count++
			}
		}
		return count
	}
	return rate, func(r []int64) { framework.NormalizeByMax(r, true) }
}
