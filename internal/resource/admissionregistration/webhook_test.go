package admissionregistration

import (
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/resourcetest"
)

func webhookWith(change func(*admissionv1.ValidatingWebhook)) *admissionv1.ValidatingWebhookConfiguration {
	w := admissionv1.ValidatingWebhook{
		Name: "a.example.com", SideEffects: ptr.To(admissionv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		ClientConfig: admissionv1.WebhookClientConfig{URL: ptr.To("https://a.example.com")},
	}
	if change != nil {
		change(&w)
	}
	c := &admissionv1.ValidatingWebhookConfiguration{Webhooks: []admissionv1.ValidatingWebhook{w}}
	c.Name, c.ResourceVersion = "c", "1"
	ValidatingWebhookConfigurations().Hub().Default(c)
	return c
}

// TestStoredWebhooks checks that what older versions have stored keeps no update
// from being made, and that new configurations cannot have it.
func TestStoredWebhooks(t *testing.T) {
	const expression = "webhooks[0].matchConditions[0].expression"
	condition := func(text string) func(*admissionv1.ValidatingWebhook) {
		return func(w *admissionv1.ValidatingWebhook) {
			w.MatchConditions = []admissionv1.MatchCondition{{Name: "c", Expression: text}}
		}
	}
	selecting := func(value string) func(*admissionv1.ValidatingWebhook) {
		return func(w *admissionv1.ValidatingWebhook) {
			w.ObjectSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "a", Operator: metav1.LabelSelectorOpIn, Values: []string{value}},
			}}
		}
	}
	effects := func(class admissionv1.SideEffectClass) func(*admissionv1.ValidatingWebhook) {
		return func(w *admissionv1.ValidatingWebhook) { w.SideEffects = &class }
	}
	reviewed := func(version string) func(*admissionv1.ValidatingWebhook) {
		return func(w *admissionv1.ValidatingWebhook) { w.AdmissionReviewVersions = []string{version} }
	}
	for _, test := range []struct {
		name        string
		stored, now func(*admissionv1.ValidatingWebhook)
		created     []string // the fields with errors when now is created
		updated     []string // and when it replaces stored
	}{
		{name: "nothing wrong"},
		{"side effects", effects("Some"), effects("Unknown"), []string{"webhooks[0].sideEffects"}, nil},
		{"unknown side effects", effects("Some"), effects("All"), []string{"webhooks[0].sideEffects"}, []string{"webhooks[0].sideEffects"}},
		{"no side effects before", nil, effects("Some"), []string{"webhooks[0].sideEffects"}, []string{"webhooks[0].sideEffects"}},
		{"versions", reviewed("v2"), reviewed("v3"), []string{"webhooks[0].admissionReviewVersions"}, nil},
		{"no versions before", reviewed("v1"), reviewed("v3"), []string{"webhooks[0].admissionReviewVersions"}, []string{"webhooks[0].admissionReviewVersions"}},
		{"selectors", selecting("a b"), selecting("b c"), []string{"webhooks[0].objectSelector.matchExpressions[0].values[0]"}, nil},
		{
			"a selector that was right", selecting("a"), selecting("b c"),
			[]string{"webhooks[0].objectSelector.matchExpressions[0].values[0]"}, []string{"webhooks[0].objectSelector.matchExpressions[0].values[0]"},
		},
		{"the same condition", condition("1"), condition("1"), []string{expression}, nil},
		{"another condition", condition("1"), condition("2"), []string{expression}, []string{expression}},
	} {
		r, request := ValidatingWebhookConfigurations(), &resource.RequestContext{}
		if got := fieldsOf(resourcetest.BeforeCreate(r, request, webhookWith(test.now))); !slices.Equal(got, test.created) {
			t.Errorf("%s: errors of a new one at %q, want %q", test.name, got, test.created)
		}
		if got := fieldsOf(resourcetest.BeforeUpdate(r, request, webhookWith(test.now), webhookWith(test.stored))); !slices.Equal(got, test.updated) {
			t.Errorf("%s: errors of an update at %q, want %q", test.name, got, test.updated)
		}
	}
}

// TestNamesOfStoredWebhooks checks that names can repeat if they did.
func TestNamesOfStoredWebhooks(t *testing.T) {
	once, twice := webhookWith(nil), webhookWith(nil)
	twice.Webhooks = append(twice.Webhooks, twice.Webhooks[0])
	for _, test := range []struct {
		name   string
		stored *admissionv1.ValidatingWebhookConfiguration
		want   []string
	}{
		{"once before", once, []string{"webhooks[1].name"}},
		{"twice before", twice, nil},
	} {
		got := fieldsOf(resourcetest.BeforeUpdate(ValidatingWebhookConfigurations(), &resource.RequestContext{}, twice.DeepCopy(), test.stored))
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: errors at %q, want %q", test.name, got, test.want)
		}
	}
}

// TestWarningsOfWebhooks checks the warnings of rules about excluded resources
// and of reserved names.
func TestWarningsOfWebhooks(t *testing.T) {
	const reviews = "webhooks[0].rules[0]: tokenreviews.authentication.k8s.io is excluded from admission webhooks; this rule will have no effect"
	for _, test := range []struct {
		name              string
		groups, resources []string
		want              []string
	}{
		{"c", []string{"apps"}, []string{"deployments"}, nil},
		{"c", []string{"apps", "authentication.k8s.io"}, []string{"tokenreviews", "tokenreviews"}, []string{reviews}},
		{"c", []string{"authentication.k8s.io"}, []string{"tokenreviews/status"}, nil},
		{"c", []string{"*"}, []string{"tokenreviews"}, nil},
		{"c", []string{"authentication.k8s.io"}, []string{"*"}, nil},
		{"c.static.k8s.io", []string{"apps"}, []string{"deployments"}, []string{
			`metadata.name: names ending with ".static.k8s.io" are reserved for static manifest-based configurations and cannot be managed via the API`,
		}},
	} {
		c := webhookWith(func(w *admissionv1.ValidatingWebhook) {
			w.Rules = []admissionv1.RuleWithOperations{{Rule: admissionv1.Rule{APIGroups: test.groups, Resources: test.resources}}}
		})
		c.Name = test.name
		if got := ValidatingWebhookConfigurations().Strategy.Warnings(&resource.RequestContext{}, c, c); !slices.Equal(got, test.want) {
			t.Errorf("%s, %q of %q: warnings %q, want %q", test.name, test.resources, test.groups, got, test.want)
		}
	}
}

// TestWarningsWithoutExclusions checks that rules have no warnings if webhooks see
// all resources.
func TestWarningsWithoutExclusions(t *testing.T) {
	features, err := feature.Parse([]string{"ExcludeAdmissionWebhookVirtualResources=false"})
	if err != nil {
		t.Fatal(err)
	}
	c := webhookWith(func(w *admissionv1.ValidatingWebhook) {
		w.Rules = []admissionv1.RuleWithOperations{{Rule: admissionv1.Rule{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}}}}
	})
	if got := ValidatingWebhookConfigurations().Strategy.Warnings(&resource.RequestContext{Features: features}, c, nil); len(got) > 0 {
		t.Errorf("warnings %q", got)
	}
}

func fieldsOf(errs field.ErrorList) (fields []string) {
	for _, err := range errs {
		fields = append(fields, err.Field)
	}
	return fields
}
