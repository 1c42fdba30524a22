// Package discovery defines the resources of the group discovery.k8s.io.
package discovery

import "github.com/coracle-io/coracle/internal/resource"

// Resources lists the group's resources.
func Resources() []*resource.Resource {
	return resource.InGroup(resource.Priorities{Group: 16200}, EndpointSlices())
}
