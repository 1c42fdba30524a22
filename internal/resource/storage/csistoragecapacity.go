package storage

import (
	"fmt"
	"maps"
	"slices"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core"
	"github.com/coracle-io/coracle/internal/resource/rule"
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
		Warnings:                  csiStorageCapacityWarnings,
	})
}

func validateCSIStorageCapacity(_ *resource.Request, c *storagev1.CSIStorageCapacity) field.ErrorList {
	errs := rule.Selector(field.NewPath("nodeTopology"), c.NodeTopology)
	errs = append(errs, rule.Subdomain(field.NewPath("storageClassName"), c.StorageClassName)...)
	if c.Capacity != nil && c.Capacity.Sign() < 0 {
		errs = append(errs, field.Invalid(field.NewPath("capacity"), c.Capacity.String(), "must be greater than or equal to 0"))
	}
	return errs
}

func validateCSIStorageCapacityUpdate(_ *resource.Request, c, old *storagev1.CSIStorageCapacity) field.ErrorList {
	errs := rule.Immutable(field.NewPath("nodeTopology"), c.NodeTopology, old.NodeTopology)
	return append(errs, rule.Immutable(field.NewPath("storageClassName"), c.StorageClassName, old.StorageClassName)...)
}

// csiStorageCapacityWarnings are of a topology by labels that have been replaced.
func csiStorageCapacityWarnings(_ *resource.Request, c, _ *storagev1.CSIStorageCapacity) []string {
	if c.NodeTopology == nil {
		return nil
	}
	var warnings []string
	at := field.NewPath("nodeTopology")
	for i, e := range c.NodeTopology.MatchExpressions {
		if message, deprecated := core.DeprecatedNodeLabel(e.Key); deprecated {
			warnings = append(warnings, fmt.Sprintf("%s: %s is %s", at.Child("matchExpressions").Index(i).Child("key"), e.Key, message))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(c.NodeTopology.MatchLabels)) {
		if message, deprecated := core.DeprecatedNodeLabel(key); deprecated {
			warnings = append(warnings, fmt.Sprintf("%s: %s", at.Child("matchLabels").Child(key), message))
		}
	}
	return warnings
}
