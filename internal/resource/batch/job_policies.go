package batch

import (
	"fmt"
	"math"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/resource/validators"
)

// Limits of the policies, from the API documentation of JobSpec.
const (
	maxFailureRules  = 20
	maxExitCodes     = 255
	maxPodConditions = 20
	maxSuccessRules  = 20
	maxIndexesLength = 64 << 10
)

func validatePodFailurePolicy(p *field.Path, s *batchv1.JobSpec) field.ErrorList {
	rules := p.Child("rules")
	if len(s.PodFailurePolicy.Rules) > maxFailureRules {
		return field.ErrorList{field.TooMany(rules, len(s.PodFailurePolicy.Rules), maxFailureRules)}
	}
	containers := sets.New[string]()
	for i := range s.Template.Spec.Containers {
		containers.Insert(s.Template.Spec.Containers[i].Name)
	}
	for i := range s.Template.Spec.InitContainers {
		containers.Insert(s.Template.Spec.InitContainers[i].Name)
	}
	var errs field.ErrorList
	for i := range s.PodFailurePolicy.Rules {
		at, r := rules.Index(i), &s.PodFailurePolicy.Rules[i]
		errs = append(errs, validateAction(at.Child("action"), r.Action, s.BackoffLimitPerIndex != nil)...)
		if r.OnExitCodes != nil {
			errs = append(errs, validateExitCodes(at.Child("onExitCodes"), r.OnExitCodes, containers)...)
		}
		errs = append(errs, validatePodConditions(at.Child("onPodConditions"), r.OnPodConditions)...)
		switch {
		case r.OnExitCodes != nil && len(r.OnPodConditions) > 0:
			errs = append(errs, field.Invalid(at, field.OmitValueType{}, "specifying both OnExitCodes and OnPodConditions is not supported"))
		case r.OnExitCodes == nil && len(r.OnPodConditions) == 0:
			errs = append(errs, field.Invalid(at, field.OmitValueType{}, "specifying one of OnExitCodes and OnPodConditions is required"))
		}
	}
	return errs
}

func validateAction(p *field.Path, action batchv1.PodFailurePolicyAction, perIndex bool) field.ErrorList {
	known := []batchv1.PodFailurePolicyAction{
		batchv1.PodFailurePolicyActionCount, batchv1.PodFailurePolicyActionFailIndex,
		batchv1.PodFailurePolicyActionFailJob, batchv1.PodFailurePolicyActionIgnore,
	}
	switch {
	case action == "":
		return field.ErrorList{field.Required(p, fmt.Sprintf("valid values: %q", known))}
	case action == batchv1.PodFailurePolicyActionFailIndex && !perIndex:
		return field.ErrorList{field.Invalid(p, action, "requires the backoffLimitPerIndex to be set")}
	default:
		return validators.OneOf(p, action, known...)
	}
}

func validateExitCodes(p *field.Path, r *batchv1.PodFailurePolicyOnExitCodesRequirement, containers sets.Set[string]) field.ErrorList {
	var errs field.ErrorList
	operators := []batchv1.PodFailurePolicyOnExitCodesOperator{batchv1.PodFailurePolicyOnExitCodesOpIn, batchv1.PodFailurePolicyOnExitCodesOpNotIn}
	if r.Operator == "" {
		errs = append(errs, field.Required(p.Child("operator"), fmt.Sprintf("valid values: %q", operators)))
	} else {
		errs = append(errs, validators.OneOf(p.Child("operator"), r.Operator, operators...)...)
	}
	if r.ContainerName != nil && !containers.Has(*r.ContainerName) {
		errs = append(errs, field.Invalid(p.Child("containerName"), *r.ContainerName,
			"must be one of the container or initContainer names in the pod template"))
	}
	values := p.Child("values")
	if len(r.Values) == 0 {
		return append(errs, field.Invalid(values, r.Values, "at least one value is required"))
	}
	if len(r.Values) > maxExitCodes {
		return append(errs, field.TooMany(values, len(r.Values), maxExitCodes))
	}
	seen := sets.New[int32]()
	for i, code := range r.Values {
		if code == 0 && r.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn {
			errs = append(errs, field.Invalid(values.Index(i), code, "must not be 0 for the In operator"))
		}
		if seen.Has(code) {
			errs = append(errs, field.Duplicate(values.Index(i), code))
		}
		seen.Insert(code)
	}
	if !slices.IsSorted(r.Values) {
		errs = append(errs, field.Invalid(values, r.Values, "must be ordered"))
	}
	return errs
}

func validatePodConditions(p *field.Path, patterns []batchv1.PodFailurePolicyOnPodConditionsPattern) field.ErrorList {
	if len(patterns) > maxPodConditions {
		return field.ErrorList{field.TooMany(p, len(patterns), maxPodConditions)}
	}
	var errs field.ErrorList
	for i, pattern := range patterns {
		at := p.Index(i)
		errs = append(errs, validators.Problems(at.Child("type"), string(pattern.Type), utilvalidation.IsQualifiedName(string(pattern.Type)))...)
		statuses := []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionTrue, corev1.ConditionUnknown}
		if pattern.Status == "" {
			errs = append(errs, field.Required(at.Child("status"), fmt.Sprintf("valid values: %q", statuses)))
		} else {
			errs = append(errs, validators.OneOf(at.Child("status"), pattern.Status, statuses...)...)
		}
	}
	return errs
}

func validateSuccessPolicy(p *field.Path, s *batchv1.JobSpec) field.ErrorList {
	rules := p.Child("rules")
	switch n := len(s.SuccessPolicy.Rules); {
	case n == 0:
		return field.ErrorList{field.Required(rules, "at least one rules must be specified when the successPolicy is specified")}
	case n > maxSuccessRules:
		return field.ErrorList{field.TooMany(rules, n, maxSuccessRules)}
	}
	var errs field.ErrorList
	for i := range s.SuccessPolicy.Rules {
		errs = append(errs, validateSuccessRule(rules.Index(i), s, &s.SuccessPolicy.Rules[i])...)
	}
	return errs
}

func validateSuccessRule(p *field.Path, s *batchv1.JobSpec, r *batchv1.SuccessPolicyRule) field.ErrorList {
	if r.SucceededCount == nil && r.SucceededIndexes == nil {
		return field.ErrorList{field.Required(p, "at least one of succeededCount or succeededIndexes must be specified")}
	}
	var errs field.ErrorList
	var total int32
	if r.SucceededIndexes != nil {
		at := p.Child("succeededIndexes")
		if len(*r.SucceededIndexes) > maxIndexesLength {
			errs = append(errs, field.TooLong(at, *r.SucceededIndexes, maxIndexesLength))
		}
		var err error
		if total, err = countIndexes(*r.SucceededIndexes, ptr.Deref(s.Completions, math.MaxInt32)); err != nil {
			errs = append(errs, field.Invalid(at, *r.SucceededIndexes, "error parsing succeededIndexes: "+err.Error()))
		}
	}
	if n := r.SucceededCount; n != nil {
		at := p.Child("succeededCount")
		errs = append(errs, validators.NonnegativePointer(at, n)...)
		if s.Completions != nil && *n > *s.Completions {
			errs = append(errs, field.Invalid(at, *n, fmt.Sprintf("must be less than or equal to %d (the number of specified completions)", *s.Completions)))
		}
		if r.SucceededIndexes != nil && *n > total {
			errs = append(errs, field.Invalid(at, *n, fmt.Sprintf("must be less than or equal to %d (the number of indexes in the specified succeededIndexes field)", total)))
		}
	}
	return errs
}
