package admissionregistration

import (
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
)

// MutatingAdmissionPolicyBindings is the resource mutatingadmissionpolicybindings.
func MutatingAdmissionPolicyBindings() *resource.Resource {
	return resource.Define(resource.Definition[admissionv1.MutatingAdmissionPolicyBinding, *admissionv1.MutatingAdmissionPolicyBinding]{
		GroupVersion: admissionv1.SchemeGroupVersion,
		Names: resource.Names{
			Kind:       "MutatingAdmissionPolicyBinding",
			Plural:     "mutatingadmissionpolicybindings",
			Categories: []string{category},
		},
		Cluster: true,
		Default: func(b *admissionv1.MutatingAdmissionPolicyBinding) {
			defaultMatchResources(b.Spec.MatchResources)
		},
		Spec:                    func(b *admissionv1.MutatingAdmissionPolicyBinding) any { return b.Spec },
		UnqualifiedFinalizers:   true,
		MetadataUpdateUnchecked: true,
		UpdateValidatesAlone:    true,
		Strategy: strategy(func(_ *compilers, b, _ *admissionv1.MutatingAdmissionPolicyBinding) field.ErrorList {
			p := field.NewPath("spec")
			errs := validateBinding(p, b.Spec.PolicyName, b.Spec.ParamRef, b.Spec.MatchResources)
			return append(errs, validateMutable(p.Child("matchResources"), b.Spec.MatchResources)...)
		}),
		Table: resource.Table[*admissionv1.MutatingAdmissionPolicyBinding]{
			Columns: []metav1.TableColumnDefinition{
				resource.NameColumn(),
				resource.Column("PolicyName", "string", "PolicyName indicates the policy definition which the policy binding binded to"),
				resource.Column("ParamRef", "string", "ParamRef indicates the param resource which sets the configration param"), //nolint:misspell // upstream spells it so
				resource.AgeColumn(),
			},
			Row: func(b *admissionv1.MutatingAdmissionPolicyBinding, now time.Time) []any {
				return []any{b.Name, b.Spec.PolicyName, paramRefCell(b.Spec.ParamRef), resource.Age(b.CreationTimestamp, now)}
			},
		},
	})
}
