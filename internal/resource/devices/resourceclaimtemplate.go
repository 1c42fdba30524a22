package devices

import (
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core"
)

// ResourceClaimTemplates is the resource resourceclaimtemplates.
func ResourceClaimTemplates() *resource.Resource {
	return resource.Define(resource.Definition[resourcev1.ResourceClaimTemplate, *resourcev1.ResourceClaimTemplate]{
		GroupVersion: resourcev1.SchemeGroupVersion,
		Kind:         "ResourceClaimTemplate",
		Plural:       "resourceclaimtemplates",
		Default:      func(t *resourcev1.ResourceClaimTemplate) { defaultClaim(&t.Spec.Spec) },
		PrepareForCreate: func(r *resource.Request, t *resourcev1.ResourceClaimTemplate) {
			feature.Drop(r.Features, claimFields, &t.Spec.Spec, nil)
		},
		PrepareForUpdate: func(r *resource.Request, t, old *resourcev1.ResourceClaimTemplate) {
			feature.Drop(r.Features, claimFields, &t.Spec.Spec, &old.Spec.Spec)
		},
		Validate: func(r *resource.Request, t *resourcev1.ResourceClaimTemplate) field.ErrorList {
			errs := validateAdminAccess(r, t.Spec.Spec.Devices.Requests)
			errs = append(errs, core.ValidateTemplateMetadata(&t.Spec.ObjectMeta, field.NewPath("spec", "metadata"))...)
			return append(errs, validateClaim(field.NewPath("spec", "spec"), &t.Spec.Spec, r.Features)...)
		},
		UpdateValidatesAlone: true,
		ValidateUpdate: func(_ *resource.Request, t, old *resourcev1.ResourceClaimTemplate) field.ErrorList {
			return immutableSpec(t.Spec, old.Spec)
		},
		Columns: []metav1.TableColumnDefinition{resource.NameColumn(), resource.AgeColumn()},
	})
}
