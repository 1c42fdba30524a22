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

// ValidatingAdmissionPolicies is the resource validatingadmissionpolicies.
func ValidatingAdmissionPolicies() *resource.Resource {
	compilers := newCompilers()
	return resource.Define(resource.Definition[admissionv1.ValidatingAdmissionPolicy, *admissionv1.ValidatingAdmissionPolicy]{
		GroupVersion:              admissionv1.SchemeGroupVersion,
		Kind:                      "ValidatingAdmissionPolicy",
		Plural:                    "validatingadmissionpolicies",
		UnqualifiedFinalizers:     true,
		ForbidUnconditionalUpdate: true,
		Categories:                []string{category},
		Cluster:                   true,
		Default: func(p *admissionv1.ValidatingAdmissionPolicy) {
			fill.Nil(&p.Spec.FailurePolicy, admissionv1.Fail)
			defaultMatchResources(p.Spec.MatchConstraints)
		},
		Spec:       func(p *admissionv1.ValidatingAdmissionPolicy) any { return p.Spec },
		CopyStatus: func(p, from *admissionv1.ValidatingAdmissionPolicy) { p.Status = from.Status },
		Validate: func(_ *resource.Request, p *admissionv1.ValidatingAdmissionPolicy) field.ErrorList {
			return validateValidatingPolicy(compilers, p, nil)
		},
		StatusKeepsMetadata:     true,
		ValidateStatus:          validatePolicyStatus,
		UpdateValidatesAlone:    true,
		MetadataUpdateUnchecked: true,
		ValidateUpdate: func(_ *resource.Request, p, old *admissionv1.ValidatingAdmissionPolicy) field.ErrorList {
			return append(resource.ValidateMetadata(p, false, validation.NameIsDNSSubdomain), validateValidatingPolicy(compilers, p, old)...)
		},
		Columns: []metav1.TableColumnDefinition{
			resource.NameColumn(),
			resource.Column("Validations", "integer", "Validations indicates the number of validations rules defined in this configuration"),
			resource.Column("ParamKind", "string", "ParamKind specifies the kind of resources used to parameterize this policy"),
			resource.AgeColumn(),
		},
		Row: func(p *admissionv1.ValidatingAdmissionPolicy, now time.Time) []any {
			return []any{p.Name, int64(len(p.Spec.Validations)), paramKindCell(p.Spec.ParamKind), resource.Age(p.CreationTimestamp, now)}
		},
	})
}
