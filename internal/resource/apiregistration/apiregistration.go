// Package apiregistration defines the resources of the group
// apiregistration.k8s.io.
package apiregistration

import "github.com/coracle-io/coracle/internal/resource"

// Resources lists the group's resources.
func Resources() []*resource.Resource {
	return resource.InGroup(resource.Priorities{Group: 20001}, APIServices())
}
