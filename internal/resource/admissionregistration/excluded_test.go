package admissionregistration_test

import (
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/admissionregistration"
)

// TestExcludedResources checks the warnings about rules that have no effect.
func TestExcludedResources(t *testing.T) {
	rule := func(groups, resources []string) admissionv1.RuleWithOperations {
		return admissionv1.RuleWithOperations{Rule: admissionv1.Rule{APIGroups: groups, Resources: resources}}
	}
	rules := []admissionv1.RuleWithOperations{
		rule([]string{"apps"}, []string{"deployments"}),
		rule([]string{"authorization.k8s.io", "authentication.k8s.io", "authorization.k8s.io"}, []string{"tokenreviews", "subjectaccessreviews"}),
		rule([]string{"*"}, []string{"tokenreviews"}),
		rule([]string{"authentication.k8s.io"}, []string{"*"}),
		rule([]string{"authorization.k8s.io"}, []string{"tokenreviews"}),
	}
	off, err := feature.Parse([]string{"ExcludeAdmissionWebhookVirtualResources=false"})
	if err != nil {
		t.Fatal(err)
	}
	const end = " is excluded from admission webhooks; this rule will have no effect"
	want := []string{"webhooks[1].rules[1]: subjectaccessreviews.authorization.k8s.io" + end, "webhooks[1].rules[1]: tokenreviews.authentication.k8s.io" + end}
	for name, warnings := range map[string]func(r *resource.RequestContext) []string{
		"mutating": func(r *resource.RequestContext) []string {
			o := &admissionv1.MutatingWebhookConfiguration{Webhooks: []admissionv1.MutatingWebhook{{}, {Rules: rules}}}
			return admissionregistration.MutatingWebhookConfigurations().Strategy.Warnings(r, o, nil)
		},
		"validating": func(r *resource.RequestContext) []string {
			o := &admissionv1.ValidatingWebhookConfiguration{Webhooks: []admissionv1.ValidatingWebhook{{}, {Rules: rules}}}
			return admissionregistration.ValidatingWebhookConfigurations().Strategy.Warnings(r, o, o)
		},
	} {
		if got := warnings(&resource.RequestContext{}); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
		if got := warnings(&resource.RequestContext{Features: off}); len(got) > 0 {
			t.Errorf("%s: %q though it is off", name, got)
		}
	}
}
