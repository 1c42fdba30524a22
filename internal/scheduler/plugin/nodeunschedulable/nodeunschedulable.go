// Package nodeunschedulable keeps pods off cordoned nodes.
package nodeunschedulable

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// Name is the plugin's name in configurations.
const Name = "NodeUnschedulable"

// Factory describes the plugin.
func Factory() framework.Factory {
	return framework.Simple(&plugin{
		taint:    v1.Taint{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule},
		cordoned: framework.NewStatus(framework.UnschedulableAndUnresolvable, Name, "node(s) were unschedulable"),
	})
}

type plugin struct {
	taint    v1.Taint
	cordoned *framework.Status
}

// Name implements framework.Plugin.
func (*plugin) Name() string { return Name }

// PreFilter implements framework.PreFilterPlugin: it skips pods that tolerate
// the taint node.kubernetes.io/unschedulable.
func (p *plugin) PreFilter(_ context.Context, _ *framework.CycleState, pod *framework.PodInfo, _ *framework.Snapshot) (*framework.PreFilterResult, *framework.Status) {
	if p.tolerated(pod.Pod) {
		return nil, framework.NewStatus(framework.Skip, Name)
	}
	return nil, nil
}

func (p *plugin) tolerated(pod *v1.Pod) bool {
	return podquery.Tolerates(pod.Spec.Tolerations, &p.taint, false) // the taint has no value to compare
}

// Filter implements framework.FilterPlugin.
func (p *plugin) Filter(_ context.Context, _ *framework.CycleState, _ *framework.PodInfo, n *framework.NodeInfo) *framework.Status {
	if n.Node.Spec.Unschedulable {
		return p.cordoned
	}
	return nil
}

// SignPod implements framework.SignPlugin.
func (p *plugin) SignPod(pod *framework.PodInfo) (fragment string, ok bool) {
	if p.tolerated(pod.Pod) {
		return "tolerated", true
	}
	return "", true
}

// EventsToRegister implements framework.EnqueueExtensions.
func (p *plugin) EventsToRegister(context.Context) ([]framework.ClusterEventWithHint, error) {
	return framework.Indexed(framework.IndexBySignature(p), []framework.ClusterEventWithHint{
		framework.On(framework.Node, framework.Add|framework.UpdateNodeTaint, func(_ *framework.PodInfo, old, node *v1.Node) framework.QueueingHint {
			return framework.QueueIf(!node.Spec.Unschedulable && (old == nil || old.Spec.Unschedulable))
		}),
		framework.On(framework.TargetPod, framework.UpdatePodToleration, func(_ *framework.PodInfo, _, pod *v1.Pod) framework.QueueingHint {
			return framework.QueueIf(p.tolerated(pod))
		}),
	}), nil
}
