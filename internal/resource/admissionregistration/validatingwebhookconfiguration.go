package admissionregistration

import (
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
)

// ValidatingWebhookConfigurations is the resource validatingwebhookconfigurations.
func ValidatingWebhookConfigurations() *resource.Resource {
	compilers := newCompilers()
	return resource.Define(resource.Definition[admissionv1.ValidatingWebhookConfiguration, *admissionv1.ValidatingWebhookConfiguration]{
		GroupVersion:              admissionv1.SchemeGroupVersion,
		Kind:                      "ValidatingWebhookConfiguration",
		Plural:                    "validatingwebhookconfigurations",
		UnqualifiedFinalizers:     true,
		ForbidUnconditionalUpdate: true,
		Categories:                []string{category},
		Cluster:                   true,
		Default:                   defaultValidatingWebhooks,
		Spec:                      func(c *admissionv1.ValidatingWebhookConfiguration) any { return c.Webhooks },
		Validate: func(_ *resource.Request, c *admissionv1.ValidatingWebhookConfiguration) field.ErrorList {
			return validateHooks(validatingHooks(c), nil, compilers)
		},
		UpdateValidatesAlone:    true,
		MetadataUpdateUnchecked: true,
		ValidateUpdate: func(_ *resource.Request, c, old *admissionv1.ValidatingWebhookConfiguration) field.ErrorList {
			return append(resource.ValidateMetadata(c, false, validation.NameIsDNSSubdomain), validateHooks(validatingHooks(c), validatingHooks(old), compilers)...)
		},
		Columns: []metav1.TableColumnDefinition{
			resource.NameColumn(),
			resource.Column("Webhooks", "integer", "Webhooks indicates total number of webhooks defined in this configuration"),
			resource.AgeColumn(),
		},
		Row: func(c *admissionv1.ValidatingWebhookConfiguration, now time.Time) []any {
			return []any{c.Name, int64(len(c.Webhooks)), resource.Age(c.CreationTimestamp, now)}
		},
	})
}

func defaultValidatingWebhooks(c *admissionv1.ValidatingWebhookConfiguration) {
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		defaultWebhook(&w.FailurePolicy, &w.MatchPolicy, &w.NamespaceSelector, &w.ObjectSelector, &w.TimeoutSeconds,
			&w.ClientConfig, w.Rules)

	}
}

func validatingHooks(c *admissionv1.ValidatingWebhookConfiguration) []hook {
	var hooks []hook
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		hooks = append(hooks, hook{
			name: w.Name, versions: w.AdmissionReviewVersions, rules: w.Rules, failure: w.FailurePolicy, match: w.MatchPolicy,
			sideEffects: w.SideEffects, timeout: w.TimeoutSeconds, namespaces: w.NamespaceSelector, objects: w.ObjectSelector,
			client: &w.ClientConfig, conditions: w.MatchConditions,
		})
	}
	return hooks
}
