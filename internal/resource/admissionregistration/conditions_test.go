package admissionregistration

import (
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
)

// TestConditionsOfStoredPolicies checks that the conditions of a policy are
// checked again only if they change, or what they can refer to.
func TestConditionsOfStoredPolicies(t *testing.T) {
	type conditioned struct {
		expression string
		params     *admissionv1.ParamKind
	}
	wrong := []string{"spec.matchConditions[0].expression"}
	for _, test := range []struct {
		name   string
		now    conditioned
		stored *conditioned
		want   []string
	}{
		{"a new one", conditioned{expression: "1"}, nil, wrong},
		{"as before", conditioned{expression: "1"}, &conditioned{expression: "1"}, nil},
		{"another condition", conditioned{expression: "1"}, &conditioned{expression: "2"}, wrong},
		{"other parameters", conditioned{expression: "1"}, &conditioned{expression: "1", params: &admissionv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}}, wrong},
	} {
		validating := func(p conditioned) *admissionv1.ValidatingAdmissionPolicy {
			return &admissionv1.ValidatingAdmissionPolicy{Spec: admissionv1.ValidatingAdmissionPolicySpec{
				ParamKind: p.params, MatchConditions: []admissionv1.MatchCondition{{Name: "c", Expression: p.expression}},
			}}
		}
		mutating := func(p conditioned) *admissionv1.MutatingAdmissionPolicy {
			return &admissionv1.MutatingAdmissionPolicy{Spec: admissionv1.MutatingAdmissionPolicySpec{
				ParamKind: p.params, MatchConditions: []admissionv1.MatchCondition{{Name: "c", Expression: p.expression}},
			}}
		}
		var oldValidating *admissionv1.ValidatingAdmissionPolicy
		var oldMutating *admissionv1.MutatingAdmissionPolicy
		if test.stored != nil {
			oldValidating, oldMutating = validating(*test.stored), mutating(*test.stored)
		}
		c := newCompilers()
		for kind, errs := range map[string][]string{
			"validating": fieldsOf(validateValidatingPolicy(c, validating(test.now), oldValidating)),
			"mutating":   fieldsOf(validateMutatingPolicy(c, mutating(test.now), oldMutating)),
		} {
			got := slices.DeleteFunc(errs, func(name string) bool { return name != wrong[0] })
			if !slices.Equal(got, test.want) {
				t.Errorf("%s, %s: errors at %q, want %q", test.name, kind, got, test.want)
			}
		}
	}
}

// TestOrderOfMutations checks that the errors of mutations come before that of
// the reinvocation, and its supported values in order.
func TestOrderOfMutations(t *testing.T) {
	errs := validateMutatingPolicy(newCompilers(), &admissionv1.MutatingAdmissionPolicy{Spec: admissionv1.MutatingAdmissionPolicySpec{
		ReinvocationPolicy: "Always",
	}}, nil)
	want := []string{"spec.failurePolicy", "spec.matchConstraints", "spec.mutations", "spec.reinvocationPolicy"}
	if got := fieldsOf(errs); !slices.Equal(got, want) {
		t.Fatalf("errors at %q, want %q", got, want)
	}
	const last = `spec.reinvocationPolicy: Unsupported value: "Always": supported values: "IfNeeded", "Never"`
	if got := errs[len(errs)-1].Error(); got != last {
		t.Errorf("%s, want %s", got, last)
	}
}
