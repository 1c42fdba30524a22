package admissionregistration

import (
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Excluded returns the resources that webhooks and policies do not see, as
// upstream's exclusions do: one that refuses them would keep its own server from
// authenticating and authorizing.
func Excluded() []schema.GroupResource {
	return []schema.GroupResource{
		{Group: "authentication.k8s.io", Resource: "selfsubjectreviews"},
		{Group: "authentication.k8s.io", Resource: "tokenreviews"},
		{Group: "authorization.k8s.io", Resource: "localsubjectaccessreviews"},
		{Group: "authorization.k8s.io", Resource: "selfsubjectaccessreviews"},
		{Group: "authorization.k8s.io", Resource: "selfsubjectrulesreviews"},
		{Group: "authorization.k8s.io", Resource: "subjectaccessreviews"},
	}
}

// excludedWarnings warns of rules of webhooks that name excluded resources.
func excludedWarnings(hooks []hook) []string {
	var warnings []string
	for i := range hooks {
		for k := range hooks[i].rules {
			at := field.NewPath("webhooks").Index(i).Child("rules").Index(k)
			for _, r := range excludedOf(&hooks[i].rules[k].Rule) {
				warnings = append(warnings, fmt.Sprintf("%s: %s is excluded from admission webhooks; this rule will have no effect", at, r))
			}
		}
	}
	return warnings
}

// excludedOf returns the excluded resources that a rule names. One with a
// wildcard may be about other resources.
func excludedOf(r *admissionv1.Rule) []schema.GroupResource {
	if slices.Contains(r.APIGroups, "*") || slices.Contains(r.Resources, "*") {
		return nil
	}
	excluded := Excluded()
	var named []schema.GroupResource
	for _, group := range r.APIGroups {
		for _, plural := range r.Resources {
			one := schema.GroupResource{Group: group, Resource: plural}
			if slices.Contains(excluded, one) && !slices.Contains(named, one) {
				named = append(named, one)
			}
		}
	}
	return named
}
