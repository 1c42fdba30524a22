// Package scheduling defines the resources of the group scheduling.k8s.io.
package scheduling

import "github.com/coracle-io/coracle/internal/resource"

// Resources lists the group's resources.
func Resources() []*resource.Resource {
	return []*resource.Resource{PriorityClasses()}
}
