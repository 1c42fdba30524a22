package admissionregistration

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
)

func TestMutations(t *testing.T) {
	apply := func(text string) admissionv1.Mutation {
		return admissionv1.Mutation{
			PatchType:          admissionv1.PatchTypeApplyConfiguration,
			ApplyConfiguration: &admissionv1.ApplyConfiguration{Expression: text},
		}
	}
	patch := func(text string) admissionv1.Mutation {
		return admissionv1.Mutation{PatchType: admissionv1.PatchTypeJSONPatch, JSONPatch: &admissionv1.JSONPatch{Expression: text}}
	}
	for _, test := range []struct {
		name     string
		mutation admissionv1.Mutation
		want     string // a part of the message
	}{
		{"a configuration", apply(`Object{spec: Object.spec{replicas: 3}}`), ""},
		{"a patch", patch(`[JSONPatch{op: "add", path: "/metadata/labels/a", value: variables.label}]`), ""},
		{"a configuration that is none", apply(`3`), "must evaluate to Object but got int"},
		{"a patch that is none", patch(`"a"`), "but got string"},
		{"a parameter that no one declared", patch(`[JSONPatch{op: "add", path: "/a", value: params.x}]`), "undeclared reference to 'params'"},
		{"no patch type", admissionv1.Mutation{}, "spec.mutations[0].patchType: Required value"},
		{"another's patch", admissionv1.Mutation{PatchType: admissionv1.PatchTypeJSONPatch}, "spec.mutations[0].jsonPatch: Required value"},
	} {
		t.Run(test.name, func(t *testing.T) {
			policy := &admissionv1.MutatingAdmissionPolicy{Spec: admissionv1.MutatingAdmissionPolicySpec{
				MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
					RuleWithOperations: admissionv1.RuleWithOperations{
						Operations: []admissionv1.OperationType{admissionv1.Create},
						Rule:       admissionv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"deployments"}},
					},
				}}},
				Variables:          []admissionv1.Variable{{Name: "label", Expression: `"x"`}},
				ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
				Mutations:          []admissionv1.Mutation{test.mutation},
			}}
			r := MutatingAdmissionPolicies()
			r.Versions[0].Default(policy)
			errs := validateMutatingPolicy(newCompilers(), policy, nil)
			switch {
			case test.want == "" && len(errs) > 0:
				t.Errorf("refused: %v", errs)
			case test.want != "" && len(errs) != 1:
				t.Errorf("got %v, want one error", errs)
			case test.want != "" && !strings.Contains(errs[0].Error(), test.want):
				t.Errorf("got %v, want %q", errs[0], test.want)
			}
		})
	}
}
