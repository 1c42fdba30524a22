package admissionregistration

import (
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/defaults"
)

// MutatingWebhookConfigurations is the resource mutatingwebhookconfigurations.
func MutatingWebhookConfigurations() *resource.Resource {
	return resource.Define(resource.Definition[admissionv1.MutatingWebhookConfiguration, *admissionv1.MutatingWebhookConfiguration]{
		GroupVersion: admissionv1.SchemeGroupVersion,
		Names: resource.Names{
			Kind:       "MutatingWebhookConfiguration",
			Plural:     "mutatingwebhookconfigurations",
			Categories: []string{category},
		},
		Cluster:                 true,
		Default:                 defaultMutatingWebhooks,
		Spec:                    func(c *admissionv1.MutatingWebhookConfiguration) any { return c.Webhooks },
		UnqualifiedFinalizers:   true,
		MetadataUpdateUnchecked: true,
		UpdateValidatesAlone:    true,
		Strategy:                webhookStrategy(mutatingHooks),
		Table: resource.Table[*admissionv1.MutatingWebhookConfiguration]{
			Columns: []metav1.TableColumnDefinition{
				resource.NameColumn(),
				resource.Column("Webhooks", "integer", "Webhooks indicates total number of webhooks defined in this configuration"),
				resource.AgeColumn(),
			},
			Row: func(c *admissionv1.MutatingWebhookConfiguration, now time.Time) []any {
				return []any{c.Name, int64(len(c.Webhooks)), resource.Age(c.CreationTimestamp, now)}
			},
		},
	})
}

func defaultMutatingWebhooks(c *admissionv1.MutatingWebhookConfiguration) {
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		defaultWebhook(&w.FailurePolicy, &w.MatchPolicy, &w.NamespaceSelector, &w.ObjectSelector, &w.TimeoutSeconds,
			&w.ClientConfig, w.Rules)
		defaults.Nil(&w.ReinvocationPolicy, admissionv1.NeverReinvocationPolicy)
	}
}

func mutatingHooks(c *admissionv1.MutatingWebhookConfiguration) []hook {
	if c == nil {
		return nil
	}
	var hooks []hook
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		hooks = append(hooks, hook{
			name: w.Name, versions: w.AdmissionReviewVersions, rules: w.Rules, failure: w.FailurePolicy, match: w.MatchPolicy,
			sideEffects: w.SideEffects, timeout: w.TimeoutSeconds, namespaces: w.NamespaceSelector, objects: w.ObjectSelector,
			client: &w.ClientConfig, conditions: w.MatchConditions, reinvocation: w.ReinvocationPolicy, mayReinvoke: true,
		})
	}
	return hooks
}
