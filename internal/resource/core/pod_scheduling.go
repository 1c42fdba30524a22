package core

import (
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/feature"
)

var taintEffects = []corev1.TaintEffect{
	corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute,
}

func validateTaintEffect(effect corev1.TaintEffect, mayBeEmpty bool, path *field.Path) field.ErrorList {
	switch effect {
	case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
		return nil
	case "":
		if mayBeEmpty {
			return nil
		}
		return field.ErrorList{field.Required(path, "")}
	}
	return field.ErrorList{field.NotSupported(path, effect, taintEffects)}
}

// NumericTolerations says whether tolerations may compare numbers (KEP-5471):
// when that is on, or old ones do so already.
func NumericTolerations(features *feature.Set, old []corev1.Toleration) bool {
	return features.Enabled("TaintTolerationComparisonOperators") || slices.ContainsFunc(old, func(t corev1.Toleration) bool {
		return t.Operator == corev1.TolerationOpLt || t.Operator == corev1.TolerationOpGt
	})
}

// ValidateTolerations checks tolerations of pods, or of all pods of a
// RuntimeClass. Only where numeric is set may they compare numbers.
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
	operators := []corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists}
	if numeric {
		operators = append(operators, corev1.TolerationOpLt, corev1.TolerationOpGt)
	}
	switch operator := t.Operator; {
	case operator == corev1.TolerationOpEqual || operator == "":
		errs = append(errs, invalid(path.Child("operator"), t.Value, utilvalidation.IsValidLabelValue(t.Value))...)
	case operator == corev1.TolerationOpExists:
		if t.Value != "" {
			errs = append(errs, field.Invalid(path.Child("operator"), t.Value, "value must be empty when `operator` is 'Exists'"))
		}
	case slices.Contains(operators, operator):
		errs = append(errs, validateNumber(t.Value, path.Child("value"))...)
	default:
		errs = append(errs, field.NotSupported(path.Child("operator"), operator, operators))
	}
	return append(errs, validateTaintEffect(t.Effect, true, path.Child("effect"))...)
}

// validateNumber requires what taints' values can be compared with: an integer
// of 64 bits, without needless signs and zeros.
func validateNumber(value string, path *field.Path) field.ErrorList {
	if errs := invalid(path, value, content.IsDecimalInteger(value)); len(errs) > 0 {
		return errs
	}
	if _, err := strconv.ParseInt(value, 10, 64); err != nil {
		return field.ErrorList{field.Invalid(path, value, err.Error())}
	}
	return nil
}

var unsatisfiableActions = []corev1.UnsatisfiableConstraintAction{corev1.DoNotSchedule, corev1.ScheduleAnyway}

var nodeInclusionPolicies = []corev1.NodeInclusionPolicy{corev1.NodeInclusionPolicyIgnore, corev1.NodeInclusionPolicyHonor}

func (r *podRules) validateTopologySpread(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range r.spec.TopologySpreadConstraints {
		errs = append(errs, r.validateTopologySpreadConstraint(i, path.Index(i))...)
	}
	return errs
}

func (r *podRules) validateTopologySpreadConstraint(i int, path *field.Path) field.ErrorList {
	constraints := r.spec.TopologySpreadConstraints
	c := &constraints[i]
	var errs field.ErrorList
	if c.MaxSkew <= 0 {
		errs = append(errs, field.Invalid(path.Child("maxSkew"), c.MaxSkew, isNotPositive))
	}
	if c.TopologyKey == "" {
		errs = append(errs, field.Required(path.Child("topologyKey"), "can not be empty"))
	}
	errs = append(errs, oneOf(c.WhenUnsatisfiable, path.Child("whenUnsatisfiable"), unsatisfiableActions...)...)
	for j := i + 1; j < len(constraints); j++ {
		if constraints[j].TopologyKey == c.TopologyKey && constraints[j].WhenUnsatisfiable == c.WhenUnsatisfiable {
			errs = append(errs, field.Duplicate(path.Child("{topologyKey, whenUnsatisfiable}"),
				fmt.Sprintf("{%v, %v}", c.TopologyKey, c.WhenUnsatisfiable)))
			break
		}
	}
	if c.MinDomains != nil {
		at := path.Child("minDomains")
		if *c.MinDomains <= 0 {
			errs = append(errs, field.Invalid(at, *c.MinDomains, isNotPositive))
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
			errs = append(errs, oneOf(*policy.value, path.Child(policy.name), nodeInclusionPolicies...)...)
		}
	}
	errs = append(errs, r.validateSpreadLabelKeys(c, path)...)
	if !r.InvalidLabelSelectors {
		errs = append(errs, metav1validation.ValidateLabelSelector(c.LabelSelector,
			metav1validation.LabelSelectorValidationOptions{}, path.Child("labelSelector"))...)
	}
	return errs
}

func (r *podRules) validateSpreadLabelKeys(c *corev1.TopologySpreadConstraint, path *field.Path) field.ErrorList {
	if len(c.MatchLabelKeys) == 0 {
		return nil
	}
	at := path.Child("matchLabelKeys")
	if c.LabelSelector == nil {
		return field.ErrorList{field.Forbidden(at, "must not be specified when labelSelector is not set")}
	}
	var errs field.ErrorList
	for i, key := range c.MatchLabelKeys {
		errs = append(errs, metav1validation.ValidateLabelName(key, at.Index(i))...)
	}
	return append(errs, r.validateLabelKeys(c.MatchLabelKeys, "matchLabelKeys", metav1.LabelSelectorOpIn, c.LabelSelector, path)...)
}
