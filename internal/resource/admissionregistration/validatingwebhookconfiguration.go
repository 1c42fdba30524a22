package admissionregistration

import (
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/resource"
)

// ValidatingWebhookConfigurations is the resource validatingwebhookconfigurations.
func ValidatingWebhookConfigurations() *resource.Resource {
	return resource.Define(resource.Definition[admissionv1.ValidatingWebhookConfiguration, *admissionv1.ValidatingWebhookConfiguration]{
		GroupVersion: admissionv1.SchemeGroupVersion,
		Names: resource.Names{
			Kind:       "ValidatingWebhookConfiguration",
			Plural:     "validatingwebhookconfigurations",
			Categories: []string{category},
		},
		Cluster:                 true,
		Default:                 defaultValidatingWebhooks,
		Spec:                    func(c *admissionv1.ValidatingWebhookConfiguration) any { return c.Webhooks },
		UnqualifiedFinalizers:   true,
		MetadataUpdateUnchecked: true,
		UpdateValidatesAlone:    true,
		Strategy:                webhookStrategy(validatingHooks),
		Table: resource.Table[*admissionv1.ValidatingWebhookConfiguration]{
			Columns: []metav1.TableColumnDefinition{
				resource.NameColumn(),
				resource.Column("Webhooks", "integer", "Webhooks indicates total number of webhooks defined in this configuration"),
				resource.AgeColumn(),
			},
			Row: func(c *admissionv1.ValidatingWebhookConfiguration, now time.Time) []any {
				return []any{c.Name, int64(len(c.Webhooks)), resource.Age(c.CreationTimestamp, now)}
			},
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
	if c == nil {
		return nil
	}
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
