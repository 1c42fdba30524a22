package admissionregistration

import (
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/defaults"
)

// ValidatingAdmissionPolicies is the resource validatingadmissionpolicies.
func ValidatingAdmissionPolicies() *resource.Resource {
	return resource.Define(resource.Definition[admissionv1.ValidatingAdmissionPolicy, *admissionv1.ValidatingAdmissionPolicy]{
		GroupVersion: admissionv1.SchemeGroupVersion,
		Names: resource.Names{
			Kind:       "ValidatingAdmissionPolicy",
			Plural:     "validatingadmissionpolicies",
			Categories: []string{category},
		},
		Cluster: true,
		Default: func(p *admissionv1.ValidatingAdmissionPolicy) {
			defaults.Nil(&p.Spec.FailurePolicy, admissionv1.Fail)
			defaultMatchResources(p.Spec.MatchConstraints)
		},
		Spec: func(p *admissionv1.ValidatingAdmissionPolicy) any { return p.Spec },
		Status: resource.Status[*admissionv1.ValidatingAdmissionPolicy]{
			Copy:          func(p, from *admissionv1.ValidatingAdmissionPolicy) { p.Status = from.Status },
			KeepsMetadata: true,
			Validate:      validatePolicyStatus,
			Warnings:      func(p *admissionv1.ValidatingAdmissionPolicy) []string { return reservedWarnings(p.Name) },
		},
		UnqualifiedFinalizers:   true,
		MetadataUpdateUnchecked: true,
		UpdateValidatesAlone:    true,
		Strategy:                strategy(validateValidatingPolicy),
		Table: resource.Table[*admissionv1.ValidatingAdmissionPolicy]{
			Columns: []metav1.TableColumnDefinition{
				resource.NameColumn(),
				resource.Column("Validations", "integer", "Validations indicates the number of validations rules defined in this configuration"),
				resource.Column("ParamKind", "string", "ParamKind specifies the kind of resources used to parameterize this policy"),
				resource.AgeColumn(),
			},
			Row: func(p *admissionv1.ValidatingAdmissionPolicy, now time.Time) []any {
				return []any{p.Name, int64(len(p.Spec.Validations)), paramKindCell(p.Spec.ParamKind), resource.Age(p.CreationTimestamp, now)}
			},
		},
	})
}
