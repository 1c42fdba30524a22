package pod

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/feature"
)

// matchLabelKeys and mismatchLabelKeys stand for the values of the pod's own
// labels. When a pod is created, the server adds them to the selectors next to
// them, so that every reader of a selector sees them (KEP-3633, KEP-3243). With
// MatchLabelKeysInPodTopologySpreadSelectorMerge off, it leaves those of
// topologySpreadConstraints to the scheduler.

func mergeLabelKeys(features *feature.Set, p *corev1.Pod) {
	merge := func(selector *metav1.LabelSelector, keys []string, operator metav1.LabelSelectorOperator) {
		if selector == nil {
			return
		}
		for _, key := range keys {
			if value, ok := p.Labels[key]; ok {
				selector.MatchExpressions = append(selector.MatchExpressions,
					metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: []string{value}})
			}
		}
	}
	terms := affinityTerms(p.Spec.Affinity)
	for i := range terms {
		merge(terms[i].LabelSelector, terms[i].MatchLabelKeys, metav1.LabelSelectorOpIn)
		merge(terms[i].LabelSelector, terms[i].MismatchLabelKeys, metav1.LabelSelectorOpNotIn)
	}
	if !features.Enabled(feature.MatchLabelKeysInPodTopologySpread) || !features.Enabled(feature.MatchLabelKeysInPodTopologySpreadSelectorMerge) {
		return
	}
	for i := range p.Spec.TopologySpreadConstraints {
		c := &p.Spec.TopologySpreadConstraints[i]
		merge(c.LabelSelector, c.MatchLabelKeys, metav1.LabelSelectorOpIn)
	}
}

// validateLabelKeys checks the keys next to a selector.
func validateLabelKeys(match, mismatch []string, selector *metav1.LabelSelector, path *field.Path) field.ErrorList {
	errs := validateLabelKeyNames(match, selector, path.Child("matchLabelKeys"))
	errs = append(errs, validateLabelKeyNames(mismatch, selector, path.Child("mismatchLabelKeys"))...)
	errs = append(errs, validateMergedKeys(match, selector, path)...)
	both := sets.New(mismatch...)
	for i, key := range match {
		if both.Has(key) {
			errs = append(errs, field.Invalid(path.Child("matchLabelKeys").Index(i), key, "exists in both matchLabelKeys and mismatchLabelKeys"))
		}
	}
	return errs
}

func validateLabelKeyNames(keys []string, selector *metav1.LabelSelector, path *field.Path) field.ErrorList {
	if len(keys) == 0 {
		return nil
	}
	if selector == nil {
		return field.ErrorList{field.Forbidden(path, "must not be specified when labelSelector is not set")}
	}
	var errs field.ErrorList
	for i, key := range keys {
		errs = append(errs, metav1validation.ValidateLabelName(key, path.Index(i))...)
	}
	return errs
}

// validateMergedKeys refuses keys of matchLabelKeys that the author of the pod
// has put into the selector, too: there they are twice, because mergeLabelKeys
// has added them. A template has no merged requirements, so its selector may
// name a key once. Keys of mismatchLabelKeys may be in the selector: they
// exclude one more value.
func validateMergedKeys(keys []string, selector *metav1.LabelSelector, path *field.Path) field.ErrorList {
	if len(keys) == 0 || selector == nil {
		return nil
	}
	index := make(map[string]int, len(keys))
	for i, key := range keys {
		index[key] = i
	}
	selected := sets.KeySet(selector.MatchLabels)
	var errs field.ErrorList
	for _, e := range selector.MatchExpressions {
		if i, ok := index[e.Key]; ok && selected.Has(e.Key) {
			errs = append(errs, field.Invalid(path.Index(i), e.Key, "exists in both matchLabelKeys and labelSelector"))
		}
		selected.Insert(e.Key)
	}
	return errs
}
