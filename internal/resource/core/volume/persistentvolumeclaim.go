package volume

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core/resourcelist"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// PersistentVolumeClaims is the resource persistentvolumeclaims.
func PersistentVolumeClaims() *resource.Resource {
	return resource.Define(resource.Definition[corev1.PersistentVolumeClaim, *corev1.PersistentVolumeClaim]{
		GroupVersion: corev1.SchemeGroupVersion,
		Names: resource.Names{
			Kind:       "PersistentVolumeClaim",
			Plural:     "persistentvolumeclaims",
			ShortNames: []string{"pvc"},
		},
		Default: defaultPersistentVolumeClaim,
		Status: resource.Status[*corev1.PersistentVolumeClaim]{
			Copy: func(c, from *corev1.PersistentVolumeClaim) { c.Status = from.Status },
			Prepare: func(r *resource.RequestContext, c, old *corev1.PersistentVolumeClaim) {
				if old.Status.HealthStatus == nil && !r.Features.Enabled(feature.CSIVolumeHealth) {
					c.Status.HealthStatus = nil
				}
			},
			Validate: validateClaimStatus,
		},
		UpdateValidatesAlone: true,
		Strategy: resource.Strategy[*corev1.PersistentVolumeClaim]{
			PrepareForCreate: func(r *resource.RequestContext, c *corev1.PersistentVolumeClaim) {
				c.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}
				dropCrossNamespaceDataSource(r.Features, &c.Spec, nil)
				dropUnsupportedDataSource(&c.Spec, nil)
				normalizeDataSources(&c.Spec)
			},
			PrepareForUpdate: func(r *resource.RequestContext, c, old *corev1.PersistentVolumeClaim) {
				dropCrossNamespaceDataSource(r.Features, &c.Spec, &old.Spec)
				dropUnsupportedDataSource(&c.Spec, &old.Spec)
				normalizeDataSources(&c.Spec)
			},
			Validate: func(_ *resource.RequestContext, c *corev1.PersistentVolumeClaim) field.ErrorList {
				return validateClaimSpec(&c.Spec, field.NewPath("spec"), nil)
			},
			ValidateUpdate: func(_ *resource.RequestContext, c, old *corev1.PersistentVolumeClaim) field.ErrorList {
				errs := resource.ValidateNamedMetadata(c, true, validation.NameIsDNSSubdomain)
				errs = append(errs, validateClaimSpec(&c.Spec, field.NewPath("spec"), &old.Spec)...)
				return append(errs, validateClaimUpdate(c, old)...)
			},
			Warnings: func(_ *resource.RequestContext, c, _ *corev1.PersistentVolumeClaim) []string {
				return claimObjectWarnings(c)
			},
		},
		DeleteStrategy: resource.DeleteStrategy[*corev1.PersistentVolumeClaim]{ReturnDeletedObject: true},
		Table: resource.Table[*corev1.PersistentVolumeClaim]{
			Columns: []metav1.TableColumnDefinition{
				resource.NameColumn(),
				resource.Column("Status", "string", corev1.PersistentVolumeClaimStatus{}.SwaggerDoc()["phase"]),
				resource.Column("Volume", "string", corev1.PersistentVolumeClaimSpec{}.SwaggerDoc()["volumeName"]),
				resource.Column("Capacity", "string", corev1.PersistentVolumeClaimStatus{}.SwaggerDoc()["capacity"]),
				resource.Column("Access Modes", "string", corev1.PersistentVolumeClaimStatus{}.SwaggerDoc()["accessModes"]),
				resource.Column("StorageClass", "string", "StorageClass of the pvc"),
				resource.Column("VolumeAttributesClass", "string", "VolumeAttributesClass of the pvc"),
				resource.AgeColumn(),
				resource.WideColumn("VolumeMode", "string", corev1.PersistentVolumeClaimSpec{}.SwaggerDoc()["volumeMode"]),
			},
			Row: claimRow,
		},
	})
}

func defaultPersistentVolumeClaim(c *corev1.PersistentVolumeClaim) {
	if c.Status.Phase == "" {
		c.Status.Phase = corev1.ClaimPending
	}
	DefaultClaimSpec(&c.Spec)
	resourcelist.RoundUp(c.Status.Capacity)
	resourcelist.RoundUp(c.Status.AllocatedResources)
}

// dropCrossNamespaceDataSource clears a dataSourceRef to another namespace if
// CrossNamespaceVolumeDataSource is disabled and old does not have one.
func dropCrossNamespaceDataSource(features *feature.Set, spec, old *corev1.PersistentVolumeClaimSpec) {
	ref := spec.DataSourceRef
	if ref == nil || ptr.Deref(ref.Namespace, "") == "" || old != nil && old.DataSourceRef != nil {
		return
	}
	if !features.Enabled(feature.CrossNamespaceVolumeDataSource) {
		spec.DataSourceRef = nil
	}
}

// dropUnsupportedDataSource clears a dataSource that is neither a claim nor a
// snapshot. Only dataSourceRef can name other kinds.
func dropUnsupportedDataSource(spec, old *corev1.PersistentVolumeClaimSpec) {
	source := spec.DataSource
	if source == nil || old != nil && old.DataSource != nil {
		return
	}
	group := ptr.Deref(source.APIGroup, "")
	claim := source.Kind == "PersistentVolumeClaim" && group == ""
	snapshot := source.Kind == "VolumeSnapshot" && group == "snapshot.storage.k8s.io"
	if !claim && !snapshot {
		spec.DataSource = nil
	}
}

// normalizeDataSources makes dataSource, the older field, and dataSourceRef
// the same where both can express the value.
func normalizeDataSources(spec *corev1.PersistentVolumeClaimSpec) {
	switch {
	case spec.DataSourceRef != nil && ptr.Deref(spec.DataSourceRef.Namespace, "") != "":
	case spec.DataSource != nil && spec.DataSourceRef == nil:
		spec.DataSourceRef = &corev1.TypedObjectReference{
			APIGroup: spec.DataSource.APIGroup, Kind: spec.DataSource.Kind, Name: spec.DataSource.Name,
		}
	case spec.DataSource == nil && spec.DataSourceRef != nil:
		spec.DataSource = &corev1.TypedLocalObjectReference{
			APIGroup: spec.DataSourceRef.APIGroup, Kind: spec.DataSourceRef.Kind, Name: spec.DataSourceRef.Name,
		}
	}
}

func claimRow(c *corev1.PersistentVolumeClaim, now time.Time) []any {
	phase := string(c.Status.Phase)
	if c.DeletionTimestamp != nil {
		phase = "Terminating"
	}
	capacity, modes := "", ""
	if c.Spec.VolumeName != "" {
		modes = accessModesCell(c.Status.AccessModes)
		storage := c.Status.Capacity[corev1.ResourceStorage]
		capacity = storage.String()
	}
	class := ptr.Deref(c.Spec.StorageClassName, "")
	if annotated, ok := c.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		class = annotated
	}
	mode := unset
	if c.Spec.VolumeMode != nil {
		mode = string(*c.Spec.VolumeMode)
	}
	return []any{
		c.Name, phase, c.Spec.VolumeName, capacity, modes, class, ptr.Deref(c.Spec.VolumeAttributesClassName, unset),
		resource.Age(c.CreationTimestamp, now), mode,
	}
}

const unset = "<unset>"

// accessModesCell abbreviates access modes, in a fixed order.
func accessModesCell(modes []corev1.PersistentVolumeAccessMode) string {
	var shown []string
	for _, known := range []struct {
		mode  corev1.PersistentVolumeAccessMode
		short string
	}{
		{corev1.ReadWriteOnce, "RWO"}, {corev1.ReadOnlyMany, "ROX"},
		{corev1.ReadWriteMany, "RWX"}, {corev1.ReadWriteOncePod, "RWOP"},
	} {
		for _, mode := range modes {
			if mode == known.mode {
				shown = append(shown, known.short)
				break
			}
		}
	}
	return strings.Join(shown, ",")
}

// validateClaimSpec checks a claim's spec. old is the spec that it replaces,
// or nil. Invalid values that old has are accepted.
func validateClaimSpec(spec *corev1.PersistentVolumeClaimSpec, path *field.Path, old *corev1.PersistentVolumeClaimSpec) field.ErrorList {
	var errs field.ErrorList
	if len(spec.AccessModes) == 0 {
		errs = append(errs, field.Required(path.Child("accessModes"), "at least 1 access mode is required"))
	}
	if spec.Selector != nil {
		var options metav1validation.LabelSelectorValidationOptions
		if old != nil {
			options = validators.SelectorOptions(old.Selector)
		}
		errs = append(errs, metav1validation.ValidateLabelSelector(spec.Selector, options, path.Child("selector"))...)
	}
	errs = append(errs, validateAccessModes(spec.AccessModes, path.Child("accessModes"))...)
	resources := path.Child("resources")
	if request, ok := spec.Resources.Requests[corev1.ResourceStorage]; !ok {
		errs = append(errs, field.Required(resources.Key(string(corev1.ResourceStorage)), ""))
	} else {
		errs = append(errs, resourcelist.Positive(request, resources.Key(string(corev1.ResourceStorage)))...)
	}
	if class := ptr.Deref(spec.StorageClassName, ""); class != "" {
		errs = append(errs, validators.Subdomain(path.Child("storageClassName"), class)...)
	}
	if spec.VolumeMode != nil {
		errs = append(errs, validators.Enum(path.Child("volumeMode"), *spec.VolumeMode, volumeModes()...)...)
	}
	errs = append(errs, validateDataSources(spec, path, old)...)
	if class := ptr.Deref(spec.VolumeAttributesClassName, ""); class != "" {
		errs = append(errs, validators.Subdomain(path.Child("volumeAttributesClassName"), class)...)
	}
	return errs
}

func validateDataSources(spec *corev1.PersistentVolumeClaimSpec, path *field.Path, old *corev1.PersistentVolumeClaimSpec) field.ErrorList {
	var errs field.ErrorList
	anyGroup := old != nil && (old.DataSource != nil && old.DataSource.APIGroup != nil ||
		old.DataSourceRef != nil && old.DataSourceRef.APIGroup != nil)
	source := func(name string, group *string, kind, object string) {
		at := path.Child(name)
		errs = append(errs, validators.Required(at.Child("name"), object)...)
		errs = append(errs, validators.Required(at.Child("kind"), kind)...)
		if ptr.Deref(group, "") == "" && kind != "PersistentVolumeClaim" {
			errs = append(errs, field.Invalid(at, kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup"))
		}
		if group := ptr.Deref(group, ""); group != "" && !anyGroup {
			errs = append(errs, validators.Subdomain(at.Child("apiGroup"), group)...)
		}
	}
	if s := spec.DataSource; s != nil {
		source("dataSource", s.APIGroup, s.Kind, s.Name)
	}
	ref := spec.DataSourceRef
	if ref == nil {
		return errs
	}
	source("dataSourceRef", ref.APIGroup, ref.Kind, ref.Name)
	if namespace := ptr.Deref(ref.Namespace, ""); namespace != "" {
		errs = append(errs, validators.Problems(path.Child("dataSourceRef", "namespace"), namespace, validation.ValidateNamespaceName(namespace, false))...)
		if spec.DataSource != nil {
			errs = append(errs, field.Invalid(path, path.Child("dataSource"), "may not be specified when dataSourceRef.namespace is specified"))
		}
		return errs
	}
	if s := spec.DataSource; s != nil {
		if s.Kind != ref.Kind || s.Name != ref.Name || ptr.Deref(s.APIGroup, "") != ptr.Deref(ref.APIGroup, "") {
			errs = append(errs, field.Invalid(path, path.Child("dataSource"), "must match dataSourceRef"))
		}
	}
	return errs
}

// ClaimWarnings warns of requests and limits that are fractions of bytes.
func ClaimWarnings(spec *corev1.PersistentVolumeClaimSpec, path *field.Path) []string {
	var warnings []string
	for _, list := range []struct {
		name    string
		amounts corev1.ResourceList
	}{{"requests", spec.Resources.Requests}, {"limits", spec.Resources.Limits}} {
		if amount, ok := list.amounts[corev1.ResourceStorage]; ok && amount.MilliValue()%1000 != 0 {
			warnings = append(warnings, fmt.Sprintf("%s: fractional byte value %q is invalid, must be an integer",
				path.Child("resources", list.name).Key(string(corev1.ResourceStorage)), amount.String()))
		}
	}
	return warnings
}

// ValidateClaimSpec checks the spec of a claim that is to be created, such as
// the one in a StatefulSet.
func ValidateClaimSpec(spec *corev1.PersistentVolumeClaimSpec, path *field.Path) field.ErrorList {
	return validateClaimSpec(spec, path, nil)
}
