package pod

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// matchLabelKeys and mismatchLabelKeys stand for the values of the pod's own
// labels. When a pod is created, the server adds them to the selectors next to
// them, so that every reader of a selector sees them (KEP-3633, KEP-3243).

func mergeLabelKeys(p *corev1.Pod) {
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
	for i := range p.Spec.TopologySpreadConstraints {
		c := &p.Spec.TopologySpreadConstraints[i]
		merge(c.LabelSelector, c.MatchLabelKeys, metav1.LabelSelectorOpIn)
	}
}

// validateLabelKeys refuses keys that the selector already uses, except in
// the requirement that mergeLabelKeys added.
func (r *schedulingRules) validateLabelKeys(keys []string, name string, operator metav1.LabelSelectorOperator, selector *metav1.LabelSelector, path *field.Path) field.ErrorList {
	type use struct{ merged, own int } // the requirements with a key
	uses := map[string]use{}
	for _, e := range selector.MatchExpressions {
		u := uses[e.Key]
		if r.metadata != nil && e.Operator == operator && len(e.Values) == 1 {
			u.merged++
		} else {
			u.own++
		}
		uses[e.Key] = u
	}
	var errs field.ErrorList
	for i, key := range keys {
		_, found := selector.MatchLabels[key]
		if u := uses[key]; found || u.own > 0 || u.merged > 1 {
			errs = append(errs, field.Invalid(path.Child(name).Index(i), key, "exists in both "+name+" and labelSelector"))
		}
	}
	return errs
}
