package dynamicresources

import (
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// ResourceClaimTemplates is the resource resourceclaimtemplates.
func ResourceClaimTemplates() *resource.Resource {
	return resource.Define(resource.Definition[resourcev1.ResourceClaimTemplate, *resourcev1.ResourceClaimTemplate]{
		GroupVersion:         resourcev1.SchemeGroupVersion,
		Names:                resource.Names{Kind: "ResourceClaimTemplate", Plural: "resourceclaimtemplates"},
		Default:              func(t *resourcev1.ResourceClaimTemplate) { defaultClaim(&t.Spec.Spec) },
		UpdateValidatesAlone: true,
		Strategy: resource.Strategy[*resourcev1.ResourceClaimTemplate]{
			PrepareForCreate: func(r *resource.RequestContext, t *resourcev1.ResourceClaimTemplate) {
				feature.Drop(r.Features, claimFields(), &t.Spec.Spec, nil)
			},
			PrepareForUpdate: func(r *resource.RequestContext, t, old *resourcev1.ResourceClaimTemplate) {
				feature.Drop(r.Features, claimFields(), &t.Spec.Spec, &old.Spec.Spec)
			},
			Validate: func(r *resource.RequestContext, t *resourcev1.ResourceClaimTemplate) field.ErrorList {
				errs := validateAdminAccess(r, t.Spec.Spec.Devices.Requests)
				errs = append(errs, validators.TemplateMetadata(field.NewPath("spec", "metadata"), &t.Spec.ObjectMeta)...)
				return append(errs, validateClaim(field.NewPath("spec", "spec"), &t.Spec.Spec, r.Features)...)
			},
			ValidateUpdate: func(_ *resource.RequestContext, t, old *resourcev1.ResourceClaimTemplate) field.ErrorList {
				return immutableSpec(t.Spec, old.Spec)
			},
		},
		Table: resource.Table[*resourcev1.ResourceClaimTemplate]{Columns: []metav1.TableColumnDefinition{resource.NameColumn(), resource.AgeColumn()}},
	})
}
