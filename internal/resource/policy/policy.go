// Package policy defines the resources of the group policy.
package policy

import "github.com/coracle-io/coracle/internal/resource"

// Resources lists the group's resources.
func Resources() []*resource.Resource {
	return resource.InGroup(resource.Priorities{Group: 17100}, PodDisruptionBudgets())
}
