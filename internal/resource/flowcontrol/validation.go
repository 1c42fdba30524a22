package flowcontrol

import (
	"fmt"
	"slices"
	"strings"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

const maxMatchingPrecedence = 10000

func validateFlowSchema(_ *resource.RequestContext, s *flowcontrolv1.FlowSchema) field.ErrorList {
	p, spec := field.NewPath("spec"), &s.Spec
	var errs field.ErrorList
	for _, fixed := range bootstrap.MandatoryFlowSchemas {
		if fixed.Name == s.Name && !equality.Semantic.DeepEqual(*spec, fixed.Spec) {
			errs = append(errs, field.Invalid(p, validators.Shown(*spec), fmt.Sprintf("spec of '%s' must equal the fixed value", s.Name)))
		}
	}
	precedence := p.Child("matchingPrecedence")
	if spec.MatchingPrecedence <= 0 {
		errs = append(errs, field.Invalid(precedence, spec.MatchingPrecedence, "must be a positive value"))
	}
	if spec.MatchingPrecedence > maxMatchingPrecedence {
		errs = append(errs, field.Invalid(precedence, spec.MatchingPrecedence, fmt.Sprintf("must not be greater than %v", maxMatchingPrecedence)))
	}
	if spec.MatchingPrecedence == 1 && s.Name != flowcontrolv1.FlowSchemaNameExempt {
		errs = append(errs, field.Invalid(precedence, spec.MatchingPrecedence, "only the schema named 'exempt' may have matchingPrecedence 1"))
	}
	if m := spec.DistinguisherMethod; m != nil && m.Type != flowcontrolv1.FlowDistinguisherMethodByNamespaceType && m.Type != flowcontrolv1.FlowDistinguisherMethodByUserType {
		errs = append(errs, field.NotSupported(p.Child("distinguisherMethod", "type"), validators.Shown(*m), []flowcontrolv1.FlowDistinguisherMethodType{
			flowcontrolv1.FlowDistinguisherMethodByNamespaceType, flowcontrolv1.FlowDistinguisherMethodByUserType,
		}))
	}
	if level := p.Child("priorityLevelConfiguration", "name"); spec.PriorityLevelConfiguration.Name == "" {
		errs = append(errs, field.Required(level, "must reference a priority level"))
	} else {
		errs = append(errs, validators.Subdomain(level, spec.PriorityLevelConfiguration.Name)...)
	}
	for i := range spec.Rules {
		errs = append(errs, validatePolicyRules(p.Child("rules").Index(i), &spec.Rules[i])...)
	}
	return errs
}

func validatePolicyRules(p *field.Path, r *flowcontrolv1.PolicyRulesWithSubjects) field.ErrorList {
	var errs field.ErrorList
	if len(r.Subjects) == 0 {
		errs = append(errs, field.Required(p.Child("subjects"), "subjects must contain at least one value"))
	}
	for i := range r.Subjects {
		errs = append(errs, validateSubject(p.Child("subjects").Index(i), &r.Subjects[i])...)
	}
	if len(r.ResourceRules) == 0 && len(r.NonResourceRules) == 0 {
		errs = append(errs, field.Required(p, "at least one of resourceRules and nonResourceRules has to be non-empty"))
	}
	for i := range r.ResourceRules {
		errs = append(errs, validateResourceRule(p.Child("resourceRules").Index(i), &r.ResourceRules[i])...)
	}
	for i := range r.NonResourceRules {
		errs = append(errs, validateNonResourceRule(p.Child("nonResourceRules").Index(i), &r.NonResourceRules[i])...)
	}
	return errs
}

func validateSubject(p *field.Path, s *flowcontrolv1.Subject) field.ErrorList {
	const account, user, group = flowcontrolv1.SubjectKindServiceAccount, flowcontrolv1.SubjectKindUser, flowcontrolv1.SubjectKindGroup
	if s.Kind != account && s.Kind != user && s.Kind != group {
		return field.ErrorList{field.NotSupported(p.Child("kind"), s.Kind, []flowcontrolv1.SubjectKind{group, account, user})}
	}
	var errs field.ErrorList
	for _, part := range []struct {
		name string
		kind flowcontrolv1.SubjectKind
		set  bool
	}{{"serviceAccount", account, s.ServiceAccount != nil}, {"user", user, s.User != nil}, {"group", group, s.Group != nil}} {
		switch {
		case part.kind == s.Kind && !part.set:
			errs = append(errs, field.Required(p.Child(part.name), fmt.Sprintf("%s is required when subject kind is '%s'", part.name, part.kind)))
		case part.kind != s.Kind && part.set:
			errs = append(errs, field.Forbidden(p.Child(part.name), fmt.Sprintf("%s is forbidden when subject kind is not '%s'", part.name, part.kind)))
		}
	}
	switch {
	case s.Kind == account && s.ServiceAccount != nil:
		errs = append(errs, validateAccount(p.Child("serviceAccount"), s.ServiceAccount)...)
	case s.Kind == user && s.User != nil:
		errs = append(errs, validators.Required(p.Child("user", "name"), s.User.Name)...)
	case s.Kind == group && s.Group != nil:
		errs = append(errs, validators.Required(p.Child("group", "name"), s.Group.Name)...)
	}
	return errs
}

func validateAccount(p *field.Path, s *flowcontrolv1.ServiceAccountSubject) field.ErrorList {
	errs := validators.Required(p.Child("name"), s.Name)
	if s.Name != "" && s.Name != flowcontrolv1.NameAll {
		errs = append(errs, validators.Subdomain(p.Child("name"), s.Name)...)
	}
	if s.Namespace == "" {
		return append(errs, field.Required(p.Child("namespace"), "must specify namespace for service account"))
	}
	return append(errs, validators.Label(p.Child("namespace"), s.Namespace)...)
}

// validateList requires at least one item, and "*" only alone. missing and
// items are the errors for violations.
func validateList(p *field.Path, values []string, missing, items string) field.ErrorList {
	if len(values) == 0 {
		return field.ErrorList{field.Required(p, missing)}
	}
	if len(values) > 1 && slices.Contains(values, "*") {
		return field.ErrorList{field.Invalid(p, values, "if '*' is present, must not specify other "+items)}
	}
	return nil
}

func validateVerbs(p *field.Path, verbs []string) field.ErrorList {
	supported := []string{"create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"}
	errs := validateList(p, verbs, "verbs must contain at least one value", "verbs")
	if len(errs) == 0 && !slices.Contains(verbs, "*") && !sets.New(supported...).HasAll(verbs...) {
		errs = append(errs, field.NotSupported(p, verbs, supported))
	}
	return errs
}

func validateResourceRule(p *field.Path, r *flowcontrolv1.ResourcePolicyRule) field.ErrorList {
	errs := validateVerbs(p.Child("verbs"), r.Verbs)
	errs = append(errs, validateList(p.Child("apiGroups"), r.APIGroups, "resource rules must supply at least one api group", "api groups")...)
	errs = append(errs, validateList(p.Child("resources"), r.Resources, "resource rules must supply at least one resource", "resources")...)
	namespaces := p.Child("namespaces")
	if len(r.Namespaces) == 0 {
		if !r.ClusterScope {
			errs = append(errs, field.Required(namespaces, "resource rules that are not cluster scoped must supply at least one namespace"))
		}
		return errs
	}
	if slices.Contains(r.Namespaces, flowcontrolv1.NamespaceEvery) {
		return append(errs, validateList(namespaces, r.Namespaces, "", "namespaces")...)
	}
	for i, namespace := range r.Namespaces {
		for _, problem := range utilvalidation.IsDNS1123Label(namespace) {
			errs = append(errs, field.Invalid(namespaces.Index(i), namespace, "each member of this list must be '*' or a DNS-1123 label; "+problem))
		}
	}
	return errs
}

func validateNonResourceRule(p *field.Path, r *flowcontrolv1.NonResourcePolicyRule) field.ErrorList {
	errs := validateVerbs(p.Child("verbs"), r.Verbs)
	urls := p.Child("nonResourceURLs")
	errs = append(errs, validateList(urls, r.NonResourceURLs, "nonResourceURLs must contain at least one value", "non-resource URLs")...)
	if slices.Contains(r.NonResourceURLs, "*") {
		return errs
	}
	for i, url := range r.NonResourceURLs {
		if problem := urlProblem(url); problem != "" {
			errs = append(errs, field.Invalid(urls.Index(i), url, problem))
		}
	}
	return errs
}

// urlProblem returns what is wrong with a path that can end in "/*", or "".
func urlProblem(url string) string {
	switch {
	case url == "":
		return "must not be empty"
	case url == "/":
		return ""
	case !strings.HasPrefix(url, "/"):
		return "must start with slash"
	case strings.Contains(url, " "):
		return "must not contain white-space"
	case strings.Contains(url, "//"):
		return "must not contain double slash"
	case strings.Contains(strings.TrimSuffix(url, "/*"), "*"):
		return "wildcard can only do suffix matching"
	default:
		return ""
	}
}

// validateConditionTypes requires conditions of unique types.
func validateConditionTypes[C any](conditions []C, typeOf func(C) string) field.ErrorList {
	var errs field.ErrorList
	p, seen := field.NewPath("status", "conditions"), sets.New[string]()
	for i, c := range conditions {
		at, name := p.Index(i).Child("type"), typeOf(c)
		if seen.Has(name) {
			errs = append(errs, field.Duplicate(at, name))
		}
		seen.Insert(name)
		if name == "" {
			errs = append(errs, field.Required(at, "must not be empty"))
		}
	}
	return errs
}
