package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Names that are long enough to be written once.
const (
	requiredTerms  = "requiredDuringSchedulingIgnoredDuringExecution"
	preferredTerms = "preferredDuringSchedulingIgnoredDuringExecution"
)

func (r *podRules) validateAffinity(a *corev1.Affinity, path *field.Path) field.ErrorList {
	if a == nil {
		return nil
	}
	var errs field.ErrorList
	if node := a.NodeAffinity; node != nil {
		at := path.Child("nodeAffinity")
		if node.RequiredDuringSchedulingIgnoredDuringExecution != nil {
			errs = append(errs, ValidateNodeSelector(node.RequiredDuringSchedulingIgnoredDuringExecution, at.Child(requiredTerms))...)
		}
		errs = append(errs, validatePreferredNodes(node.PreferredDuringSchedulingIgnoredDuringExecution, at.Child(preferredTerms))...)
	}
	if pod := a.PodAffinity; pod != nil {
		errs = append(errs, r.validatePodAffinity(pod.RequiredDuringSchedulingIgnoredDuringExecution,
			pod.PreferredDuringSchedulingIgnoredDuringExecution, path.Child("podAffinity"))...)
	}
	if anti := a.PodAntiAffinity; anti != nil {
		errs = append(errs, r.validatePodAffinity(anti.RequiredDuringSchedulingIgnoredDuringExecution,
			anti.PreferredDuringSchedulingIgnoredDuringExecution, path.Child("podAntiAffinity"))...)
	}
	return errs
}

// ValidateNodeSelector checks the terms of a selector of nodes.
func ValidateNodeSelector(selector *corev1.NodeSelector, path *field.Path) field.ErrorList {
	terms := path.Child("nodeSelectorTerms")
	if len(selector.NodeSelectorTerms) == 0 {
		return field.ErrorList{field.Required(terms, "must have at least one node selector term")}
	}
	var errs field.ErrorList
	for i := range selector.NodeSelectorTerms {
		errs = append(errs, validateNodeSelectorTerm(&selector.NodeSelectorTerms[i], terms.Index(i), labelValues)...)
	}
	return errs
}

// Whether a requirement's values must be possible as values of labels. Those
// that are merely preferred have never had to be.
const (
	anyValues   = false
	labelValues = true
)

func validateNodeSelectorTerm(term *corev1.NodeSelectorTerm, path *field.Path, values bool) field.ErrorList {
	var errs field.ErrorList
	for i := range term.MatchExpressions {
		errs = append(errs, validateNodeSelectorRequirement(&term.MatchExpressions[i], path.Child("matchExpressions").Index(i), values)...)
	}
	for i := range term.MatchFields {
		errs = append(errs, validateNodeFieldRequirement(&term.MatchFields[i], path.Child("matchFields").Index(i))...)
	}
	return errs
}

func validateNodeSelectorRequirement(q *corev1.NodeSelectorRequirement, path *field.Path, checkValues bool) field.ErrorList {
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
			errs = append(errs, invalid(values.Index(i), value, utilvalidation.IsValidLabelValue(value))...)
		}
	}
	return errs
}

// validateNodeFieldRequirement checks a requirement on a field of the node,
// of which there is one.
func validateNodeFieldRequirement(q *corev1.NodeSelectorRequirement, path *field.Path) field.ErrorList {
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
		errs = append(errs, invalid(path.Child("values").Index(i), value, validation.NameIsDNSSubdomain(value, false))...)
	}
	return errs
}

func validateWeight(weight int32, path *field.Path) field.ErrorList {
	if weight <= 0 || weight > 100 {
		return field.ErrorList{field.Invalid(path.Child("weight"), weight, "must be in the range 1-100")}
	}
	return nil
}

func validatePreferredNodes(terms []corev1.PreferredSchedulingTerm, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range terms {
		errs = append(errs, validateWeight(terms[i].Weight, path.Index(i))...)
		errs = append(errs, validateNodeSelectorTerm(&terms[i].Preference, path.Index(i).Child("preference"), anyValues)...)
	}
	return errs
}

func (r *podRules) validatePodAffinity(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range required {
		errs = append(errs, r.validatePodAffinityTerm(&required[i], path.Child(requiredTerms).Index(i))...)
	}
	for i := range preferred {
		at := path.Child(preferredTerms).Index(i)
		errs = append(errs, validateWeight(preferred[i].Weight, at)...)
		errs = append(errs, r.validatePodAffinityTerm(&preferred[i].PodAffinityTerm, at.Child("podAffinityTerm"))...)
	}
	return errs
}

func (r *podRules) validatePodAffinityTerm(term *corev1.PodAffinityTerm, path *field.Path) field.ErrorList {
	options := metav1validation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: r.InvalidLabelSelectors}
	errs := metav1validation.ValidateLabelSelector(term.LabelSelector, options, path.Child("labelSelector"))
	errs = append(errs, metav1validation.ValidateLabelSelector(term.NamespaceSelector, options, path.Child("namespaceSelector"))...)
	for _, name := range term.Namespaces {
		errs = append(errs, invalid(path.Child("namespace"), name, validation.ValidateNamespaceName(name, false))...)
	}
	errs = append(errs, r.validateAffinityLabelKeys(term, path)...)
	if term.TopologyKey == "" {
		errs = append(errs, field.Required(path.Child("topologyKey"), "can not be empty"))
	}
	return append(errs, metav1validation.ValidateLabelName(term.TopologyKey, path.Child("topologyKey"))...)
}

// validateAffinityLabelKeys checks matchLabelKeys and mismatchLabelKeys. The
// requirements that the server has made of them are part of the selector.
func (r *podRules) validateAffinityLabelKeys(term *corev1.PodAffinityTerm, path *field.Path) field.ErrorList {
	if len(term.MatchLabelKeys)+len(term.MismatchLabelKeys) == 0 {
		return nil
	}
	matches, mismatches := path.Child("matchLabelKeys"), path.Child("mismatchLabelKeys")
	var errs field.ErrorList
	for i, key := range term.MatchLabelKeys {
		errs = append(errs, metav1validation.ValidateLabelName(key, matches.Index(i))...)
	}
	for i, key := range term.MismatchLabelKeys {
		errs = append(errs, metav1validation.ValidateLabelName(key, mismatches.Index(i))...)
	}
	if term.LabelSelector == nil {
		if len(term.MatchLabelKeys) > 0 {
			errs = append(errs, field.Forbidden(matches, "must not be specified when labelSelector is not set"))
		}
		if len(term.MismatchLabelKeys) > 0 {
			errs = append(errs, field.Forbidden(mismatches, "must not be specified when labelSelector is not set"))
		}
		return errs
	}
	both := sets.New(term.MatchLabelKeys...).Intersection(sets.New(term.MismatchLabelKeys...))
	for i, key := range term.MatchLabelKeys {
		if both.Has(key) {
			errs = append(errs, field.Invalid(matches.Index(i), key, "exists in both matchLabelKeys and mismatchLabelKeys"))
		}
	}
	errs = append(errs, r.validateLabelKeys(term.MatchLabelKeys, "matchLabelKeys", metav1.LabelSelectorOpIn, term.LabelSelector, path)...)
	return append(errs, r.validateLabelKeys(term.MismatchLabelKeys, "mismatchLabelKeys", metav1.LabelSelectorOpNotIn, term.LabelSelector, path)...)
}

// podAffinityTerms lists all terms of pod affinity and anti-affinity.
func podAffinityTerms(a *corev1.Affinity) []corev1.PodAffinityTerm {
	var terms []corev1.PodAffinityTerm
	if a == nil {
		return nil
	}
	add := func(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) {
		terms = append(terms, required...)
		for i := range preferred {
			terms = append(terms, preferred[i].PodAffinityTerm)
		}
	}
	if a.PodAffinity != nil {
		add(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if a.PodAntiAffinity != nil {
		add(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	return terms
}
