package volume

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const notInline = "may not be specified in the context of inline volumes"

// ValidateInline checks an inline volume of the VolumeAttachment of that name.
// It must be a CSI volume and have no fields that concern claims.
func ValidateInline(name string, spec *corev1.PersistentVolumeSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if spec.ClaimRef != nil {
		errs = append(errs, field.Forbidden(path.Child("claimRef"), notInline))
	}
	if len(spec.Capacity) != 0 {
		errs = append(errs, field.Forbidden(path.Child("capacity"), notInline))
	}
	if spec.CSI == nil {
		errs = append(errs, field.Required(path.Child("csi"), "has to be specified in the context of inline volumes"))
	}
	if len(spec.AccessModes) == 0 {
		errs = append(errs, field.Required(path.Child("accessModes"), ""))
	}
	errs = append(errs, validateAccessModes(spec.AccessModes, path.Child("accessModes"))...)
	if policy := spec.PersistentVolumeReclaimPolicy; policy != "" && policy != corev1.PersistentVolumeReclaimRetain {
		errs = append(errs, field.Forbidden(path.Child("persistentVolumeReclaimPolicy"), "may only be Retain in the context of inline volumes"))
	}
	if spec.NodeAffinity != nil {
		errs = append(errs, field.Forbidden(path.Child("nodeAffinity"), notInline))
	}
	volume := &corev1.PersistentVolume{Spec: *spec}
	volume.Name = name
	errs = append(errs, validatePersistentVolumeSource(volume, path)...)
	if spec.StorageClassName != "" {
		errs = append(errs, field.Forbidden(path.Child("storageClassName"), notInline))
	}
	if spec.VolumeMode != nil && *spec.VolumeMode != corev1.PersistentVolumeFilesystem {
		errs = append(errs, field.Forbidden(path.Child("volumeMode"), "may not specify volumeMode other than Filesystem in the context of inline volumes"))
	}
	return append(errs, validateVolumeAttributesClassName(spec, path)...)
}
