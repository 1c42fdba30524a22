// Package scheduling defines the resources of the group scheduling.k8s.io.
package scheduling

import "github.com/coracle-io/coracle/internal/resource"

// Resources lists the group's resources.
func Resources() []*resource.Resource {
	return resource.InGroup(resource.Priorities{Group: 16600, Versions: map[string]int32{"v1beta1": 12}}, PriorityClasses())
}
