// Package storage defines the resources of the group storage.k8s.io.
package storage

import "github.com/coracle-io/coracle/internal/resource"

// Resources lists the group's resources.
func Resources() []*resource.Resource {
	return resource.InGroup(resource.Priorities{Group: 16800},
		CSIDrivers(),
		CSINodes(),
		CSIStorageCapacities(),
		StorageClasses(),
		VolumeAttachments(),
		VolumeAttributesClasses(),
	)
}
