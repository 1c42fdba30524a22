// Package nodeports keeps pods off nodes where their host ports are taken.
package nodeports

import "github.com/coracle-io/coracle/internal/scheduler/framework"

// Name is the plugin's name in configurations.
const Name = "NodePorts"

// Plugin is the filter NodePorts.
type Plugin struct{}

// Name implements framework.Filter.
func (Plugin) Name() string { return Name }

// Filter implements framework.Filter.
func (Plugin) Filter(pod *framework.Pod, _ *framework.Cluster) framework.NodeFilter {
	if len(pod.Ports) == 0 {
		return nil
	}
	failure := &framework.Failure{
		Plugin:  Name,
		Reasons: []string{"node(s) didn't have free ports for the requested pod ports"},
	}
	return func(n *framework.Node) *framework.Failure {
		for _, p := range pod.Ports {
			if n.PortTaken(p) {
				return failure
			}
		}
		return nil
	}
}
