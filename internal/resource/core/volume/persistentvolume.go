// Package volume has the resources persistentvolumes and
// persistentvolumeclaims, and the validation of volume sources that
// PersistentVolumes share with pods.
package volume

import (
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core/nodeselector"
	"github.com/coracle-io/coracle/internal/resource/core/resourcelist"
	"github.com/coracle-io/coracle/internal/resource/defaults"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// PersistentVolumes is the resource persistentvolumes.
func PersistentVolumes() *resource.Resource {
	return resource.Define(resource.Definition[corev1.PersistentVolume, *corev1.PersistentVolume]{
		GroupVersion: corev1.SchemeGroupVersion,
		Names: resource.Names{
			Kind:       "PersistentVolume",
			Plural:     "persistentvolumes",
			ShortNames: []string{"pv"},
		},
		Cluster: true,
		Default: defaultPersistentVolume,
		Status: resource.Status[*corev1.PersistentVolume]{
			Copy: func(v, from *corev1.PersistentVolume) { v.Status = from.Status },
			Prepare: func(r *resource.RequestContext, v, old *corev1.PersistentVolume) {
				requested := v.Status.LastPhaseTransitionTime
				switch was := old.Status.LastPhaseTransitionTime; {
				case v.Status.Phase == old.Status.Phase && requested == nil:
					v.Status.LastPhaseTransitionTime = was
				case v.Status.Phase != old.Status.Phase && (requested == nil || requested.Equal(was)):
					now := metav1.NewTime(r.Now)
					v.Status.LastPhaseTransitionTime = &now
				}
			},
		},
		// ValidateUpdate checks the metadata once more, as upstream does.
		MetadataUpdateUnchecked: true,
		Strategy: resource.Strategy[*corev1.PersistentVolume]{
			PrepareForCreate: func(r *resource.RequestContext, v *corev1.PersistentVolume) {
				now := metav1.NewTime(r.Now)
				v.Status = corev1.PersistentVolumeStatus{Phase: corev1.VolumePending, LastPhaseTransitionTime: &now}
			},
			Validate:       validatePersistentVolume,
			ValidateUpdate: validatePersistentVolumeUpdate,
			Warnings:       volumeObjectWarnings,
		},
		DeleteStrategy: resource.DeleteStrategy[*corev1.PersistentVolume]{ReturnDeletedObject: true},
		Table: resource.Table[*corev1.PersistentVolume]{
			Columns: []metav1.TableColumnDefinition{
				resource.NameColumn(),
				resource.Column("Capacity", "string", corev1.PersistentVolumeSpec{}.SwaggerDoc()["capacity"]),
				resource.Column("Access Modes", "string", corev1.PersistentVolumeSpec{}.SwaggerDoc()["accessModes"]),
				resource.Column("Reclaim Policy", "string", corev1.PersistentVolumeSpec{}.SwaggerDoc()["persistentVolumeReclaimPolicy"]),
				resource.Column("Status", "string", corev1.PersistentVolumeStatus{}.SwaggerDoc()["phase"]),
				resource.Column("Claim", "string", corev1.PersistentVolumeSpec{}.SwaggerDoc()["claimRef"]),
				resource.Column("StorageClass", "string", "StorageClass of the pv"),
				resource.Column("VolumeAttributesClass", "string", "VolumeAttributesClass of the pv"),
				resource.Column("Reason", "string", corev1.PersistentVolumeStatus{}.SwaggerDoc()["reason"]),
				resource.AgeColumn(),
				resource.WideColumn("VolumeMode", "string", corev1.PersistentVolumeSpec{}.SwaggerDoc()["volumeMode"]),
			},
			Row: persistentVolumeRow,
		},
	})
}

func defaultPersistentVolume(v *corev1.PersistentVolume) {
	spec := &v.Spec
	defaults.Zero(&v.Status.Phase, corev1.VolumePending)
	defaults.Zero(&spec.PersistentVolumeReclaimPolicy, corev1.PersistentVolumeReclaimRetain)
	defaults.Nil(&spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	resourcelist.RoundUp(spec.Capacity)
	if spec.HostPath != nil {
		defaults.Nil(&spec.HostPath.Type, corev1.HostPathUnset)
	}
	if spec.ISCSI != nil {
		defaults.Zero(&spec.ISCSI.ISCSIInterface, "default")
	}
	if spec.RBD != nil {
		defaults.Zero(&spec.RBD.RBDPool, "rbd")
		defaults.Zero(&spec.RBD.RadosUser, "admin")
		defaults.Zero(&spec.RBD.Keyring, "/etc/ceph/keyring")
	}
	if spec.AzureDisk != nil {
		DefaultAzureDisk(spec.AzureDisk)
	}
	if spec.ScaleIO != nil {
		defaults.Zero(&spec.ScaleIO.StorageMode, "ThinProvisioned")
		defaults.Zero(&spec.ScaleIO.FSType, "xfs")
	}
}

func persistentVolumeRow(v *corev1.PersistentVolume, now time.Time) []any {
	claim := ""
	if ref := v.Spec.ClaimRef; ref != nil {
		claim = ref.Namespace + "/" + ref.Name
	}
	phase := string(v.Status.Phase)
	if v.DeletionTimestamp != nil {
		phase = "Terminating"
	}
	mode := unset
	if v.Spec.VolumeMode != nil {
		mode = string(*v.Spec.VolumeMode)
	}
	class := v.Spec.StorageClassName
	if annotated, ok := v.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		class = annotated
	}
	storage := v.Spec.Capacity[corev1.ResourceStorage]
	return []any{
		v.Name, storage.String(), accessModesCell(v.Spec.AccessModes), string(v.Spec.PersistentVolumeReclaimPolicy),
		phase, claim, class, ptr.Deref(v.Spec.VolumeAttributesClassName, unset), v.Status.Reason,
		resource.Age(v.CreationTimestamp, now), mode,
	}
}

func reclaimPolicies() []corev1.PersistentVolumeReclaimPolicy {
	return []corev1.PersistentVolumeReclaimPolicy{
		corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRecycle, corev1.PersistentVolumeReclaimRetain,
	}
}

func validatePersistentVolume(_ *resource.RequestContext, v *corev1.PersistentVolume) field.ErrorList {
	spec, path := &v.Spec, field.NewPath("spec")
	var errs field.ErrorList
	if len(spec.AccessModes) == 0 {
		errs = append(errs, field.Required(path.Child("accessModes"), ""))
	}
	errs = append(errs, validateAccessModes(spec.AccessModes, path.Child("accessModes"))...)
	if len(spec.Capacity) == 0 {
		errs = append(errs, field.Required(path.Child("capacity"), ""))
	}
	if _, ok := spec.Capacity[corev1.ResourceStorage]; !ok || len(spec.Capacity) > 1 {
		errs = append(errs, field.NotSupported(path.Child("capacity"), spec.Capacity, []corev1.ResourceName{corev1.ResourceStorage}))
	}
	for name, quantity := range spec.Capacity {
		at := path.Child("capacity").Key(string(name))
		errs = append(errs, resourcelist.ValidateVolumeQuantity(quantity, at)...)
		errs = append(errs, resourcelist.Positive(quantity, at)...)
	}
	if spec.PersistentVolumeReclaimPolicy != "" {
		errs = append(errs, validators.Enum(path.Child("persistentVolumeReclaimPolicy"), spec.PersistentVolumeReclaimPolicy, reclaimPolicies()...)...)
	}
	if spec.NodeAffinity != nil {
		errs = append(errs, validateVolumeNodeAffinity(spec.NodeAffinity, path.Child("nodeAffinity"))...)
	}
	errs = append(errs, validatePersistentVolumeSource(v, path)...)
	if spec.HostPath != nil && filepath.Clean(spec.HostPath.Path) == "/" && spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
		errs = append(errs, field.Forbidden(path.Child("persistentVolumeReclaimPolicy"), "may not be 'recycle' for a hostPath mount of '/'"))
	}
	if spec.StorageClassName != "" {
		errs = append(errs, validators.Subdomain(path.Child("storageClassName"), spec.StorageClassName)...)
	}
	if spec.VolumeMode != nil {
		errs = append(errs, validators.Enum(path.Child("volumeMode"), *spec.VolumeMode, volumeModes()...)...)
	}
	return append(errs, validateVolumeAttributesClassName(spec, path)...)
}

func validateVolumeAttributesClassName(spec *corev1.PersistentVolumeSpec, path *field.Path) field.ErrorList {
	class, at := spec.VolumeAttributesClassName, path.Child("volumeAttributesClassName")
	if class == nil {
		return nil
	}
	var errs field.ErrorList
	if *class == "" {
		errs = append(errs, field.Required(at, "an empty string is disallowed"))
	} else {
		errs = append(errs, validators.Subdomain(at, *class)...)
	}
	if spec.CSI == nil {
		errs = append(errs, field.Required(path.Child("csi"), "has to be specified when using volumeAttributesClassName"))
	}
	return errs
}

func validateVolumeNodeAffinity(a *corev1.VolumeNodeAffinity, path *field.Path) field.ErrorList {
	if a.Required == nil {
		return field.ErrorList{field.Required(path.Child("required"), "must specify required node constraints")}
	}
	return nodeselector.Validate(a.Required, path.Child("required"))
}

// validatePersistentVolumeUpdate keeps the source of the volume. Upstream runs
// the checks of creates twice in updates, so each error appears twice.
func validatePersistentVolumeUpdate(r *resource.RequestContext, v, old *corev1.PersistentVolume) field.ErrorList {
	errs := resource.ValidateNamedMetadata(v, false, validation.NameIsDNSSubdomain)
	errs = append(errs, validatePersistentVolume(r, v)...)
	source := v.Spec.PersistentVolumeSource.DeepCopy()
	if was := old.Spec.CSI; was != nil && was.ControllerExpandSecretRef == nil && source.CSI != nil {
		source.CSI.ControllerExpandSecretRef = nil // can be added later
	}
	if !resource.Equal(*source, old.Spec.PersistentVolumeSource) {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "persistentvolumesource"),
			"spec.persistentvolumesource is immutable after creation\n"+validators.Diff(old.Spec.PersistentVolumeSource, *source)))
	}
	errs = append(errs, validators.ImmutableValue(field.NewPath("volumeMode"), v.Spec.VolumeMode, old.Spec.VolumeMode)...)
	if old.Spec.NodeAffinity != nil && !r.Features.Enabled(feature.MutablePVNodeAffinity) && !resource.Equal(v.Spec.NodeAffinity, withNewTopologyLabels(old.Spec.NodeAffinity, v.Spec.NodeAffinity)) {
		errs = append(errs, field.Invalid(field.NewPath("nodeAffinity"), validators.BadValue(v.Spec.NodeAffinity),
			validation.FieldImmutableErrorMsg+", except for updating from beta label to GA"))
	}
	if old.Spec.VolumeAttributesClassName != nil && v.Spec.VolumeAttributesClassName == nil {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "volumeAttributesClassName"), "update from non-nil value to nil is forbidden"))
	}
	return errs
}

// withNewTopologyLabels returns old with the keys replaced that next has
// replaced. An empty key in next is no change either: the validation of the
// selector reports it.
func withNewTopologyLabels(old, next *corev1.VolumeNodeAffinity) *corev1.VolumeNodeAffinity {
	renewed := old.DeepCopy()
	if next == nil || next.Required == nil || renewed.Required == nil ||
		len(next.Required.NodeSelectorTerms) != len(renewed.Required.NodeSelectorTerms) {
		return renewed
	}
	for i := range renewed.Required.NodeSelectorTerms {
		is, was := next.Required.NodeSelectorTerms[i].MatchExpressions, renewed.Required.NodeSelectorTerms[i].MatchExpressions
		if len(is) != len(was) {
			return renewed
		}
		for j := range was {
			if is[j].Key == nodeselector.Replacement(was[j].Key) {
				was[j].Key = is[j].Key
			}
		}
	}
	return renewed
}
