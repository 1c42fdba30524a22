// Package deferredpodscheduling has room made on their nodes for pods whose resize the
// kubelet has deferred (KEP-5836).
//
//	resize is deferred ──► queue ──► does it fit beside the others on the node?
//	                         ▲         │ no                  │ yes
//	                         │         ▼                     ▼
//	                         │   DefaultPreemption       Permit rejects: the kubelet
//	                         └───────┴──────────────────────┘ has not resized it yet
//
// The pod leaves the queue when the kubelet has resized it or the resize is taken back.
// Nodes can forbid it (spec.podPreemptionPolicy.disableResizePreemption).
package deferredpodscheduling

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// Name is the plugin's name in configurations.
const Name = "DeferredPodScheduling"

// Factory describes the plugin.
func Factory() framework.Factory {
	return framework.Factory{Name: Name, New: func(_ context.Context, _ any, h *framework.Handle) (framework.Plugin, error) {
		if !h.Features.Enabled(feature.InPlacePodVerticalScalingSchedulerPreemption) {
			return nil, errors.New("the feature gate InPlacePodVerticalScalingSchedulerPreemption is off")
		}
		return newPlugin(), nil
	}}
}

type plugin struct{ skip, elsewhere, disabled, fits *framework.Status }

func newPlugin() *plugin {
	return &plugin{
		skip:      framework.NewStatus(framework.Skip, Name),
		elsewhere: framework.NewStatus(framework.UnschedulableAndUnresolvable, Name, "pod assigned to different node"),
		disabled:  framework.NewStatus(framework.UnschedulableAndUnresolvable, Name, "node had resize preemption disabled"),
		fits:      framework.NewStatus(framework.UnschedulableAndUnresolvable, Name, "pod resize fits, waiting for Kubelet actuation"),
	}
}

// Name implements framework.Plugin.
func (*plugin) Name() string { return Name }

// HandlesDeferredResizes implements framework.DeferredResizePlugin.
func (*plugin) HandlesDeferredResizes() {}

// PreFilter implements framework.PreFilterPlugin.
func (p *plugin) PreFilter(_ context.Context, _ *framework.CycleState, pod *framework.PodInfo, _ *framework.Snapshot) (*framework.PreFilterResult, *framework.Status) {
	if !pod.IsResizing() {
		return nil, p.skip
	}
	return nil, nil
}

// Filter implements framework.FilterPlugin.
func (p *plugin) Filter(_ context.Context, _ *framework.CycleState, pod *framework.PodInfo, n *framework.NodeInfo) *framework.Status {
	switch {
	case pod.Pod.Spec.NodeName != n.Name:
		return p.elsewhere
	case isDisabled(n.Node):
		return p.disabled
	}
	return nil
}

// Permit implements framework.PermitPlugin: a pod that fits stays in the queue.
func (p *plugin) Permit(_ context.Context, _ *framework.CycleState, pod *framework.PodInfo, _ string) (*framework.Status, time.Duration) {
	if !pod.IsResizing() {
		return nil, 0
	}
	return p.fits, 0
}

// isDisabled reports whether a node forbids preemption for resizes.
func isDisabled(node *v1.Node) bool {
	policy := node.Spec.PodPreemptionPolicy
	return policy != nil && len(policy.DisableResizePreemption) > 0
}

// EventsToRegister implements framework.EnqueueExtensions: the node of the pod comes, or
// no longer forbids preemption for resizes. A pod that fits is tried again if it, or
// another pod of its node, wants more: it may no longer fit then.
func (*plugin) EventsToRegister(context.Context) ([]framework.ClusterEventWithHint, error) {
	return []framework.ClusterEventWithHint{
		framework.On(framework.Node, framework.Add|framework.UpdateNodePreemptionPolicy, func(pod *framework.PodInfo, old, node *v1.Node) framework.QueueingHint {
			return framework.QueueIf(node.Name == pod.Pod.Spec.NodeName && (old == nil || isDisabled(old)) && !isDisabled(node))
		}),
		{Event: framework.ClusterEvent{Resource: framework.TargetPod, Action: framework.UpdatePodScaleUp}},
		framework.On(framework.AssignedPod, framework.UpdatePodScaleUp, func(pod *framework.PodInfo, _, other *v1.Pod) framework.QueueingHint {
			return framework.QueueIf(other.Spec.NodeName == pod.Pod.Spec.NodeName)
		}),
	}, nil
}
