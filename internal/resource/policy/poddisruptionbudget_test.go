package policy_test

import (
	"slices"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/policy"
	"github.com/coracle-io/coracle/internal/resource/resourcetest"
)

// TestStoredSelector checks that a budget whose selector has a wrong value can
// change, and that others cannot get one.
func TestStoredSelector(t *testing.T) {
	budget := func(value string, least int32) *policyv1.PodDisruptionBudget {
		b := &policyv1.PodDisruptionBudget{Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: ptr.To(intstr.FromInt32(least)),
			Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "a", Operator: metav1.LabelSelectorOpIn, Values: []string{value}},
			}},
		}}
		b.Name, b.Namespace, b.ResourceVersion = "b", "n", "1"
		return b
	}
	const value = "spec.selector.matchExpressions[0].values[0]"
	for _, test := range []struct {
		name        string
		stored, now *policyv1.PodDisruptionBudget
		want        []string
	}{
		{"right", budget("a", 1), budget("b", 1), nil},
		{"wrong before", budget("a b", 1), budget("a b", 2), nil},
		{"wrong from now on", budget("a", 1), budget("a b", 1), []string{value}},
		{"another error", budget("a b", 1), budget("a b", -1), []string{"spec.minAvailable"}},
	} {
		var got []string
		for _, err := range resourcetest.BeforeUpdate(policy.PodDisruptionBudgets(), &resource.RequestContext{}, test.now, test.stored) {
			got = append(got, err.Field)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: errors at %q, want %q", test.name, got, test.want)
		}
	}
}
