// Package node defines the resources of the group node.k8s.io.
package node

import "github.com/coracle-io/coracle/internal/resource"

// Resources lists the group's resources.
func Resources() []*resource.Resource {
	return resource.InGroup(resource.Priorities{Group: 16300}, RuntimeClasses())
}
