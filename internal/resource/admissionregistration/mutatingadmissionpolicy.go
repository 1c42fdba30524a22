package admissionregistration

import (
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/defaults"
)

// MutatingAdmissionPolicies is the resource mutatingadmissionpolicies.
func MutatingAdmissionPolicies() *resource.Resource {
	return resource.Define(resource.Definition[admissionv1.MutatingAdmissionPolicy, *admissionv1.MutatingAdmissionPolicy]{
		GroupVersion: admissionv1.SchemeGroupVersion,
		Names: resource.Names{
			Kind:       "MutatingAdmissionPolicy",
			Plural:     "mutatingadmissionpolicies",
			Categories: []string{category},
		},
		Cluster: true,
		Default: func(p *admissionv1.MutatingAdmissionPolicy) {
			defaults.Nil(&p.Spec.FailurePolicy, admissionv1.Fail)
			defaultMatchResources(p.Spec.MatchConstraints)
		},
		Spec:                    func(p *admissionv1.MutatingAdmissionPolicy) any { return p.Spec },
		UnqualifiedFinalizers:   true,
		MetadataUpdateUnchecked: true,
		UpdateValidatesAlone:    true,
		Strategy:                strategy(validateMutatingPolicy),
		Table: resource.Table[*admissionv1.MutatingAdmissionPolicy]{
			Columns: []metav1.TableColumnDefinition{
				resource.NameColumn(),
				resource.Column("Mutations", "integer", "Mutations indicates the number of mutations rules defined in this configuration"),
				resource.Column("ParamKind", "string", "ParamKind specifies the kind of resources used to parameterize this policy"),
				resource.AgeColumn(),
			},
			Row: func(p *admissionv1.MutatingAdmissionPolicy, now time.Time) []any {
				return []any{p.Name, int64(len(p.Spec.Mutations)), paramKindCell(p.Spec.ParamKind), resource.Age(p.CreationTimestamp, now)}
			},
		},
	})
}
