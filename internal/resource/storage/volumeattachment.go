package storage

import (
	"math"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core/volume"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// VolumeAttachments is the resource volumeattachments.
func VolumeAttachments() *resource.Resource {
	doc := storagev1.VolumeAttachmentSpec{}.SwaggerDoc()
	attacher := resource.Column("Attacher", "string", doc["attacher"])
	attacher.Format = "name"
	return resource.Define(resource.Definition[storagev1.VolumeAttachment, *storagev1.VolumeAttachment]{
		GroupVersion: storagev1.SchemeGroupVersion,
		Names:        resource.Names{Kind: "VolumeAttachment", Plural: "volumeattachments"},
		Cluster:      true,
		Status: resource.Status[*storagev1.VolumeAttachment]{
			Copy:          func(a, from *storagev1.VolumeAttachment) { a.Status = from.Status },
			KeepsMetadata: true,
			Validate: func(_ *resource.RequestContext, a, _ *storagev1.VolumeAttachment) field.ErrorList {
				return validateStoredAttachment(a)
			},
		},
		MetadataUpdateUnchecked: true,
		UpdateValidatesAlone:    true,
		Strategy: resource.Strategy[*storagev1.VolumeAttachment]{
			ForbidUnconditionalUpdate: true,
			Validate:                  validateVolumeAttachment,
			ValidateUpdate:            validateVolumeAttachmentUpdate,
		},
		Table: resource.Table[*storagev1.VolumeAttachment]{
			Columns: []metav1.TableColumnDefinition{
				resource.NameColumn(),
				attacher,
				resource.Column("PV", "string", storagev1.VolumeAttachmentSource{}.SwaggerDoc()["persistentVolumeName"]),
				resource.Column("Node", "string", doc["nodeName"]),
				resource.Column("Attached", "boolean", storagev1.VolumeAttachmentStatus{}.SwaggerDoc()["attached"]),
				resource.AgeColumn(),
			},
			Row: func(a *storagev1.VolumeAttachment, now time.Time) []any {
				return []any{
					a.Name, a.Spec.Attacher, ptr.Deref(a.Spec.Source.PersistentVolumeName, ""), a.Spec.NodeName,
					a.Status.Attached, resource.Age(a.CreationTimestamp, now),
				}
			},
		},
	})
}

// validateVolumeAttachment checks a new attachment. The errors of its attacher
// come from tags of the type, after the others.
func validateVolumeAttachment(_ *resource.RequestContext, a *storagev1.VolumeAttachment) field.ErrorList {
	errs, at, attacher := validateAttachment(a), field.NewPath("spec", "attacher"), a.Spec.Attacher
	if attacher == "" {
		return append(errs, field.Required(at, ""))
	}
	errs = append(errs, validators.Problems(at, attacher, content.IsDNS1123SubdomainCaseless(attacher))...) //nolint:staticcheck // the tag's rule
	if len(attacher) > maxDriverName {
		errs = append(errs, field.TooLongCharacters(at, attacher, maxDriverName))
	}
	return errs
}

func validateStoredAttachment(a *storagev1.VolumeAttachment) field.ErrorList {
	return append(validateDriverName(field.NewPath("spec", "attacher"), a.Spec.Attacher), validateAttachment(a)...)
}

// validateAttachment checks an attachment except for its attacher.
func validateAttachment(a *storagev1.VolumeAttachment) field.ErrorList {
	var errs field.ErrorList
	p, s := field.NewPath("spec"), &a.Spec
	source := p.Child("source")
	switch inline, name := s.Source.InlineVolumeSpec, s.Source.PersistentVolumeName; {
	case inline == nil && name == nil:
		errs = append(errs, field.Required(source, "must specify exactly one of inlineVolumeSpec and persistentVolumeName"))
	case inline != nil && name != nil:
		errs = append(errs, field.Forbidden(source, "must specify exactly one of inlineVolumeSpec and persistentVolumeName"))
	case inline != nil:
		errs = append(errs, volume.ValidateInline(a.Name, inline, source.Child("inlineVolumeSpec"))...)
	case *name == "":
		errs = append(errs, field.Required(source.Child("persistentVolumeName"), "must specify non empty persistentVolumeName"))
	}
	errs = append(errs, validators.Subdomain(p.Child("nodeName"), s.NodeName)...)
	errs = append(errs, validateAttachmentStatus(&a.Status)...)
	if name := s.Source.PersistentVolumeName; name != nil {
		errs = append(errs, validators.Subdomain(source.Child("persistentVolumeName"), *name)...)
	}
	return errs
}

// Limits of what the status reports, in bytes.
const (
	maxAttachmentMetadata     = 256 << 10
	maxAttachmentErrorMessage = 1024
)

func validateAttachmentStatus(s *storagev1.VolumeAttachmentStatus) field.ErrorList {
	var errs field.ErrorList
	p, size := field.NewPath("status"), 0
	for key, value := range s.AttachmentMetadata {
		size += len(key) + len(value)
	}
	if size > maxAttachmentMetadata {
		errs = append(errs, field.TooLong(p.Child("attachmentMetadata"), "", maxAttachmentMetadata))
	}
	errs = append(errs, validateVolumeError(p.Child("attachError"), s.AttachError)...)
	return append(errs, validateVolumeError(p.Child("detachError"), s.DetachError)...)
}

func validateVolumeError(p *field.Path, e *storagev1.VolumeError) field.ErrorList {
	if e == nil {
		return nil
	}
	var errs field.ErrorList
	if len(e.Message) > maxAttachmentErrorMessage {
		errs = append(errs, field.TooLong(p.Child("message"), "", maxAttachmentErrorMessage))
	}
	if e.ErrorCode != nil && *e.ErrorCode < 0 {
		errs = append(errs, field.Invalid(p.Child("errorCode"), *e.ErrorCode, utilvalidation.InclusiveRangeError(0, math.MaxInt32)))
	}
	return errs
}

func validateVolumeAttachmentUpdate(_ *resource.RequestContext, a, old *storagev1.VolumeAttachment) field.ErrorList {
	errs := append(resource.ValidateNamedMetadata(a, false, validation.NameIsDNSSubdomain), validateStoredAttachment(a)...)
	return append(errs, validators.Unchanged(field.NewPath("spec"), a.Spec, old.Spec)...)
}
