// Package nodeunschedulable keeps pods off cordoned nodes.
package nodeunschedulable

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// Name is the plugin's name in configurations.
const Name = "NodeUnschedulable"

// Plugin is the filter NodeUnschedulable.
type Plugin struct{}

// Name implements framework.Filter.
func (Plugin) Name() string { return Name }

// Filter implements framework.Filter. A pod that tolerates the taint
// node.kubernetes.io/unschedulable may go to a cordoned node.
func (Plugin) Filter(pod *framework.Pod, _ *framework.Cluster) framework.NodeFilter {
	taint := v1.Taint{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule}
	for i := range pod.Pod.Spec.Tolerations {
		if pod.Pod.Spec.Tolerations[i].ToleratesTaint(klog.Logger{}, &taint, false) {
			return nil
		}
	}
	failure := &framework.Failure{Plugin: Name, Unresolvable: true, Reasons: []string{"node(s) were unschedulable"}}
	return func(n *framework.Node) *framework.Failure {
		if n.Node.Spec.Unschedulable {
			return failure
		}
		return nil
	}
}
