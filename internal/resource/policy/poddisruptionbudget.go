package policy

import (
	"time"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// PodDisruptionBudgets is the resource poddisruptionbudgets.
func PodDisruptionBudgets() *resource.Resource {
	spec, status := policyv1.PodDisruptionBudgetSpec{}.SwaggerDoc(), policyv1.PodDisruptionBudgetStatus{}.SwaggerDoc()
	return resource.Define(resource.Definition[policyv1.PodDisruptionBudget, *policyv1.PodDisruptionBudget]{
		GroupVersion: policyv1.SchemeGroupVersion,
		Names: resource.Names{
			Kind:       "PodDisruptionBudget",
			Plural:     "poddisruptionbudgets",
			ShortNames: []string{"pdb"},
		},
		Spec: func(b *policyv1.PodDisruptionBudget) any { return b.Spec },
		Status: resource.Status[*policyv1.PodDisruptionBudget]{
			Copy:     func(b, from *policyv1.PodDisruptionBudget) { b.Status = from.Status },
			Validate: validateBudgetStatus,
		},
		UnqualifiedFinalizers: true,
		// resource.ValidateUpdate checks the metadata, and upstream does not check it
		// twice here.
		MetadataUpdateUnchecked: true,
		UpdateValidatesAlone:    true,
		Strategy: resource.Strategy[*policyv1.PodDisruptionBudget]{
			ForbidUnconditionalUpdate: true,
			ValidateName:              resource.NameIsPathSegment,
			Validate: func(_ *resource.RequestContext, b *policyv1.PodDisruptionBudget) field.ErrorList {
				return validateBudget(field.NewPath("spec"), &b.Spec, metav1validation.LabelSelectorValidationOptions{})
			},
			ValidateUpdate: func(_ *resource.RequestContext, b, old *policyv1.PodDisruptionBudget) field.ErrorList {
				return validateBudget(field.NewPath("spec"), &b.Spec, validators.SelectorOptions(old.Spec.Selector))
			},
		},
		Table: resource.Table[*policyv1.PodDisruptionBudget]{
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
		},
	})
}

func orNotApplicable(v *intstr.IntOrString) string {
	if v == nil {
		return "N/A"
	}
	return v.String()
}

// internalSpec is the form in which messages show a spec.
type internalSpec struct {
	MinAvailable               *intstr.IntOrString
	Selector                   *metav1.LabelSelector
	MaxUnavailable             *intstr.IntOrString
	UnhealthyPodEvictionPolicy *policyv1.UnhealthyPodEvictionPolicyType
}

func validateBudget(p *field.Path, s *policyv1.PodDisruptionBudgetSpec, selectors metav1validation.LabelSelectorValidationOptions) field.ErrorList {
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
			errs = append(errs, validators.IntOrPercent(p.Child(amount.name), *amount.value)...)
			errs = append(errs, validators.AtMostWhole(p.Child(amount.name), *amount.value)...)
		}
	}
	errs = append(errs, metav1validation.ValidateLabelSelector(s.Selector, selectors, p.Child("selector"))...)
	if s.UnhealthyPodEvictionPolicy != nil {
		errs = append(errs, validators.OneOf(p.Child("unhealthyPodEvictionPolicy"), *s.UnhealthyPodEvictionPolicy, policyv1.AlwaysAllow, policyv1.IfHealthyBudget)...)
	}
	return errs
}

func validateBudgetStatus(_ *resource.RequestContext, b, _ *policyv1.PodDisruptionBudget) field.ErrorList {
	p := field.NewPath("status")
	errs := metav1validation.ValidateConditions(b.Status.Conditions, p.Child("conditions"))
	errs = append(errs, validators.Nonnegative(p.Child("disruptionsAllowed"), b.Status.DisruptionsAllowed)...)
	errs = append(errs, validators.Nonnegative(p.Child("currentHealthy"), b.Status.CurrentHealthy)...)
	errs = append(errs, validators.Nonnegative(p.Child("desiredHealthy"), b.Status.DesiredHealthy)...)
	return append(errs, validators.Nonnegative(p.Child("expectedPods"), b.Status.ExpectedPods)...)
}
