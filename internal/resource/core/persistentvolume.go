package core

import (
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/fill"
)

// PersistentVolumes is the resource persistentvolumes.
func PersistentVolumes() *resource.Resource {
	return resource.Define(resource.Definition[corev1.PersistentVolume, *corev1.PersistentVolume]{
		GroupVersion:        corev1.SchemeGroupVersion,
		Kind:                "PersistentVolume",
		Plural:              "persistentvolumes",
		ReturnDeletedObject: true,
		ShortNames:          []string{"pv"},
		Cluster:             true,
		Default:             defaultPersistentVolume,
		CopyStatus:          func(v, from *corev1.PersistentVolume) { v.Status = from.Status },
		PrepareForCreate: func(r *resource.Request, v *corev1.PersistentVolume) {
			now := metav1.NewTime(r.Now)
			v.Status = corev1.PersistentVolumeStatus{Phase: corev1.VolumePending, LastPhaseTransitionTime: &now}
		},
		PrepareStatus: func(r *resource.Request, v, old *corev1.PersistentVolume) {
			told := v.Status.LastPhaseTransitionTime
			switch was := old.Status.LastPhaseTransitionTime; {
			case v.Status.Phase == old.Status.Phase && told == nil:
				v.Status.LastPhaseTransitionTime = was
			case v.Status.Phase != old.Status.Phase && (told == nil || told.Equal(was)):
				now := metav1.NewTime(r.Now)
				v.Status.LastPhaseTransitionTime = &now
			}
		},
		Validate:       validatePersistentVolume,
		ValidateUpdate: validatePersistentVolumeUpdate,
		Warnings:       volumeObjectWarnings,
		// ValidateUpdate checks the metadata once more, as upstream does.
		MetadataUpdateUnchecked: true,
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
	})
}

func defaultPersistentVolume(v *corev1.PersistentVolume) {
	spec := &v.Spec
	fill.Zero(&v.Status.Phase, corev1.VolumePending)
	fill.Zero(&spec.PersistentVolumeReclaimPolicy, corev1.PersistentVolumeReclaimRetain)
	fill.Nil(&spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	roundResources(spec.Capacity)
	if spec.HostPath != nil {
		fill.Nil(&spec.HostPath.Type, corev1.HostPathUnset)
	}
	if spec.ISCSI != nil {
		fill.Zero(&spec.ISCSI.ISCSIInterface, "default")
	}
	if spec.RBD != nil {
		fill.Zero(&spec.RBD.RBDPool, "rbd")
		fill.Zero(&spec.RBD.RadosUser, "admin")
		fill.Zero(&spec.RBD.Keyring, "/etc/ceph/keyring")
	}
	if spec.AzureDisk != nil {
		defaultAzureDisk(spec.AzureDisk)
	}
	if spec.ScaleIO != nil {
		fill.Zero(&spec.ScaleIO.StorageMode, "ThinProvisioned")
		fill.Zero(&spec.ScaleIO.FSType, "xfs")
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

var reclaimPolicies = []corev1.PersistentVolumeReclaimPolicy{
	corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRecycle, corev1.PersistentVolumeReclaimRetain,
}

func validatePersistentVolume(_ *resource.Request, v *corev1.PersistentVolume) field.ErrorList {
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
		errs = append(errs, basicQuantity(quantity, at)...)
		errs = append(errs, positiveQuantity(quantity, at)...)
	}
	if spec.PersistentVolumeReclaimPolicy != "" {
		errs = append(errs, oneOf(spec.PersistentVolumeReclaimPolicy, path.Child("persistentVolumeReclaimPolicy"), reclaimPolicies...)...)
	}
	if spec.NodeAffinity != nil {
		errs = append(errs, validateVolumeNodeAffinity(spec.NodeAffinity, path.Child("nodeAffinity"))...)
	}
	errs = append(errs, validatePersistentVolumeSource(v, path)...)
	if spec.HostPath != nil && filepath.Clean(spec.HostPath.Path) == "/" && spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
		errs = append(errs, field.Forbidden(path.Child("persistentVolumeReclaimPolicy"), "may not be 'recycle' for a hostPath mount of '/'"))
	}
	if spec.StorageClassName != "" {
		errs = append(errs, invalid(path.Child("storageClassName"), spec.StorageClassName, nameIsDNSSubdomain(spec.StorageClassName))...)
	}
	if spec.VolumeMode != nil {
		errs = append(errs, oneOf(*spec.VolumeMode, path.Child("volumeMode"), volumeModes...)...)
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
		errs = append(errs, invalid(at, *class, nameIsDNSSubdomain(*class))...)
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
	return ValidateNodeSelector(a.Required, path.Child("required"))
}

// validatePersistentVolumeUpdate fixes what the volume is. Updates have always
// been checked twice as creates are, which clients see in the causes.
func validatePersistentVolumeUpdate(r *resource.Request, v, old *corev1.PersistentVolume) field.ErrorList {
	errs := resource.ValidateNamedMetadata(v, false, validation.NameIsDNSSubdomain)
	errs = append(errs, validatePersistentVolume(r, v)...)
	source := v.Spec.PersistentVolumeSource.DeepCopy()
	if was := old.Spec.CSI; was != nil && was.ControllerExpandSecretRef == nil && source.CSI != nil {
		source.CSI.ControllerExpandSecretRef = nil // may be added later
	}
	if !equal(*source, old.Spec.PersistentVolumeSource) {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "persistentvolumesource"),
			"spec.persistentvolumesource is immutable after creation\n"+changes(old.Spec.PersistentVolumeSource, *source)))
	}
	errs = append(errs, immutable(v.Spec.VolumeMode, old.Spec.VolumeMode, field.NewPath("volumeMode"))...)
	if old.Spec.NodeAffinity != nil && !r.Features.Enabled("MutablePVNodeAffinity") && !equal(v.Spec.NodeAffinity, withNewTopologyLabels(old.Spec.NodeAffinity, v.Spec.NodeAffinity)) {
		errs = append(errs, field.Invalid(field.NewPath("nodeAffinity"), shown(v.Spec.NodeAffinity),
			fieldImmutable+", except for updating from beta label to GA"))
	}
	if old.Spec.VolumeAttributesClassName != nil && v.Spec.VolumeAttributesClassName == nil {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "volumeAttributesClassName"), "update from non-nil value to nil is forbidden"))
	}
	return errs
}

// topologyLabels are the labels that took the place of older ones.
var topologyLabels = map[string]string{
	corev1.LabelFailureDomainBetaZone:   corev1.LabelTopologyZone,
	corev1.LabelFailureDomainBetaRegion: corev1.LabelTopologyRegion,
	corev1.LabelInstanceType:            corev1.LabelInstanceTypeStable,
	"beta.kubernetes.io/os":             corev1.LabelOSStable,
	"beta.kubernetes.io/arch":           corev1.LabelArchStable,
}

// withNewTopologyLabels is old with those of its keys renewed that next has
// renewed. A key that next leaves out is refused as a selector, not as a change.
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
			if is[j].Key == topologyLabels[was[j].Key] {
				was[j].Key = is[j].Key
			}
		}
	}
	return renewed
}
