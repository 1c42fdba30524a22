// Package nodename keeps a pod that names its node off every other.
package nodename

import "github.com/coracle-io/coracle/internal/scheduler/framework"

// Name is the plugin's name in configurations.
const Name = "NodeName"

// Plugin is the filter NodeName.
type Plugin struct{}

// Name implements framework.Filter.
func (Plugin) Name() string { return Name }

// Filter implements framework.Filter.
func (Plugin) Filter(pod *framework.Pod, _ *framework.Cluster) framework.NodeFilter {
	want := pod.Pod.Spec.NodeName
	if want == "" {
		return nil
	}
	failure := &framework.Failure{
		Plugin: Name, Unresolvable: true,
		Reasons: []string{"node(s) didn't match the requested node name"},
	}
	return func(n *framework.Node) *framework.Failure {
		if n.Name == want {
			return nil
		}
		return failure
	}
}
