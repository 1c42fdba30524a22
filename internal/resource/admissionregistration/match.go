package admissionregistration

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/resource/defaults"
	"github.com/coracle-io/coracle/internal/resource/printers"
)

func defaultMatchResources(m *admissionv1.MatchResources) {
	if m == nil {
		return
	}
	defaults.Nil(&m.MatchPolicy, admissionv1.Equivalent)
	defaults.Nil(&m.NamespaceSelector, metav1.LabelSelector{})
	defaults.Nil(&m.ObjectSelector, metav1.LabelSelector{})
	for _, rules := range [][]admissionv1.NamedRuleWithOperations{m.ResourceRules, m.ExcludeResourceRules} {
		for i := range rules {
			defaults.Nil(&rules[i].Scope, admissionv1.AllScopes)
		}
	}
}

func paramKindCell(k *admissionv1.ParamKind) string {
	if k == nil {
		return printers.Unset
	}
	return k.APIVersion + "/" + k.Kind
}

func paramRefCell(r *admissionv1.ParamRef) string {
	switch {
	case r == nil:
		return printers.Unset
	case r.Selector != nil:
		return metav1.FormatLabelSelector(r.Selector)
	case r.Namespace != "":
		return r.Namespace + "/" + r.Name
	default:
		return r.Name
	}
}
