package core

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/resource"
)

// validateClaimUpdate lets a bound claim grow, and nothing else change but
// the class of its attributes and, while it is unbound, its class.
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
	if !equal(is, was) {
		errs = append(errs, field.Forbidden(spec, fmt.Sprintf(
			"spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n%v", changes(*was, *is))))
	}
	oldSize, newSize := old.Spec.Resources.Requests[corev1.ResourceStorage], c.Spec.Resources.Requests[corev1.ResourceStorage]
	capacity := old.Status.Capacity[corev1.ResourceStorage]
	if newSize.Cmp(oldSize) < 0 && newSize.Cmp(capacity) <= 0 {
		errs = append(errs, field.Forbidden(spec.Child("resources", "requests", "storage"), "field can not be less than status.capacity"))
	}
	errs = append(errs, immutable(c.Spec.VolumeMode, old.Spec.VolumeMode, field.NewPath("volumeMode"))...)
	return append(errs, validateAttributesUpdate(c, old, spec.Child("volumeAttributesClassName"))...)
}

// validateClassUpdate lets a claim without a class get one, and one whose
// class is in the old annotation name it in the field: it makes next, a copy
// of the new spec, as the old one was. The annotation itself is fixed.
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
		return field.ErrorList{field.Invalid(field.NewPath("metadata", "annotations", key), is, fieldImmutable)}
	}
	return nil
}

// validateAttributesUpdate keeps a class of attributes that the volume got
// from being taken away; another may take its place.
func validateAttributesUpdate(c, old *corev1.PersistentVolumeClaim, at *field.Path) field.ErrorList {
	switch class := c.Spec.VolumeAttributesClassName; {
	case old.Status.CurrentVolumeAttributesClassName == nil, equal(class, old.Spec.VolumeAttributesClassName):
		return nil
	case class == nil:
		return field.ErrorList{field.Forbidden(at, "update to nil is forbidden when status.currentVolumeAttributesClassName is not nil")}
	case *class == "":
		return field.ErrorList{field.Forbidden(at, "update to empty string is forbidden when status.currentVolumeAttributesClassName is not nil")}
	}
	return nil
}

// resizeStatuses are the steps of making a volume larger.
var resizeStatuses = []corev1.ClaimResourceStatus{
	corev1.PersistentVolumeClaimControllerResizeInProgress, corev1.PersistentVolumeClaimControllerResizeInfeasible,
	corev1.PersistentVolumeClaimNodeResizeInProgress, corev1.PersistentVolumeClaimNodeResizeInfeasible,
	corev1.PersistentVolumeClaimNodeResizePending,
}

func validateClaimStatus(_ *resource.Request, c, _ *corev1.PersistentVolumeClaim) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("status")
	if len(c.Spec.AccessModes) == 0 {
		errs = append(errs, field.Required(field.NewPath("Spec", "accessModes"), ""))
	}
	for name, quantity := range c.Status.Capacity {
		errs = append(errs, basicQuantity(quantity, path.Child("capacity").Key(string(name)))...)
	}
	statuses := path.Child("allocatedResourceStatuses")
	for name, status := range c.Status.AllocatedResourceStatuses {
		errs = append(errs, validateClaimResourceName(name, statuses)...)
		if len(oneOf(status, statuses, resizeStatuses...)) > 0 {
			errs = append(errs, field.NotSupported(statuses, string(name), resizeStatuses))
		}
	}
	allocated := path.Child("allocatedResources")
	for name, quantity := range c.Status.AllocatedResources {
		found := validateClaimResourceName(name, allocated)
		if len(found) == 0 {
			found = basicQuantity(quantity, allocated.Key(string(name)))
		}
		errs = append(errs, found...)
	}
	return errs
}

// validateClaimResourceName: of what Kubernetes itself knows, a claim is for
// storage.
func validateClaimResourceName(name corev1.ResourceName, at *field.Path) field.ErrorList {
	errs := validateQualified(string(name), at)
	if len(errs) == 0 && isNative(name) && name != corev1.ResourceStorage {
		errs = append(errs, field.NotSupported(at, name, []corev1.ResourceName{corev1.ResourceStorage}))
	}
	return errs
}

// claimObjectWarnings are of what a claim still says in old ways.
func claimObjectWarnings(c *corev1.PersistentVolumeClaim) []string {
	var warnings []string
	if _, ok := c.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		warnings = append(warnings, fmt.Sprintf("%s: %s",
			field.NewPath("metadata", "annotations").Key(corev1.BetaStorageClassAnnotation), classAnnotationReplaced))
	}
	return append(warnings, ClaimWarnings(&c.Spec, field.NewPath("spec"))...)
}
