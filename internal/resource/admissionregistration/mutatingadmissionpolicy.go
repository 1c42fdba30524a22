package admissionregistration

import (
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/fill"
)

// MutatingAdmissionPolicies is the resource mutatingadmissionpolicies.
func MutatingAdmissionPolicies() *resource.Resource {
	compilers := newCompilers()
	return resource.Define(resource.Definition[admissionv1.MutatingAdmissionPolicy, *admissionv1.MutatingAdmissionPolicy]{
		GroupVersion:              admissionv1.SchemeGroupVersion,
		Kind:                      "MutatingAdmissionPolicy",
		Plural:                    "mutatingadmissionpolicies",
		UnqualifiedFinalizers:     true,
		ForbidUnconditionalUpdate: true,
		Categories:                []string{category},
		Cluster:                   true,
		Default: func(p *admissionv1.MutatingAdmissionPolicy) {
			fill.Nil(&p.Spec.FailurePolicy, admissionv1.Fail)
			defaultMatchResources(p.Spec.MatchConstraints)
		},
		Spec: func(p *admissionv1.MutatingAdmissionPolicy) any { return p.Spec },
		Validate: func(_ *resource.Request, p *admissionv1.MutatingAdmissionPolicy) field.ErrorList {
			return validateMutatingPolicy(compilers, p, nil)
		},
		UpdateValidatesAlone:    true,
		MetadataUpdateUnchecked: true,
		ValidateUpdate: func(_ *resource.Request, p, old *admissionv1.MutatingAdmissionPolicy) field.ErrorList {
			return append(resource.ValidateMetadata(p, false, validation.NameIsDNSSubdomain), validateMutatingPolicy(compilers, p, old)...)
		},
		Columns: []metav1.TableColumnDefinition{
			resource.NameColumn(),
			resource.Column("Mutations", "integer", "Mutations indicates the number of mutations rules defined in this configuration"),
			resource.Column("ParamKind", "string", "ParamKind specifies the kind of resources used to parameterize this policy"),
			resource.AgeColumn(),
		},
		Row: func(p *admissionv1.MutatingAdmissionPolicy, now time.Time) []any {
			return []any{p.Name, int64(len(p.Spec.Mutations)), paramKindCell(p.Spec.ParamKind), resource.Age(p.CreationTimestamp, now)}
		},
	})
}
