// Package coordination defines the resources of the group coordination.k8s.io.
package coordination

import "github.com/coracle-io/coracle/internal/resource"

// Resources lists the group's resources.
func Resources() []*resource.Resource {
	return resource.InGroup(resource.Priorities{Group: 16500}, Leases())
}
