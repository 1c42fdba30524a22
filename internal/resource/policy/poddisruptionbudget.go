package policy

import (
	"time"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/rule"
)

// PodDisruptionBudgets is the resource poddisruptionbudgets.
func PodDisruptionBudgets() *resource.Resource {
	spec, status := policyv1.PodDisruptionBudgetSpec{}.SwaggerDoc(), policyv1.PodDisruptionBudgetStatus{}.SwaggerDoc()
	return resource.Define(resource.Definition[policyv1.PodDisruptionBudget, *policyv1.PodDisruptionBudget]{
		GroupVersion:              policyv1.SchemeGroupVersion,
		Kind:                      "PodDisruptionBudget",
		Plural:                    "poddisruptionbudgets",
		UnqualifiedFinalizers:     true,
		ForbidUnconditionalUpdate: true,
		ShortNames:                []string{"pdb"},
		Spec:                      func(b *policyv1.PodDisruptionBudget) any { return b.Spec },
		CopyStatus:                func(b, from *policyv1.PodDisruptionBudget) { b.Status = from.Status },
		ValidateName:              resource.NameIsPathSegment,
		Validate: func(_ *resource.Request, b *policyv1.PodDisruptionBudget) field.ErrorList {
			return validateBudget(field.NewPath("spec"), &b.Spec)
		},
		// Metadata is checked as that of all kinds is, and no further.
		MetadataUpdateUnchecked: true,
		UpdateValidatesAlone:    true,
		ValidateUpdate: func(_ *resource.Request, b, _ *policyv1.PodDisruptionBudget) field.ErrorList {
			return validateBudget(field.NewPath("spec"), &b.Spec)
		},
		ValidateStatus: validateBudgetStatus,
		Columns: []metav1.TableColumnDefinition{
			resource.NameColumn(),
			resource.Column("Min Available", "string", spec["minAvailable"]),
			resource.Column("Max Unavailable", "string", spec["maxUnavailable"]),
			resource.Column("Allowed Disruptions", "integer", status["disruptionsAllowed"]),
			resource.AgeColumn(),
		},
		Row: func(b *policyv1.PodDisruptionBudget, now time.Time) []any {
			return []any{
				b.Name, orNotApplicable(b.Spec.MinAvailable), orNotApplicable(b.Spec.MaxUnavailable),
				int64(b.Status.DisruptionsAllowed), resource.Age(b.CreationTimestamp, now),
			}
		},
	})
}

func orNotApplicable(v *intstr.IntOrString) string {
	if v == nil {
		return "N/A"
	}
	return v.String()
}

// internalSpec is the form in which messages show a whole spec.
type internalSpec struct {
	MinAvailable               *intstr.IntOrString
	Selector                   *metav1.LabelSelector
	MaxUnavailable             *intstr.IntOrString
	UnhealthyPodEvictionPolicy *policyv1.UnhealthyPodEvictionPolicyType
}

func validateBudget(p *field.Path, s *policyv1.PodDisruptionBudgetSpec) field.ErrorList {
	var errs field.ErrorList
	if s.MinAvailable != nil && s.MaxUnavailable != nil {
		shown := internalSpec{s.MinAvailable, s.Selector, s.MaxUnavailable, s.UnhealthyPodEvictionPolicy}
		errs = append(errs, field.Invalid(p, shown, "minAvailable and maxUnavailable cannot be both set"))
	}
	for _, amount := range []struct {
		name  string
		value *intstr.IntOrString
	}{{"minAvailable", s.MinAvailable}, {"maxUnavailable", s.MaxUnavailable}} {
		if amount.value != nil {
			errs = append(errs, rule.IntOrPercent(p.Child(amount.name), *amount.value)...)
			errs = append(errs, rule.AtMostWhole(p.Child(amount.name), *amount.value)...)
		}
	}
	errs = append(errs, rule.Selector(p.Child("selector"), s.Selector)...)
	if s.UnhealthyPodEvictionPolicy != nil {
		errs = append(errs, rule.OneOf(p.Child("unhealthyPodEvictionPolicy"), *s.UnhealthyPodEvictionPolicy, policyv1.AlwaysAllow, policyv1.IfHealthyBudget)...)
	}
	return errs
}

func validateBudgetStatus(_ *resource.Request, b, _ *policyv1.PodDisruptionBudget) field.ErrorList {
	p := field.NewPath("status")
	errs := metav1validation.ValidateConditions(b.Status.Conditions, p.Child("conditions"))
	errs = append(errs, rule.Nonnegative(p.Child("disruptionsAllowed"), b.Status.DisruptionsAllowed)...)
	errs = append(errs, rule.Nonnegative(p.Child("currentHealthy"), b.Status.CurrentHealthy)...)
	errs = append(errs, rule.Nonnegative(p.Child("desiredHealthy"), b.Status.DesiredHealthy)...)
	return append(errs, rule.Nonnegative(p.Child("expectedPods"), b.Status.ExpectedPods)...)
}
