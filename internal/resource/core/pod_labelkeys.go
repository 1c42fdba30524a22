package core

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// matchLabelKeys and mismatchLabelKeys stand for the values that a pod's own
// labels have. When the pod is created they are written into the selectors
// beside them, so that everyone who reads a selector sees them (KEP-3633,
// KEP-3243).

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
	terms := podAffinityTerms(p.Spec.Affinity)
	for i := range terms {
		merge(terms[i].LabelSelector, terms[i].MatchLabelKeys, metav1.LabelSelectorOpIn)
		merge(terms[i].LabelSelector, terms[i].MismatchLabelKeys, metav1.LabelSelectorOpNotIn)
	}
	for i := range p.Spec.TopologySpreadConstraints {
		c := &p.Spec.TopologySpreadConstraints[i]
		merge(c.LabelSelector, c.MatchLabelKeys, metav1.LabelSelectorOpIn)
	}
}

// validateLabelKeys refuses keys that the selector speaks of already, apart
// from what mergeLabelKeys wrote into a pod's.
func (r *podRules) validateLabelKeys(keys []string, name string, operator metav1.LabelSelectorOperator, selector *metav1.LabelSelector, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, key := range keys {
		_, found := selector.MatchLabels[key]
		merged := 0
		for _, e := range selector.MatchExpressions {
			switch {
			case e.Key != key:
			case r.metadata != nil && merged == 0 && e.Operator == operator && len(e.Values) == 1:
				merged++
			default:
				found = true
			}
		}
		if found {
			errs = append(errs, field.Invalid(path.Child(name).Index(i), key, "exists in both "+name+" and labelSelector"))
		}
	}
	return errs
}
