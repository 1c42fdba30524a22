package core

import (
	"fmt"
	"sort"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core/resourcelist"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// ResourceQuotas is the resource resourcequotas.
func ResourceQuotas() *resource.Resource {
	return resource.Define(resource.Definition[corev1.ResourceQuota, *corev1.ResourceQuota]{
		GroupVersion: corev1.SchemeGroupVersion,
		Names: resource.Names{
			Kind:       "ResourceQuota",
			Plural:     "resourcequotas",
			ShortNames: []string{"quota"},
		},
		Default: func(q *corev1.ResourceQuota) {
			resourcelist.RoundUp(q.Spec.Hard)
			resourcelist.RoundUp(q.Status.Hard)
			resourcelist.RoundUp(q.Status.Used)
		},
		Status: resource.Status[*corev1.ResourceQuota]{
			Copy:     func(q, from *corev1.ResourceQuota) { q.Status = from.Status },
			Validate: validateResourceQuotaStatus,
		},
		UpdateValidatesAlone: true,
		Strategy: resource.Strategy[*corev1.ResourceQuota]{
			Validate:       validateResourceQuota,
			ValidateUpdate: validateResourceQuotaUpdate,
			Warnings:       resourceQuotaWarnings,
		},
		DeleteStrategy: resource.DeleteStrategy[*corev1.ResourceQuota]{ReturnDeletedObject: true},
		Table: resource.Table[*corev1.ResourceQuota]{
			Columns: []metav1.TableColumnDefinition{
				resource.NameColumn(),
				resource.Column("Request", "string", "Request represents a minimum amount of cpu/memory that a container may consume."),
				resource.Column("Limit", "string", "Limits control the maximum amount of cpu/memory that a container may use independent of contention on the node."),
				resource.AgeColumn(),
			},
			Row: resourceQuotaRow,
		},
	})
}

// resourceQuotaWarnings warns of requests in a new quota that are larger than
// the limits: pods cannot use them up.
func resourceQuotaWarnings(_ *resource.RequestContext, q, old *corev1.ResourceQuota) []string {
	if old != nil {
		return nil
	}
	var warnings []string
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceStorage, corev1.ResourceEphemeralStorage} {
		requests, limits := "requests."+name, "limits."+name
		request, requested := q.Spec.Hard[requests]
		if !requested && (name == corev1.ResourceCPU || name == corev1.ResourceMemory) {
			requests = name
			request, requested = q.Spec.Hard[requests]
		}
		limit, limited := q.Spec.Hard[limits]
		if requested && limited && request.Cmp(limit) > 0 {
			warnings = append(warnings, fmt.Sprintf("ResourceQuota %s (%s) should be less than %s (%s)", requests, request.String(), limits, limit.String()))
		}
	}
	return warnings
}

func resourceQuotaRow(q *corev1.ResourceQuota, now time.Time) []any {
	names := make([]string, 0, len(q.Status.Hard))
	for name := range q.Status.Hard {
		names = append(names, string(name))
	}
	sort.Strings(names)
	var requests, limits []string
	for _, name := range names {
		used, hard := q.Status.Used[corev1.ResourceName(name)], q.Status.Hard[corev1.ResourceName(name)]
		shown := fmt.Sprintf("%s: %s/%s", name, used.String(), hard.String())
		if strings.HasPrefix(name, "limits") {
			limits = append(limits, shown)
		} else {
			requests = append(requests, shown)
		}
	}
	return []any{q.Name, strings.Join(requests, ", "), strings.Join(limits, ", "), resource.Age(q.CreationTimestamp, now)}
}

func validateResourceQuota(_ *resource.RequestContext, q *corev1.ResourceQuota) field.ErrorList {
	errs := validateQuotaSpec(&q.Spec, field.NewPath("spec"))
	return append(errs, validateQuotaStatusLists(q)...)
}

func validateQuotaStatusLists(q *corev1.ResourceQuota) field.ErrorList {
	errs := validateQuotaList(q.Status.Hard, field.NewPath("status", "hard"))
	return append(errs, validateQuotaList(q.Status.Used, field.NewPath("status", "used"))...)
}

func validateQuotaList(list corev1.ResourceList, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for name, quantity := range list {
		at := path.Key(string(name))
		errs = append(errs, resourcelist.ValidateQuotaName(string(name), at)...)
		errs = append(errs, resourcelist.ValidateQuantity(string(name), quantity, at)...)
	}
	return errs
}

func validateQuotaSpec(spec *corev1.ResourceQuotaSpec, path *field.Path) field.ErrorList {
	errs := validateQuotaList(spec.Hard, path.Child("hard"))
	errs = append(errs, validateQuotaScopes(spec, path)...)
	return append(errs, validateQuotaScopeSelector(spec, path)...)
}

// scopeApplies reports whether a quota with that scope can count a resource.
func scopeApplies(scope corev1.ResourceQuotaScope, name corev1.ResourceName) bool {
	switch scope {
	case corev1.ResourceQuotaScopeBestEffort:
		return name == corev1.ResourcePods
	case corev1.ResourceQuotaScopeNotBestEffort, corev1.ResourceQuotaScopeTerminating,
		corev1.ResourceQuotaScopeNotTerminating, corev1.ResourceQuotaScopePriorityClass,
		corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		switch name {
		case corev1.ResourcePods, corev1.ResourceCPU, corev1.ResourceMemory,
			corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory,
			corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory:
			return true
		}
		return false
	case corev1.ResourceQuotaScopeVolumeAttributesClass:
		return name == corev1.ResourcePersistentVolumeClaims || name == corev1.ResourceRequestsStorage
	}
	return true
}

// isQuotaScope reports whether a quota can have a scope.
func isQuotaScope(name corev1.ResourceQuotaScope) bool {
	switch name {
	case corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating, corev1.ResourceQuotaScopeBestEffort,
		corev1.ResourceQuotaScopeNotBestEffort, corev1.ResourceQuotaScopePriorityClass,
		corev1.ResourceQuotaScopeCrossNamespacePodAffinity, corev1.ResourceQuotaScopeVolumeAttributesClass:
		return true
	}
	return false
}

func validateQuotaScopes(spec *corev1.ResourceQuotaSpec, path *field.Path) field.ErrorList {
	if len(spec.Scopes) == 0 {
		return nil
	}
	var errs field.ErrorList
	at := path.Child("scopes")
	scopes := sets.New(spec.Scopes...)
	checked := sets.New[corev1.ResourceQuotaScope]()
	for _, scope := range spec.Scopes {
		if !isQuotaScope(scope) {
			errs = append(errs, field.Invalid(at, spec.Scopes, "unsupported scope"))
		}
		errs = append(errs, validateQuotaScope(spec, scope, checked, spec.Scopes, at)...)
	}
	return append(errs, validateScopePairs(scopes, spec.Scopes, at)...)
}

// validateQuotaScope checks that a scope applies to all resources of a quota. It
// checks a scope once, and adds it to checked: the errors of many equal scopes
// and many resources would not fit into memory.
func validateQuotaScope(spec *corev1.ResourceQuotaSpec, scope corev1.ResourceQuotaScope, checked sets.Set[corev1.ResourceQuotaScope], value any, path *field.Path) field.ErrorList {
	if checked.Has(scope) || !isQuotaScope(scope) {
		return nil
	}
	checked.Insert(scope)
	var errs field.ErrorList
	for name := range spec.Hard {
		if (resourcelist.IsQuotaStandard(name)) && !scopeApplies(scope, name) {
			errs = append(errs, field.Invalid(path, value, "unsupported scope applied to resource"))
		}
	}
	return errs
}

func validateScopePairs(scopes sets.Set[corev1.ResourceQuotaScope], value any, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, pair := range [][2]corev1.ResourceQuotaScope{
		{corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort},
		{corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating},
	} {
		if scopes.HasAll(pair[0], pair[1]) {
			errs = append(errs, field.Invalid(path, value, "conflicting scopes"))
		}
	}
	return errs
}

func validateQuotaScopeSelector(spec *corev1.ResourceQuotaSpec, path *field.Path) field.ErrorList {
	if spec.ScopeSelector == nil {
		return nil
	}
	var errs field.ErrorList
	at := path.Child("scopeSelector", "matchExpressions")
	scopes := sets.New[corev1.ResourceQuotaScope]()
	for _, r := range spec.ScopeSelector.MatchExpressions {
		if !isQuotaScope(r.ScopeName) {
			errs = append(errs, field.Invalid(at.Child("scopeName"), r.ScopeName, "unsupported scope"))
		}
		errs = append(errs, validateQuotaScope(spec, r.ScopeName, scopes, validators.BadValue(spec.ScopeSelector), at)...)
		switch r.ScopeName {
		case corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort,
			corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating,
			corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
			if r.Operator != corev1.ScopeSelectorOpExists {
				errs = append(errs, field.Invalid(at.Child("operator"), r.Operator,
					"must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"))
			}
		}
		switch r.Operator {
		case corev1.ScopeSelectorOpIn, corev1.ScopeSelectorOpNotIn:
			if len(r.Values) == 0 {
				errs = append(errs, field.Required(at.Child("values"),
					"must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"))
			}
		case corev1.ScopeSelectorOpExists, corev1.ScopeSelectorOpDoesNotExist:
			if len(r.Values) != 0 {
				errs = append(errs, field.Invalid(at.Child("values"), r.Values,
					"must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"))
			}
		default:
			errs = append(errs, field.Invalid(at.Child("operator"), r.Operator, "not a valid selector operator"))
		}
	}
	return append(errs, validateScopePairs(scopes, spec.Scopes, at)...)
}

func validateResourceQuotaUpdate(r *resource.RequestContext, q, old *corev1.ResourceQuota) field.ErrorList {
	errs := validateResourceQuota(r, q)
	if !sets.New(q.Spec.Scopes...).Equal(sets.New(old.Spec.Scopes...)) {
		errs = append(errs, field.Invalid(field.NewPath("spec", "scopes"), q.Spec.Scopes, validation.FieldImmutableErrorMsg))
	}
	return errs
}

func validateResourceQuotaStatus(_ *resource.RequestContext, q, _ *corev1.ResourceQuota) field.ErrorList {
	var errs field.ErrorList
	if q.ResourceVersion == "" {
		errs = append(errs, field.Required(field.NewPath("resourceVersion"), ""))
	}
	return append(errs, validateQuotaStatusLists(q)...)
}
