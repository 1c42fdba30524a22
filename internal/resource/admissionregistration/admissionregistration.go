// Package admissionregistration defines the resources of the group
// admissionregistration.k8s.io.
package admissionregistration

import "github.com/coracle-io/coracle/internal/resource"

// Resources lists the group's resources.
func Resources() []*resource.Resource {
	return resource.InGroup(resource.Priorities{Group: 16700, Versions: map[string]int32{"v1beta1": 12}},
		MutatingAdmissionPolicies(),
		MutatingAdmissionPolicyBindings(),
		MutatingWebhookConfigurations(),
		ValidatingAdmissionPolicies(),
		ValidatingAdmissionPolicyBindings(),
		ValidatingWebhookConfigurations(),
	)
}

const category = "api-extensions"
