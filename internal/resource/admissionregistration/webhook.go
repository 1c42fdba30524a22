package admissionregistration

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/resource/defaults"
)

func defaultWebhook(
	failure **admissionv1.FailurePolicyType, match **admissionv1.MatchPolicyType,
	namespaces, objects **metav1.LabelSelector, timeout **int32,
	client *admissionv1.WebhookClientConfig, rules []admissionv1.RuleWithOperations,
) {
	defaults.Nil(failure, admissionv1.Fail)
	defaults.Nil(match, admissionv1.Equivalent)
	defaults.Nil(namespaces, metav1.LabelSelector{})
	defaults.Nil(objects, metav1.LabelSelector{})
	defaults.Nil(timeout, 10)
	if client.Service != nil {
		defaults.Nil(&client.Service.Port, 443)
	}
	for i := range rules {
		defaults.Nil(&rules[i].Scope, admissionv1.AllScopes)
	}
}
