package pod

import (
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

func taintEffects() []corev1.TaintEffect {
	return []corev1.TaintEffect{
		corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute,
	}
}

// ValidateTaintEffect checks the effect of a taint or of a toleration. The
// effect of a toleration may be empty.
func ValidateTaintEffect(effect corev1.TaintEffect, mayBeEmpty bool, path *field.Path) field.ErrorList {
	switch effect {
	case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
		return nil
	case "":
		if mayBeEmpty {
			return nil
		}
		return field.ErrorList{field.Required(path, "")}
	}
	return field.ErrorList{field.NotSupported(path, effect, taintEffects())}
}

// NumericTolerations reports whether tolerations can compare numbers
// (KEP-5471): the feature is enabled, or the old tolerations do so.
func NumericTolerations(features *feature.Set, old []corev1.Toleration) bool {
	return features.Enabled(feature.TaintTolerationComparisonOperators) || slices.ContainsFunc(old, func(t corev1.Toleration) bool {
		return t.Operator == corev1.TolerationOpLt || t.Operator == corev1.TolerationOpGt
	})
}

// ValidateTolerations checks the tolerations of a pod or of a RuntimeClass.
// numeric allows the operators that compare numbers.
func ValidateTolerations(tolerations []corev1.Toleration, path *field.Path, numeric bool) field.ErrorList {
	var errs field.ErrorList
	for i := range tolerations {
		errs = append(errs, validateToleration(&tolerations[i], path.Index(i), numeric)...)
	}
	return errs
}

func validateToleration(t *corev1.Toleration, path *field.Path, numeric bool) field.ErrorList {
	var errs field.ErrorList
	if t.Key != "" {
		errs = append(errs, metav1validation.ValidateLabelName(t.Key, path.Child("key"))...)
	}
	if t.Key == "" && t.Operator != corev1.TolerationOpExists {
		errs = append(errs, field.Invalid(path.Child("operator"), t.Operator,
			"operator must be Exists when `key` is empty, which means \"match all values and all keys\""))
	}
	if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
		errs = append(errs, field.Invalid(path.Child("effect"), t.Effect,
			"effect must be 'NoExecute' when `tolerationSeconds` is set"))
	}
	switch at := path.Child("operator"); t.Operator {
	case corev1.TolerationOpEqual, "":
		errs = append(errs, validators.Problems(at, t.Value, utilvalidation.IsValidLabelValue(t.Value))...)
	case corev1.TolerationOpExists:
		if t.Value != "" {
			errs = append(errs, field.Invalid(at, t.Value, "value must be empty when `operator` is 'Exists'"))
		}
	case corev1.TolerationOpLt, corev1.TolerationOpGt:
		if numeric {
			errs = append(errs, validateNumber(t.Value, path.Child("value"))...)
			break
		}
		// Upstream names these operators, too.
		errs = append(errs, field.NotSupported(at, t.Operator, []corev1.TolerationOperator{
			corev1.TolerationOpEqual, corev1.TolerationOpExists, corev1.TolerationOpLt, corev1.TolerationOpGt,
		}))
	default:
		errs = append(errs, field.NotSupported(at, t.Operator, []corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists}))
	}
	return append(errs, ValidateTaintEffect(t.Effect, true, path.Child("effect"))...)
}

// validateNumber checks a number that taint values are compared with: a 64-bit
// integer without plus sign and leading zeros.
func validateNumber(value string, path *field.Path) field.ErrorList {
	errs := validators.Problems(path, value, content.IsDecimalInteger(value))
	if _, err := strconv.ParseInt(value, 10, 64); err != nil {
		errs = append(errs, field.Invalid(path, value, err.Error()))
	}
	return errs
}

func unsatisfiableActions() []corev1.UnsatisfiableConstraintAction {
	return []corev1.UnsatisfiableConstraintAction{corev1.DoNotSchedule, corev1.ScheduleAnyway}
}

func nodeInclusionPolicies() []corev1.NodeInclusionPolicy {
	return []corev1.NodeInclusionPolicy{corev1.NodeInclusionPolicyIgnore, corev1.NodeInclusionPolicyHonor}
}

func (r *schedulingRules) validateTopologySpread(path *field.Path) field.ErrorList {
	type identity struct {
		key    string
		action corev1.UnsatisfiableConstraintAction
	}
	last := map[identity]int{}
	for i, c := range r.spec.TopologySpreadConstraints {
		last[identity{c.TopologyKey, c.WhenUnsatisfiable}] = i
	}
	var errs field.ErrorList
	for i := range r.spec.TopologySpreadConstraints {
		c := &r.spec.TopologySpreadConstraints[i]
		repeated := last[identity{c.TopologyKey, c.WhenUnsatisfiable}] > i
		errs = append(errs, r.validateTopologySpreadConstraint(c, repeated, path.Index(i))...)
	}
	return errs
}

// validateTopologySpreadConstraint checks one constraint. repeated means that a
// later one has the same key and action.
func (r *schedulingRules) validateTopologySpreadConstraint(c *corev1.TopologySpreadConstraint, repeated bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if c.MaxSkew <= 0 {
		errs = append(errs, field.Invalid(path.Child("maxSkew"), c.MaxSkew, validators.NotPositive))
	}
	if c.TopologyKey == "" {
		errs = append(errs, field.Required(path.Child("topologyKey"), "can not be empty"))
	}
	errs = append(errs, validators.Enum(path.Child("whenUnsatisfiable"), c.WhenUnsatisfiable, unsatisfiableActions()...)...)
	if repeated {
		errs = append(errs, field.Duplicate(path.Child("{topologyKey, whenUnsatisfiable}"),
			fmt.Sprintf("{%v, %v}", c.TopologyKey, c.WhenUnsatisfiable)))
	}
	if c.MinDomains != nil {
		at := path.Child("minDomains")
		if *c.MinDomains <= 0 {
			errs = append(errs, field.Invalid(at, *c.MinDomains, validators.NotPositive))
		}
		if c.WhenUnsatisfiable != corev1.DoNotSchedule {
			errs = append(errs, field.Invalid(at, *c.MinDomains,
				fmt.Sprintf("can only use minDomains if whenUnsatisfiable=%s, not %s", corev1.DoNotSchedule, c.WhenUnsatisfiable)))
		}
	}
	for _, policy := range []struct {
		name  string
		value *corev1.NodeInclusionPolicy
	}{{"nodeAffinityPolicy", c.NodeAffinityPolicy}, {"nodeTaintsPolicy", c.NodeTaintsPolicy}} {
		if policy.value != nil {
			errs = append(errs, validators.Enum(path.Child(policy.name), *policy.value, nodeInclusionPolicies()...)...)
		}
	}
	errs = append(errs, validateLabelKeys(c.MatchLabelKeys, nil, c.LabelSelector, path)...)
	if !r.InvalidLabelSelectors {
		errs = append(errs, metav1validation.ValidateLabelSelector(c.LabelSelector,
			metav1validation.LabelSelectorValidationOptions{}, path.Child("labelSelector"))...)
	}
	return errs
}
