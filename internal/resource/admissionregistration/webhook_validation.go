package admissionregistration

import (
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/resource/validators"
)

// Limits of a webhook's timeout, in seconds.
const (
	minTimeout = 1
	maxTimeout = 30
)

// hook has the fields that mutating and validating webhooks share.
type hook struct {
	name         string
	versions     []string
	rules        []admissionv1.RuleWithOperations
	failure      *admissionv1.FailurePolicyType
	match        *admissionv1.MatchPolicyType
	sideEffects  *admissionv1.SideEffectClass
	timeout      *int32
	namespaces   *metav1.LabelSelector
	objects      *metav1.LabelSelector
	client       *admissionv1.WebhookClientConfig
	conditions   []admissionv1.MatchCondition
	reinvocation *admissionv1.ReinvocationPolicyType
	mayReinvoke  bool
}

func validateHooks(c *compilers, hooks, old []hook) field.ErrorList {
	var errs field.ErrorList
	names, stored := sets.New[string](), sets.New[string]()
	for _, h := range old {
		for _, condition := range h.conditions {
			stored.Insert(condition.Expression)
		}
	}
	for i := range hooks {
		p := field.NewPath("webhooks").Index(i)
		errs = append(errs, validateHook(p, &hooks[i], c, stored)...)
		errs = append(errs, validateReviewVersions(p.Child("admissionReviewVersions"), hooks[i].versions)...)
		if hooks[i].name != "" && names.Has(hooks[i].name) {
			errs = append(errs, field.Duplicate(p.Child("name"), hooks[i].name))
		}
		names.Insert(hooks[i].name)
	}
	return errs
}

func validateHook(p *field.Path, h *hook, c *compilers, stored sets.Set[string]) field.ErrorList {
	errs := utilvalidation.IsFullyQualifiedName(p.Child("name"), h.name)
	for i := range h.rules {
		errs = append(errs, validateRuleWithOperations(p.Child("rules").Index(i), &h.rules[i])...)
	}
	if h.failure != nil {
		errs = append(errs, validateFailurePolicy(p.Child("failurePolicy"), h.failure)...)
	}
	if h.match != nil {
		errs = append(errs, validators.OneOf(p.Child("matchPolicy"), *h.match, admissionv1.Equivalent, admissionv1.Exact)...)
	}
	if h.sideEffects == nil {
		errs = append(errs, field.Required(p.Child("sideEffects"), "must specify one of None, NoneOnDryRun"))
	} else {
		errs = append(errs, validators.OneOf(p.Child("sideEffects"), *h.sideEffects, admissionv1.SideEffectClassNone, admissionv1.SideEffectClassNoneOnDryRun)...)
	}
	if t := h.timeout; t != nil && (*t < minTimeout || *t > maxTimeout) {
		errs = append(errs, field.Invalid(p.Child("timeoutSeconds"), *t, "the timeout value must be between 1 and 30 seconds"))
	}
	errs = append(errs, validators.Selector(p.Child("namespaceSelector"), h.namespaces)...)
	errs = append(errs, validators.Selector(p.Child("objectSelector"), h.objects)...)
	if h.mayReinvoke && h.reinvocation != nil {
		errs = append(errs, validators.OneOf(p.Child("reinvocationPolicy"), *h.reinvocation, admissionv1.IfNeededReinvocationPolicy, admissionv1.NeverReinvocationPolicy)...)
	}
	errs = append(errs, validateClient(p.Child("clientConfig"), h.client)...)
	if len(h.conditions) > 0 {
		options := cel.OptionalVariableDeclarations{HasAuthorizer: true}
		errs = append(errs, validateMatchConditions(p.Child("matchConditions"), h.conditions, c.plain(), options, stored)...)
	}
	return errs
}

func validateClient(p *field.Path, client *admissionv1.WebhookClientConfig) field.ErrorList {
	switch s := client.Service; {
	case (client.URL == nil) == (s == nil):
		return field.ErrorList{field.Required(p, "exactly one of url or service is required")}
	case client.URL != nil:
		return webhook.ValidateWebhookURL(p.Child("url"), *client.URL, true)
	default:
		// Upstream swaps the name and the namespace here, which shows in its
		// errors.
		return webhook.ValidateWebhookService(p.Child("service"), s.Name, s.Namespace, s.Path, ptr.Deref(s.Port, 0))
	}
}

func validateReviewVersions(p *field.Path, versions []string) field.ErrorList {
	known := []string{"v1", "v1beta1"}
	if len(versions) == 0 {
		return field.ErrorList{field.Required(p, "must specify one of "+strings.Join(known, ", "))}
	}
	var errs field.ErrorList
	seen := sets.New[string]()
	for i, version := range versions {
		if seen.Has(version) {
			errs = append(errs, field.Invalid(p.Index(i), version, "duplicate version"))
			continue
		}
		seen.Insert(version)
		errs = append(errs, validators.Problems(p.Index(i), version, utilvalidation.IsDNS1035Label(version))...)
	}
	if !seen.HasAny(known...) {
		errs = append(errs, field.Invalid(p, versions, "must include at least one of "+strings.Join(known, ", ")))
	}
	return errs
}
