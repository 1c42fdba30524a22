package admissionregistration

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource/validators"
)

func validateRuleWithOperations(p *field.Path, r *admissionv1.RuleWithOperations) field.ErrorList {
	const every = admissionv1.OperationAll
	operations := p.Child("operations")
	var errs field.ErrorList
	if len(r.Operations) == 0 {
		errs = append(errs, field.Required(operations, ""))
	}
	if len(r.Operations) > 1 && slices.Contains(r.Operations, every) {
		errs = append(errs, field.Invalid(operations, r.Operations, "if '*' is present, must not specify other operations"))
	}
	for i, operation := range r.Operations {
		errs = append(errs, validators.OneOf(operations.Index(i), operation, every, admissionv1.Connect, admissionv1.Create, admissionv1.Delete, admissionv1.Update)...)
	}
	return append(errs, validateRule(p, &r.Rule)...)
}

func validateRule(p *field.Path, r *admissionv1.Rule) field.ErrorList {
	var errs field.ErrorList
	alone := func(name string, values []string, others string) {
		if len(values) == 0 {
			errs = append(errs, field.Required(p.Child(name), ""))
		}
		if len(values) > 1 && slices.Contains(values, "*") {
			errs = append(errs, field.Invalid(p.Child(name), values, "if '*' is present, must not specify other "+others))
		}
	}
	alone("apiGroups", r.APIGroups, "API groups")
	alone("apiVersions", r.APIVersions, "API versions")
	for i, version := range r.APIVersions {
		if version == "" {
			errs = append(errs, field.Required(p.Child("apiVersions").Index(i), ""))
		}
	}
	errs = append(errs, validateResources(p.Child("resources"), r.Resources)...)
	if r.Scope != nil {
		errs = append(errs, validators.OneOf(p.Child("scope"), *r.Scope, admissionv1.AllScopes, admissionv1.ClusterScope, admissionv1.NamespacedScope)...)
	}
	return errs
}

// validateResources refuses items that repeat an earlier item or one that a
// wildcard covers.
func validateResources(p *field.Path, resources []string) field.ErrorList {
	if len(resources) == 0 {
		return field.ErrorList{field.Required(p, "")}
	}
	var errs field.ErrorList
	wildcardSubresource, wildcardResource := sets.New[string](), sets.New[string]()
	plain := "" // the last resource without subresource
	for i, item := range resources {
		at := p.Index(i)
		if item == "" {
			errs = append(errs, field.Required(at, ""))
			continue
		}
		resource, sub, hasSub := strings.Cut(item, "/")
		if !hasSub {
			plain = item
			continue
		}
		if wildcardSubresource.Has(resource) {
			errs = append(errs, field.Invalid(at, item, fmt.Sprintf("if '%s/*' is present, must not specify %s", resource, item)))
		}
		if wildcardResource.Has(sub) {
			errs = append(errs, field.Invalid(at, item, fmt.Sprintf("if '*/%s' is present, must not specify %s", sub, item)))
		}
		if sub == "*" {
			wildcardSubresource.Insert(resource)
		}
		if resource == "*" {
			wildcardResource.Insert(sub)
		}
	}
	if len(resources) > 1 && slices.Contains(resources, "*/*") {
		errs = append(errs, field.Invalid(p, resources, "if '*/*' is present, must not specify other resources"))
	}
	if slices.Contains(resources, "*") && plain != "" && plain != "*" {
		errs = append(errs, field.Invalid(p, resources, "if '*' is present, must not specify other resources without subresources"))
	}
	return errs
}

func validateNamedRules(p *field.Path, rules []admissionv1.NamedRuleWithOperations) field.ErrorList {
	var errs field.ErrorList
	for i := range rules {
		at, names := p.Index(i), sets.New[string]()
		for k, name := range rules[i].ResourceNames {
			for _, problem := range content.IsPathSegmentName(name) {
				errs = append(errs, field.Invalid(at.Child("resourceNames").Index(k), name, problem))
			}
			if names.Has(name) {
				errs = append(errs, field.Duplicate(at.Child("resourceNames").Index(k), name))
			}
			names.Insert(name)
		}
		errs = append(errs, validateRuleWithOperations(at, &rules[i].RuleWithOperations)...)
	}
	return errs
}

func validateMatchResources(p *field.Path, m *admissionv1.MatchResources) field.ErrorList {
	var errs field.ErrorList
	if m.MatchPolicy == nil {
		errs = append(errs, field.Required(p.Child("matchPolicy"), ""))
	} else {
		errs = append(errs, validators.OneOf(p.Child("matchPolicy"), *m.MatchPolicy, admissionv1.Equivalent, admissionv1.Exact)...)
	}
	if m.NamespaceSelector == nil {
		errs = append(errs, field.Required(p.Child("namespaceSelector"), ""))
	}
	errs = append(errs, validators.Selector(p.Child("namespaceSelector"), m.NamespaceSelector)...)
	if m.ObjectSelector == nil {
		errs = append(errs, field.Required(p.Child("objectSelector"), ""))
	}
	errs = append(errs, validators.Selector(p.Child("objectSelector"), m.ObjectSelector)...)
	errs = append(errs, validateNamedRules(p.Child("resourceRules"), m.ResourceRules)...)
	return append(errs, validateNamedRules(p.Child("excludeResourceRules"), m.ExcludeResourceRules)...)
}

func validateFailurePolicy(p *field.Path, policy *admissionv1.FailurePolicyType) field.ErrorList {
	if policy == nil {
		return field.ErrorList{field.Required(p, "")}
	}
	return validators.OneOf(p, *policy, admissionv1.Fail, admissionv1.Ignore)
}
