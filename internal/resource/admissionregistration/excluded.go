package admissionregistration

import (
	"cmp"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
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

// webhookStrategy returns the strategy of a kind of webhooks. It warns of rules that
// name excluded resources.
func webhookStrategy[T resource.Object](hooks func(T) []hook) resource.Strategy[T] {
	s := strategy(func(c *compilers, o, old T) field.ErrorList { return validateHooks(c, hooks(o), hooks(old)) })
	s.Warnings = func(r *resource.RequestContext, o, _ T) []string {
		if !r.Features.Enabled(feature.ExcludeAdmissionWebhookVirtualResources) {
			return nil
		}
		var warnings []string
		for i, h := range hooks(o) {
			for j := range h.rules {
				for _, gr := range excludedBy(&h.rules[j].Rule) {
					warnings = append(warnings, fmt.Sprintf("webhooks[%d].rules[%d]: %s is excluded from admission webhooks; this rule will have no effect", i, j, gr))
				}
			}
		}
		return warnings
	}
	return s
}

// excludedBy returns the excluded resources that a rule names, in its order. One with
// a wildcard may mean others.
func excludedBy(rule *admissionv1.Rule) []schema.GroupResource {
	const wildcard = "*"
	if slices.Contains(rule.APIGroups, wildcard) || slices.Contains(rule.Resources, wildcard) {
		return nil
	}
	named := slices.DeleteFunc(Excluded(), func(gr schema.GroupResource) bool {
		return !slices.Contains(rule.APIGroups, gr.Group) || !slices.Contains(rule.Resources, gr.Resource)
	})
	slices.SortFunc(named, func(a, b schema.GroupResource) int {
		return cmp.Or(
			cmp.Compare(slices.Index(rule.APIGroups, a.Group), slices.Index(rule.APIGroups, b.Group)),
			cmp.Compare(slices.Index(rule.Resources, a.Resource), slices.Index(rule.Resources, b.Resource)),
		)
	})
	return named
}
