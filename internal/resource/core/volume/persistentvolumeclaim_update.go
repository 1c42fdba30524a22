package volume

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core/resourcelist"
	"github.com/coracle-io/coracle/internal/resource/declarative"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// validateClaimUpdate allows a bound claim to grow, its volume attributes
// class to change and, while it is unbound, its storage class to be set. All
// other fields are immutable.
func validateClaimUpdate(c, old *corev1.PersistentVolumeClaim) field.ErrorList {
	spec := field.NewPath("spec")
	var errs field.ErrorList
	is, was := c.Spec.DeepCopy(), old.Spec.DeepCopy()
	if was.VolumeName == "" && old.Status.Phase != corev1.ClaimLost {
		was.VolumeName = is.VolumeName
	}
	bound := c.Status.Phase == corev1.ClaimBound
	if bound && is.Resources.Requests != nil {
		is.Resources.Requests[corev1.ResourceStorage] = was.Resources.Requests[corev1.ResourceStorage]
	}
	errs = append(errs, validateClassUpdate(c, old, is)...)
	if bound {
		is.VolumeAttributesClassName = was.VolumeAttributesClassName
	}
	if !resource.Equal(is, was) {
		errs = append(errs, field.Forbidden(spec, fmt.Sprintf(
			"spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n%v", validators.Diff(*was, *is))))
	}
	oldSize, newSize := old.Spec.Resources.Requests[corev1.ResourceStorage], c.Spec.Resources.Requests[corev1.ResourceStorage]
	capacity := old.Status.Capacity[corev1.ResourceStorage]
	if newSize.Cmp(oldSize) < 0 && newSize.Cmp(capacity) <= 0 {
		errs = append(errs, field.Forbidden(spec.Child("resources", "requests", "storage"), "field can not be less than status.capacity"))
	}
	errs = append(errs, validators.ImmutableValue(field.NewPath("volumeMode"), c.Spec.VolumeMode, old.Spec.VolumeMode)...)
	return append(errs, validateAttributesUpdate(c, old, spec.Child("volumeAttributesClassName"))...)
}

// validateClassUpdate allows a claim without a class to get one, and a claim
// whose class is in the old annotation to repeat it in the field. It resets
// such a change in next, a copy of the new spec. The annotation is immutable.
func validateClassUpdate(c, old *corev1.PersistentVolumeClaim, next *corev1.PersistentVolumeClaimSpec) field.ErrorList {
	const key = corev1.BetaStorageClassAnnotation
	is, was := c.Annotations[key], old.Annotations[key]
	class := ptr.Deref(c.Spec.StorageClassName, "")
	_, hadAnnotation := old.Annotations[key]
	_, hasAnnotation := c.Annotations[key]
	named := c.Spec.StorageClassName != nil && old.Spec.StorageClassName == nil
	if named && hadAnnotation && class == was && (!hasAnnotation || is == was) {
		next.StorageClassName = nil
		return nil
	}
	if named && !hadAnnotation {
		next.StorageClassName = nil
	}
	if is != was {
		return field.ErrorList{field.Invalid(field.NewPath("metadata", "annotations", key), is, validation.FieldImmutableErrorMsg)}
	}
	return nil
}

// validateAttributesUpdate refuses to remove a volume attributes class. It can
// be replaced.
func validateAttributesUpdate(c, old *corev1.PersistentVolumeClaim, at *field.Path) field.ErrorList {
	switch class := c.Spec.VolumeAttributesClassName; {
	case old.Status.CurrentVolumeAttributesClassName == nil, resource.Equal(class, old.Spec.VolumeAttributesClassName):
		return nil
	case class == nil:
		return field.ErrorList{field.Forbidden(at, "update to nil is forbidden when status.currentVolumeAttributesClassName is not nil")}
	case *class == "":
		return field.ErrorList{field.Forbidden(at, "update to empty string is forbidden when status.currentVolumeAttributesClassName is not nil")}
	}
	return nil
}

// resizeStatuses are the states of a volume expansion.
func resizeStatuses() []corev1.ClaimResourceStatus {
	return []corev1.ClaimResourceStatus{
		corev1.PersistentVolumeClaimControllerResizeInProgress, corev1.PersistentVolumeClaimControllerResizeInfeasible,
		corev1.PersistentVolumeClaimNodeResizeInProgress, corev1.PersistentVolumeClaimNodeResizeInfeasible,
		corev1.PersistentVolumeClaimNodeResizePending,
	}
}

func validateClaimStatus(_ *resource.RequestContext, c, old *corev1.PersistentVolumeClaim) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("status")
	if len(c.Spec.AccessModes) == 0 {
		errs = append(errs, field.Required(field.NewPath("Spec", "accessModes"), ""))
	}
	for name, quantity := range c.Status.Capacity {
		errs = append(errs, resourcelist.ValidateVolumeQuantity(quantity, path.Child("capacity").Key(string(name)))...)
	}
	statuses := path.Child("allocatedResourceStatuses")
	for name, status := range c.Status.AllocatedResourceStatuses {
		errs = append(errs, validateClaimResourceName(name, statuses)...)
		if len(validators.Enum(statuses, status, resizeStatuses()...)) > 0 {
			errs = append(errs, field.NotSupported(statuses, string(name), resizeStatuses()))
		}
	}
	allocated := path.Child("allocatedResources")
	for name, quantity := range c.Status.AllocatedResources {
		found := validateClaimResourceName(name, allocated)
		if len(found) == 0 {
			found = resourcelist.ValidateVolumeQuantity(quantity, allocated.Key(string(name)))
		}
		errs = append(errs, found...)
	}
	if health := c.Status.HealthStatus; health != nil {
		before := ptr.Deref(old.Status.HealthStatus, corev1.VolumeHealthStatus{})
		errs = append(errs, ValidateHealth(declarative.Update(), path.Child("healthStatus", "healthConditions"), health.HealthConditions, before.HealthConditions)...)
	}
	return errs
}

// validateClaimResourceName checks that a resource without a domain is
// storage.
func validateClaimResourceName(name corev1.ResourceName, at *field.Path) field.ErrorList {
	errs := validators.QualifiedName(at, string(name))
	if len(errs) == 0 && resourcelist.IsNative(name) && name != corev1.ResourceStorage {
		errs = append(errs, field.NotSupported(at, name, []corev1.ResourceName{corev1.ResourceStorage}))
	}
	return errs
}

// claimObjectWarnings warns of deprecated annotations.
func claimObjectWarnings(c *corev1.PersistentVolumeClaim) []string {
	var warnings []string
	if _, ok := c.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		warnings = append(warnings, fmt.Sprintf("%s: %s",
			field.NewPath("metadata", "annotations").Key(corev1.BetaStorageClassAnnotation), classAnnotationReplaced))
	}
	return append(warnings, ClaimWarnings(&c.Spec, field.NewPath("spec"))...)
}
