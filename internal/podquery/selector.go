package podquery

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Selector returns a selector of labels. An empty one selects all; nil and a malformed one
// select nothing.
func Selector(s *metav1.LabelSelector) labels.Selector {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return labels.Nothing()
	}
	return selector
}

// Selects reports whether a selector that is not malformed matches the labels of a pod. An
// empty one matches all, none matches nothing. It takes no memory: to parse a selector, which
// may have a hundred thousand requirements, takes much longer than to ask it once.
func Selects(s *metav1.LabelSelector, podLabels labels.Set) bool {
	if s == nil || !labels.ValidatedSetSelector(s.MatchLabels).Matches(podLabels) {
		return false
	}
	for i := range s.MatchExpressions {
		if !meets(&s.MatchExpressions[i], podLabels) {
			return false
		}
	}
	return true
}

// meets reports whether the labels of a pod meet a requirement.
func meets(r *metav1.LabelSelectorRequirement, podLabels labels.Set) bool {
	value, has := podLabels[r.Key]
	switch r.Operator {
	case metav1.LabelSelectorOpIn:
		return has && slices.Contains(r.Values, value)
	case metav1.LabelSelectorOpNotIn:
		return !has || !slices.Contains(r.Values, value)
	case metav1.LabelSelectorOpExists:
		return has
	case metav1.LabelSelectorOpDoesNotExist:
		return !has
	}
	return false
}
