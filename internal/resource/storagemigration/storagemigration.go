// Package storagemigration defines the resources of the group
// storagemigration.k8s.io.
package storagemigration

import "github.com/coracle-io/coracle/internal/resource"

// Resources lists the group's resources.
func Resources() []*resource.Resource {
	return resource.InGroup(resource.Priorities{Group: 15900}, StorageVersionMigrations())
}
