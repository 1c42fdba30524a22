package storage

import (
	"fmt"
	"maps"
	"slices"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core/nodeselector"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// CSIStorageCapacities is the resource csistoragecapacities.
func CSIStorageCapacities() *resource.Resource {
	return resource.Define(resource.Definition[storagev1.CSIStorageCapacity, *storagev1.CSIStorageCapacity]{
		GroupVersion:         storagev1.SchemeGroupVersion,
		Names:                resource.Names{Kind: "CSIStorageCapacity", Plural: "csistoragecapacities"},
		UpdateValidatesAlone: true,
		Strategy: resource.Strategy[*storagev1.CSIStorageCapacity]{
			ForbidUnconditionalUpdate: true,
			Validate: func(_ *resource.RequestContext, c *storagev1.CSIStorageCapacity) field.ErrorList {
				return validateCSIStorageCapacity(c, metav1validation.LabelSelectorValidationOptions{})
			},
			ValidateUpdate: validateCSIStorageCapacityUpdate,
			Warnings:       csiStorageCapacityWarnings,
		},
	})
}

func validateCSIStorageCapacity(c *storagev1.CSIStorageCapacity, topology metav1validation.LabelSelectorValidationOptions) field.ErrorList {
	errs := metav1validation.ValidateLabelSelector(c.NodeTopology, topology, field.NewPath("nodeTopology"))
	errs = append(errs, validators.Subdomain(field.NewPath("storageClassName"), c.StorageClassName)...)
	if c.Capacity != nil && c.Capacity.Sign() < 0 {
		errs = append(errs, field.Invalid(field.NewPath("capacity"), c.Capacity.String(), "must be greater than or equal to 0"))
	}
	return errs
}

// validateCSIStorageCapacityUpdate accepts the values of a stored topology.
func validateCSIStorageCapacityUpdate(_ *resource.RequestContext, c, old *storagev1.CSIStorageCapacity) field.ErrorList {
	errs := resource.ValidateNamedMetadata(c, true, validation.NameIsDNSSubdomain)
	errs = append(errs, validateCSIStorageCapacity(c, validators.SelectorOptions(old.NodeTopology))...)
	errs = append(errs, validators.Immutable(field.NewPath("nodeTopology"), c.NodeTopology, old.NodeTopology)...)
	return append(errs, validators.Immutable(field.NewPath("storageClassName"), c.StorageClassName, old.StorageClassName)...)
}

// csiStorageCapacityWarnings warns of deprecated node labels in the topology.
func csiStorageCapacityWarnings(_ *resource.RequestContext, c, _ *storagev1.CSIStorageCapacity) []string {
	if c.NodeTopology == nil {
		return nil
	}
	var warnings []string
	at := field.NewPath("nodeTopology")
	for i, e := range c.NodeTopology.MatchExpressions {
		if message, deprecated := nodeselector.DeprecatedLabel(e.Key); deprecated {
			warnings = append(warnings, fmt.Sprintf("%s: %s is %s", at.Child("matchExpressions").Index(i).Child("key"), e.Key, message))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(c.NodeTopology.MatchLabels)) {
		if message, deprecated := nodeselector.DeprecatedLabel(key); deprecated {
			warnings = append(warnings, fmt.Sprintf("%s: %s", at.Child("matchLabels").Child(key), message))
		}
	}
	return warnings
}
