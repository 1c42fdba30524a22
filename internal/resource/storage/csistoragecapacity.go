package storage

import (
	storagev1 "k8s.io/api/storage/v1"

	"github.com/coracle-io/coracle/internal/resource"
)

// CSIStorageCapacities is the resource csistoragecapacities.
func CSIStorageCapacities() *resource.Resource {
	return resource.Define(resource.Definition[storagev1.CSIStorageCapacity, *storagev1.CSIStorageCapacity]{
		GroupVersion:              storagev1.SchemeGroupVersion,
		Kind:                      "CSIStorageCapacity",
		Plural:                    "csistoragecapacities",
		ForbidUnconditionalUpdate: true,
		Validate:                  validateCSIStorageCapacity,
		ValidateUpdate:            validateCSIStorageCapacityUpdate,
	})
}
