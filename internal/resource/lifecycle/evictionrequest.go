// Package lifecycle defines the resources of the group lifecycle.k8s.io
// (KEP-4563), which are not served by default.
package lifecycle

import (
	"strings"
	"time"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	"k8s.io/apimachinery/pkg/api/validate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/declarative"
)

// The maximum lengths of what a status has.
const (
	maxConditions = 100
	maxRequesters = 100
	maxResponders = 11
	maxMessage    = 4000 // characters
)

// EvictionRequests is the resource evictionrequests.
func EvictionRequests() *resource.Resource {
	return resource.Define(resource.Definition[lifecyclev1alpha1.EvictionRequest, *lifecyclev1alpha1.EvictionRequest]{
		GroupVersion: lifecyclev1alpha1.SchemeGroupVersion,
		Names:        resource.Names{Kind: "EvictionRequest", Plural: "evictionrequests"},
		Gate:         feature.EvictionRequestAPI,
		Spec:         func(r *lifecyclev1alpha1.EvictionRequest) any { return r.Spec },
		Status: resource.Status[*lifecyclev1alpha1.EvictionRequest]{
			Copy:          func(r, from *lifecyclev1alpha1.EvictionRequest) { r.Status = from.Status },
			KeepsMetadata: true,
			Validate: func(_ *resource.RequestContext, r, old *lifecyclev1alpha1.EvictionRequest) field.ErrorList {
				p := field.NewPath("status")
				errs := validateConditions(p.Child("conditions"), r.Status.Conditions)
				return append(errs, validateObserved(p.Child("observedGeneration"), r.Status.ObservedGeneration, old.Status.ObservedGeneration)...)
			},
		},
		UpdateValidatesAlone: true,
		Strategy: resource.Strategy[*lifecyclev1alpha1.EvictionRequest]{
			ForbidUnconditionalUpdate: true,
			Validate: func(_ *resource.RequestContext, r *lifecyclev1alpha1.EvictionRequest) field.ErrorList {
				return validateRequest(declarative.Create(), field.NewPath("spec"), &r.Spec, nil)
			},
			ValidateUpdate: func(_ *resource.RequestContext, r, old *lifecyclev1alpha1.EvictionRequest) field.ErrorList {
				return validateRequest(declarative.Update(), field.NewPath("spec"), &r.Spec, &old.Spec)
			},
		},
		Table: resource.Table[*lifecyclev1alpha1.EvictionRequest]{
			Columns: []metav1.TableColumnDefinition{resource.NameColumn(), resource.AgeColumn()},
			Row: func(r *lifecyclev1alpha1.EvictionRequest, now time.Time) []any {
				return []any{r.Name, resource.Age(r.CreationTimestamp, now)}
			},
		},
	})
}

func validateRequest(op declarative.Operation, p *field.Path, s, old *lifecyclev1alpha1.EvictionRequestSpec) field.ErrorList {
	target := declarative.Of(old, func(o *lifecyclev1alpha1.EvictionRequestSpec) *lifecyclev1alpha1.EvictionRequestTarget {
		return &o.Target
	})
	requester := declarative.Of(old, func(o *lifecyclev1alpha1.EvictionRequestSpec) *string { return &o.Requester })
	intent := declarative.Of(old, func(o *lifecyclev1alpha1.EvictionRequestSpec) *lifecyclev1alpha1.EvictionRequestIntent {
		return &o.Intent
	})
	errs := validateTarget(op, p.Child("target"), (*lifecyclev1alpha1.EvictionPodReference)(s.Target.Pod), s.Target, target)
	at := p.Child("requester")
	errs = append(errs, declarative.First(
		func() field.ErrorList { return declarative.Immutable(op, at, &s.Requester, requester) },
		func() field.ErrorList {
			return declarative.Value(op, at, &s.Requester, requester, declarative.Required, validate.PrefixedLabelKey)
		},
		func() field.ErrorList {
			if old != nil {
				return nil
			}
			return validateUnreserved(at, s.Requester)
		})...)
	return append(errs, declarative.Value(op, p.Child("intent"), &s.Intent, intent, declarative.Required,
		declarative.OneOf(lifecyclev1alpha1.EvictionRequestIntentEviction, lifecyclev1alpha1.EvictionRequestIntentWithdrawn))...)
}

// validateUnreserved refuses keys with a domain of Kubernetes.
func validateUnreserved(p *field.Path, key string) field.ErrorList {
	domain, _, _ := strings.Cut(key, "/")
	for _, reserved := range []string{"k8s.io", "kubernetes.io"} {
		if domain == reserved || strings.HasSuffix(domain, "."+reserved) {
			return field.ErrorList{field.Invalid(p, key, "domain names *.k8s.io and *.kubernetes.io are reserved")}
		}
	}
	return nil
}

// validateTarget checks the eviction target, which is immutable. It is a pod
// in every kind that has one.
func validateTarget[T any](op declarative.Operation, p *field.Path, pod *lifecyclev1alpha1.EvictionPodReference, target T, old *T) field.ErrorList {
	if old != nil {
		return declarative.Immutable(op, p, &target, old)
	}
	if pod == nil {
		return declarative.Union(op, p, &target, nil, []string{"pod"}, func(*T) bool { return false })
	}
	at := p.Child("pod")
	errs := declarative.Value(op, at.Child("name"), &pod.Name, nil, declarative.Required, validate.LongName)
	return append(errs, declarative.Value(op, at.Child("uid"), &pod.UID, nil, declarative.Required, validate.UUID[types.UID])...)
}

func validateConditions(p *field.Path, conditions []metav1.Condition) field.ErrorList {
	if n := len(conditions); n > maxConditions {
		return field.ErrorList{field.TooMany(p, n, maxConditions)}
	}
	return metav1validation.ValidateConditions(conditions, p)
}

// validateObserved checks that an observed generation does not decrease.
func validateObserved(p *field.Path, value, old *int64) field.ErrorList {
	op := declarative.Update()
	return declarative.First(
		func() field.ErrorList { return declarative.Only(op, p, value, old, validate.NoUnset) },
		func() field.ErrorList {
			return declarative.Pointer(op, p, value, old, declarative.Optional, validate.Monotonic, declarative.Min[int64](1))
		})
}
