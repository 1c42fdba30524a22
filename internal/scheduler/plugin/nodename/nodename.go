// Package nodename keeps a pod that names its node off every other.
package nodename

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// Name is the plugin's name in configurations.
const Name = "NodeName"

// Plugin implements PreFilter and Filter.
type Plugin struct{}

// Name implements framework.Plugin.
func (Plugin) Name() string { return Name }

// HandlesDeferredResizes implements framework.DeferredResizePlugin.
func (Plugin) HandlesDeferredResizes() {}

// PreFilter implements framework.PreFilterPlugin: it skips pods that name no node, and
// leaves one node for a pod that runs there.
func (Plugin) PreFilter(_ context.Context, _ *framework.CycleState, pod *framework.PodInfo, _ *framework.Snapshot) (*framework.PreFilterResult, *framework.Status) {
	switch {
	case pod.Pod.Spec.NodeName == "":
		return nil, framework.NewStatus(framework.Skip, Name)
	case pod.IsResizing():
		return &framework.PreFilterResult{NodeNames: map[string]bool{pod.Pod.Spec.NodeName: true}}, nil
	}
	return nil, nil
}

// Filter implements framework.FilterPlugin.
func (Plugin) Filter(_ context.Context, _ *framework.CycleState, pod *framework.PodInfo, n *framework.NodeInfo) *framework.Status {
	if n.Name == pod.Pod.Spec.NodeName {
		return nil
	}
	return framework.NewStatus(framework.UnschedulableAndUnresolvable, Name, "node(s) didn't match the requested node name")
}

// SignPod implements framework.SignPlugin.
func (Plugin) SignPod(pod *framework.PodInfo) (fragment string, ok bool) {
	return pod.Pod.Spec.NodeName, true
}

// EventsToRegister implements framework.EnqueueExtensions.
func (p Plugin) EventsToRegister(context.Context) ([]framework.ClusterEventWithHint, error) {
	return framework.Indexed(framework.IndexBySignature(p), []framework.ClusterEventWithHint{
		framework.On(framework.Node, framework.Add, func(pod *framework.PodInfo, _, node *v1.Node) framework.QueueingHint {
			return framework.QueueIf(node.Name == pod.Pod.Spec.NodeName)
		}),
	}), nil
}
