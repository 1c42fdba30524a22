// Package nodeports keeps pods off nodes where their host ports are taken.
package nodeports

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// Name is the plugin's name in configurations.
const Name = "NodePorts"

// Factory describes the plugin.
func Factory() framework.Factory {
	return framework.Simple(&plugin{framework.NewStatus(framework.Unschedulable, Name, "node(s) didn't have free ports for the requested pod ports")})
}

type plugin struct{ taken *framework.Status }

// Name implements framework.Plugin.
func (*plugin) Name() string { return Name }

// PreFilter implements framework.PreFilterPlugin: it skips pods without host ports.
func (*plugin) PreFilter(_ context.Context, _ *framework.CycleState, pod *framework.PodInfo, _ *framework.Snapshot) (*framework.PreFilterResult, *framework.Status) {
	if len(pod.Ports) == 0 {
		return nil, framework.NewStatus(framework.Skip, Name)
	}
	return nil, nil
}

// Filter implements framework.FilterPlugin.
func (p *plugin) Filter(_ context.Context, _ *framework.CycleState, pod *framework.PodInfo, n *framework.NodeInfo) *framework.Status {
	for _, port := range pod.Ports {
		if n.PortTaken(port) {
			return p.taken
		}
	}
	return nil
}

// SignPod implements framework.SignPlugin.
func (*plugin) SignPod(pod *framework.PodInfo) (fragment string, ok bool) {
	var text []byte
	for _, port := range pod.Ports {
		text = fmt.Appendf(text, "%v %q %d\n", port.Address, port.Protocol, port.Port)
	}
	return string(text), true
}

// EventsToRegister implements framework.EnqueueExtensions: a pod helps that
// frees one of the ports, and a new node.
func (p *plugin) EventsToRegister(context.Context) ([]framework.ClusterEventWithHint, error) {
	return framework.Indexed(framework.IndexBySignature(p), []framework.ClusterEventWithHint{
		framework.On(framework.AssignedPod, framework.Delete, func(pod *framework.PodInfo, gone, _ *v1.Pod) framework.QueueingHint {
			if gone == nil {
				return framework.Queue
			}
			var freed podquery.HostPortSet
			for _, port := range framework.NewPodInfo(gone).Ports {
				freed.Add(port)
			}
			return framework.QueueIf(slices.ContainsFunc(pod.Ports, freed.Conflicts))
		}),
		{Event: framework.ClusterEvent{Resource: framework.Node, Action: framework.Add}},
	}), nil
}
