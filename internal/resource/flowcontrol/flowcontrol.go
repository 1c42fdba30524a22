// Package flowcontrol defines the resources of the group
// flowcontrol.apiserver.k8s.io.
package flowcontrol

import "github.com/coracle-io/coracle/internal/resource"

// Resources lists the group's resources.
func Resources() []*resource.Resource {
	return resource.InGroup(resource.Priorities{Group: 16100, Versions: map[string]int32{"v1": 21}}, FlowSchemas(), PriorityLevelConfigurations())
}
