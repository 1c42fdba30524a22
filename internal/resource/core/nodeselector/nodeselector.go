// Package nodeselector validates the node selectors of pods, volumes and
// devices, and warns of deprecated node labels in them.
package nodeselector

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource/validators"
)

// Validate checks a node selector, which must have at least one term.
func Validate(selector *corev1.NodeSelector, path *field.Path) field.ErrorList {
	terms := path.Child("nodeSelectorTerms")
	if len(selector.NodeSelectorTerms) == 0 {
		return field.ErrorList{field.Required(terms, "must have at least one node selector term")}
	}
	var errs field.ErrorList
	for i := range selector.NodeSelectorTerms {
		errs = append(errs, ValidateTerm(&selector.NodeSelectorTerms[i], terms.Index(i), LabelValues)...)
	}
	return errs
}

// The argument values of [ValidateTerm]: whether the values of a requirement
// must be valid label values. Upstream does not check the values of preferred
// terms.
const (
	AnyValues   = false
	LabelValues = true
)

// ValidateTerm checks one term. It checks the values of its label requirements
// only if values is [LabelValues].
func ValidateTerm(term *corev1.NodeSelectorTerm, path *field.Path, values bool) field.ErrorList {
	var errs field.ErrorList
	for i := range term.MatchExpressions {
		errs = append(errs, validateRequirement(&term.MatchExpressions[i], path.Child("matchExpressions").Index(i), values)...)
	}
	for i := range term.MatchFields {
		errs = append(errs, validateFieldRequirement(&term.MatchFields[i], path.Child("matchFields").Index(i))...)
	}
	return errs
}

func validateRequirement(q *corev1.NodeSelectorRequirement, path *field.Path, checkValues bool) field.ErrorList {
	var errs field.ErrorList
	values := path.Child("values")
	switch q.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		if len(q.Values) == 0 {
			errs = append(errs, field.Required(values, "must be specified when `operator` is 'In' or 'NotIn'"))
		}
	case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
		if len(q.Values) > 0 {
			errs = append(errs, field.Forbidden(values, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"))
		}
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		if len(q.Values) != 1 {
			errs = append(errs, field.Required(values, "must be specified single value when `operator` is 'Lt' or 'Gt'"))
		}
	default:
		errs = append(errs, field.Invalid(path.Child("operator"), q.Operator, "not a valid selector operator"))
	}
	errs = append(errs, metav1validation.ValidateLabelName(q.Key, path.Child("key"))...)
	if checkValues {
		for i, value := range q.Values {
			errs = append(errs, validators.Problems(values.Index(i), value, utilvalidation.IsValidLabelValue(value))...)
		}
	}
	return errs
}

// validateFieldRequirement checks a requirement on a field of the node. Only
// metadata.name can be selected.
func validateFieldRequirement(q *corev1.NodeSelectorRequirement, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch q.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		if len(q.Values) != 1 {
			errs = append(errs, field.Required(path.Child("values"), "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"))
		}
	default:
		errs = append(errs, field.Invalid(path.Child("operator"), q.Operator, "not a valid selector operator"))
	}
	if q.Key != metav1.ObjectNameField {
		return append(errs, field.Invalid(path.Child("key"), q.Key, "not a valid field selector key"))
	}
	for i, value := range q.Values {
		errs = append(errs, validators.Subdomain(path.Child("values").Index(i), value)...)
	}
	return errs
}
