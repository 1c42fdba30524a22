package storage

import (
	"strings"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/defaults"
	"github.com/coracle-io/coracle/internal/resource/printers"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// CSIDrivers is the resource csidrivers.
func CSIDrivers() *resource.Resource {
	doc := storagev1.CSIDriverSpec{}.SwaggerDoc()
	return resource.Define(resource.Definition[storagev1.CSIDriver, *storagev1.CSIDriver]{
		GroupVersion:         storagev1.SchemeGroupVersion,
		Names:                resource.Names{Kind: "CSIDriver", Plural: "csidrivers"},
		Cluster:              true,
		Default:              defaultCSIDriver,
		UpdateValidatesAlone: true,
		Strategy: resource.Strategy[*storagev1.CSIDriver]{
			ForbidUnconditionalUpdate: true,
			Validate: func(_ *resource.RequestContext, d *storagev1.CSIDriver) field.ErrorList {
				return validateCSIDriverSpec(&d.Spec)
			},
			ValidateUpdate: validateCSIDriverUpdate,
			Warnings:       csiDriverWarnings,
			PrepareForCreate: func(r *resource.RequestContext, d *storagev1.CSIDriver) {
				dropDisabled(r, &d.Spec, &storagev1.CSIDriverSpec{})
			},
			PrepareForUpdate: func(r *resource.RequestContext, d, old *storagev1.CSIDriver) {
				dropDisabled(r, &d.Spec, &old.Spec)
				if !equality.Semantic.DeepEqual(d.Spec, old.Spec) {
					d.Generation = old.Generation + 1
				}
			},
		},
		Table: resource.Table[*storagev1.CSIDriver]{
			Columns: []metav1.TableColumnDefinition{
				resource.NameColumn(),
				resource.Column("AttachRequired", "boolean", doc["attachRequired"]),
				resource.Column("PodInfoOnMount", "boolean", doc["podInfoOnMount"]),
				resource.Column("StorageCapacity", "boolean", doc["storageCapacity"]),
				resource.Column("TokenRequests", "string", doc["tokenRequests"]),
				resource.Column("RequiresRepublish", "boolean", doc["requiresRepublish"]),
				resource.Column("Modes", "string", doc["volumeLifecycleModes"]),
				resource.AgeColumn(),
			},
			Row: csiDriverRow,
		},
	})
}

// csiDriverWarnings warns if a driver gets new kinds of tokens among the
// attributes of volumes, which drivers log.
func csiDriverWarnings(_ *resource.RequestContext, d, old *storagev1.CSIDriver) []string {
	tokens := d.Spec.TokenRequests
	if len(tokens) == 0 || d.Spec.ServiceAccountTokenInSecrets != nil || old != nil && equality.Semantic.DeepEqual(tokens, old.Spec.TokenRequests) {
		return nil
	}
	return []string{"spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, " +
		"set to true to prevent possible logging of tokens in volume attributes"}
}

// dropDisabled leaves the field of a feature that is disabled as it was, unless
// the stored driver uses it.
func dropDisabled(r *resource.RequestContext, s, old *storagev1.CSIDriverSpec) {
	if !r.Features.Enabled(feature.VolumeLimitScaling) && !ptr.Deref(old.PreventPodSchedulingIfMissing, false) {
		s.PreventPodSchedulingIfMissing = old.PreventPodSchedulingIfMissing
	}
}

func defaultCSIDriver(d *storagev1.CSIDriver) {
	defaults.Nil(&d.Spec.AttachRequired, true)
	defaults.Nil(&d.Spec.PodInfoOnMount, false)
	defaults.Nil(&d.Spec.StorageCapacity, false)
	defaults.Nil(&d.Spec.FSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
	if len(d.Spec.VolumeLifecycleModes) == 0 {
		d.Spec.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
	}
	defaults.Nil(&d.Spec.RequiresRepublish, false)
	defaults.Nil(&d.Spec.SELinuxMount, false)
	defaults.Nil(&d.Spec.PreventPodSchedulingIfMissing, false)
}

func csiDriverRow(d *storagev1.CSIDriver, now time.Time) []any {
	modes, tokens := printers.None, printers.Unset
	if len(d.Spec.VolumeLifecycleModes) > 0 {
		var names []string
		for _, mode := range d.Spec.VolumeLifecycleModes {
			names = append(names, string(mode))
		}
		modes = strings.Join(names, ",")
	}
	if d.Spec.TokenRequests != nil {
		var audiences []string
		for _, request := range d.Spec.TokenRequests {
			audiences = append(audiences, request.Audience)
		}
		tokens = strings.Join(audiences, ",")
	}
	return []any{
		d.Name, ptr.Deref(d.Spec.AttachRequired, true), ptr.Deref(d.Spec.PodInfoOnMount, false),
		ptr.Deref(d.Spec.StorageCapacity, false), tokens, ptr.Deref(d.Spec.RequiresRepublish, false), modes,
		resource.Age(d.CreationTimestamp, now),
	}
}

func validateCSIDriverSpec(s *storagev1.CSIDriverSpec) field.ErrorList {
	p := field.NewPath("spec")
	var errs field.ErrorList
	if s.FSGroupPolicy != nil {
		errs = append(errs, validators.OneOf(p.Child("fsGroupPolicy"), *s.FSGroupPolicy, storagev1.FileFSGroupPolicy,
			storagev1.NoneFSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)...)
	}
	audiences := sets.New[string]()
	for i, request := range s.TokenRequests {
		at := p.Child("tokenRequests").Index(i)
		if audiences.Has(request.Audience) {
			errs = append(errs, field.Duplicate(at.Child("audience"), request.Audience))
			continue
		}
		audiences.Insert(request.Audience)
		if e := request.ExpirationSeconds; e != nil && *e < minTokenSeconds {
			errs = append(errs, field.Invalid(at.Child("expirationSeconds"), *e, "may not specify a duration less than 10 minutes"))
		} else if e != nil && *e > maxTokenSeconds {
			errs = append(errs, field.Invalid(at.Child("expirationSeconds"), *e, "may not specify a duration larger than 2^32 seconds"))
		}
	}
	for _, mode := range s.VolumeLifecycleModes {
		errs = append(errs, validators.OneOf(p.Child("volumeLifecycleModes"), mode, storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral)...)
	}
	if n := s.NodeAllocatableUpdatePeriodSeconds; n != nil && *n < minAllocatableUpdateSeconds {
		errs = append(errs, field.Invalid(p.Child("nodeAllocatableUpdatePeriodSeconds"), *n, "must be greater than or equal to 10 seconds"))
	}
	if in := s.ServiceAccountTokenInSecrets; in != nil && len(s.TokenRequests) == 0 {
		errs = append(errs, field.Invalid(p.Child("serviceAccountTokenInSecrets"), *in,
			"serviceAccountTokenInSecrets is set but no tokenRequests are specified"))
	}
	return errs
}

func validateCSIDriverUpdate(_ *resource.RequestContext, d, old *storagev1.CSIDriver) field.ErrorList {
	p := field.NewPath("spec")
	errs := validateCSIDriverSpec(&d.Spec)
	errs = append(errs, validators.Immutable(p.Child("attachedRequired"), d.Spec.AttachRequired, old.Spec.AttachRequired)...)
	return append(errs, validators.Immutable(p.Child("volumeLifecycleModes"), d.Spec.VolumeLifecycleModes, old.Spec.VolumeLifecycleModes)...)
}
