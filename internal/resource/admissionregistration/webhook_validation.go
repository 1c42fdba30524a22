package admissionregistration

import (
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
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

// hookStrategy returns the strategy of a kind whose webhooks hooks returns.
func hookStrategy[T resource.Object](hooks func(T) []hook) resource.Strategy[T] {
	s := strategy(func(c *compilers, o, old T) field.ErrorList { return validateHooks(c, hooks(o), hooks(old)) })
	ofName := s.Warnings
	s.Warnings = func(r *resource.RequestContext, o, old T) []string {
		warnings := ofName(r, o, old)
		if r.Features.Enabled(feature.ExcludeAdmissionWebhookVirtualResources) {
			warnings = append(warnings, excludedWarnings(hooks(o))...)
		}
		return warnings
	}
	return s
}

// leniency is what an update may leave in webhooks, or add to them, because
// older versions have stored it.
type leniency struct {
	sideEffects bool // any
	versions    bool // of reviews, that no server sends
	names       bool // one for several webhooks
	conditions  bool // whatever was there
	selectors   metav1validation.LabelSelectorValidationOptions
	expressions sets.Set[string]
}

func lenientAbout(hooks, old []hook) *leniency {
	l := &leniency{
		conditions: slices.EqualFunc(hooks, old, func(h, o hook) bool {
			return slices.Equal(h.conditions, o.conditions)
		}),
		expressions: sets.New[string](),
	}
	names := sets.New[string]()
	for i := range old {
		h := &old[i]
		l.sideEffects = l.sideEffects || h.sideEffects == nil || !slices.Contains(noSideEffects(), *h.sideEffects)
		l.versions = l.versions || len(h.versions) > 0 && !sets.New(h.versions...).HasAny(reviewVersions()...)
		l.names = l.names || names.Has(h.name)
		names.Insert(h.name)
		for _, selector := range []*metav1.LabelSelector{h.namespaces, h.objects} {
			if len(validators.Selector(nil, selector)) > 0 {
				l.selectors.AllowInvalidLabelValueInSelector = true
			}
		}
		for _, condition := range h.conditions {
			l.expressions.Insert(condition.Expression)
		}
	}
	return l
}

func noSideEffects() []admissionv1.SideEffectClass {
	return []admissionv1.SideEffectClass{admissionv1.SideEffectClassNone, admissionv1.SideEffectClassNoneOnDryRun}
}

// reviewVersions returns the versions of reviews that API servers send.
func reviewVersions() []string { return []string{"v1", "v1beta1"} }

func validateHooks(c *compilers, hooks, old []hook) field.ErrorList {
	var errs field.ErrorList
	names, l := sets.New[string](), lenientAbout(hooks, old)
	for i := range hooks {
		p := field.NewPath("webhooks").Index(i)
		errs = append(errs, validateHook(p, &hooks[i], c, l)...)
		errs = append(errs, validateReviewVersions(p.Child("admissionReviewVersions"), hooks[i].versions, l)...)
		if hooks[i].name != "" && names.Has(hooks[i].name) && !l.names {
			errs = append(errs, field.Duplicate(p.Child("name"), hooks[i].name))
		}
		names.Insert(hooks[i].name)
	}
	return errs
}

func validateHook(p *field.Path, h *hook, c *compilers, l *leniency) field.ErrorList {
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
	errs = append(errs, validateSideEffects(p.Child("sideEffects"), h.sideEffects, l)...)
	if t := h.timeout; t != nil && (*t < minTimeout || *t > maxTimeout) {
		errs = append(errs, field.Invalid(p.Child("timeoutSeconds"), *t, "the timeout value must be between 1 and 30 seconds"))
	}
	errs = append(errs, metav1validation.ValidateLabelSelector(h.namespaces, l.selectors, p.Child("namespaceSelector"))...)
	errs = append(errs, metav1validation.ValidateLabelSelector(h.objects, l.selectors, p.Child("objectSelector"))...)
	if h.mayReinvoke && h.reinvocation != nil {
		errs = append(errs, validators.OneOf(p.Child("reinvocationPolicy"), *h.reinvocation, admissionv1.IfNeededReinvocationPolicy, admissionv1.NeverReinvocationPolicy)...)
	}
	errs = append(errs, validateClient(p.Child("clientConfig"), h.client)...)
	if len(h.conditions) > 0 && !l.conditions {
		options := cel.OptionalVariableDeclarations{HasAuthorizer: true}
		errs = append(errs, validateMatchConditions(p.Child("matchConditions"), h.conditions, c.plain(), options, l.expressions)...)
	}
	return errs
}

func validateSideEffects(p *field.Path, effects *admissionv1.SideEffectClass, l *leniency) field.ErrorList {
	allowed := noSideEffects()
	if l.sideEffects {
		allowed = append(allowed, admissionv1.SideEffectClassSome, admissionv1.SideEffectClassUnknown)
	}
	if effects != nil {
		return validators.OneOf(p, *effects, allowed...)
	}
	var names []string
	for _, class := range allowed {
		names = append(names, string(class))
	}
	return field.ErrorList{field.Required(p, "must specify one of "+strings.Join(names, ", "))}
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

func validateReviewVersions(p *field.Path, versions []string, l *leniency) field.ErrorList {
	known := reviewVersions()
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
	if !seen.HasAny(known...) && !l.versions {
		errs = append(errs, field.Invalid(p, versions, "must include at least one of "+strings.Join(known, ", ")))
	}
	return errs
}
