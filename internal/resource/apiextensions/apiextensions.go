// Package apiextensions defines the resources of the group apiextensions.k8s.io.
package apiextensions

import "github.com/coracle-io/coracle/internal/resource"

// Resources lists the group's resources.
func Resources() []*resource.Resource {
	return resource.InGroup(resource.Priorities{Group: 16700}, CustomResourceDefinitions())
}
