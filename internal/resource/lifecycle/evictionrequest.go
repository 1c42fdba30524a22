// Package lifecycle defines the resources of the group lifecycle.k8s.io
// (KEP-4563), which are served on demand.
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

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/tag"
)

// Most of what a status lists.
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
		Kind:         "EvictionRequest",
		Plural:       "evictionrequests",
		Gate:         "EvictionRequestAPI",
		Spec:         func(r *lifecyclev1alpha1.EvictionRequest) any { return r.Spec },
		CopyStatus:   func(r, from *lifecyclev1alpha1.EvictionRequest) { r.Status = from.Status },
		Validate: func(_ *resource.Request, r *lifecyclev1alpha1.EvictionRequest) field.ErrorList {
			return validateRequest(tag.Create(), field.NewPath("spec"), &r.Spec, nil)
		},
		UpdateValidatesAlone: true,
		ValidateUpdate: func(_ *resource.Request, r, old *lifecyclev1alpha1.EvictionRequest) field.ErrorList {
			return validateRequest(tag.Update(), field.NewPath("spec"), &r.Spec, &old.Spec)
		},
		ValidateStatus: func(_ *resource.Request, r, old *lifecyclev1alpha1.EvictionRequest) field.ErrorList {
			p := field.NewPath("status")
			errs := validateConditions(p.Child("conditions"), r.Status.Conditions)
			return append(errs, validateObserved(p.Child("observedGeneration"), r.Status.ObservedGeneration, old.Status.ObservedGeneration)...)
		},
		Columns: []metav1.TableColumnDefinition{resource.NameColumn(), resource.AgeColumn()},
		Row: func(r *lifecyclev1alpha1.EvictionRequest, now time.Time) []any {
			return []any{r.Name, resource.Age(r.CreationTimestamp, now)}
		},
	})
}

func validateRequest(op tag.Operation, p *field.Path, s, old *lifecyclev1alpha1.EvictionRequestSpec) field.ErrorList {
	target := tag.Of(old, func(o *lifecyclev1alpha1.EvictionRequestSpec) *lifecyclev1alpha1.EvictionRequestTarget {
		return &o.Target
	})
	requester := tag.Of(old, func(o *lifecyclev1alpha1.EvictionRequestSpec) *string { return &o.Requester })
	intent := tag.Of(old, func(o *lifecyclev1alpha1.EvictionRequestSpec) *lifecyclev1alpha1.EvictionRequestIntent {
		return &o.Intent
	})
	errs := validateTarget(op, p.Child("target"), (*lifecyclev1alpha1.EvictionPodReference)(s.Target.Pod), s.Target, target)
	at := p.Child("requester")
	errs = append(errs, tag.First(
		func() field.ErrorList { return tag.Immutable(op, at, &s.Requester, requester) },
		func() field.ErrorList {
			return tag.Value(op, at, &s.Requester, requester, tag.Required, validate.PrefixedLabelKey)
		},
		func() field.ErrorList {
			if old != nil {
				return nil
			}
			return validateUnreserved(at, s.Requester)
		})...)
	return append(errs, tag.Value(op, p.Child("intent"), &s.Intent, intent, tag.Required,
		tag.OneOf(lifecyclev1alpha1.EvictionRequestIntentEviction, lifecyclev1alpha1.EvictionRequestIntentWithdrawn))...)
}

// validateUnreserved refuses keys below the domains of the project itself.
func validateUnreserved(p *field.Path, key string) field.ErrorList {
	domain, _, _ := strings.Cut(key, "/")
	for _, reserved := range []string{"k8s.io", "kubernetes.io"} {
		if domain == reserved || strings.HasSuffix(domain, "."+reserved) {
			return field.ErrorList{field.Invalid(p, key, "domain names *.k8s.io and *.kubernetes.io are reserved")}
		}
	}
	return nil
}

// validateTarget checks what is to be evicted, which never changes. It is a
// pod in every kind that has one.
func validateTarget[T any](op tag.Operation, p *field.Path, pod *lifecyclev1alpha1.EvictionPodReference, target T, old *T) field.ErrorList {
	if old != nil {
		return tag.Immutable(op, p, &target, old)
	}
	if pod == nil {
		return tag.Union(op, p, &target, nil, []string{"pod"}, func(*T) bool { return false })
	}
	at := p.Child("pod")
	errs := tag.Value(op, at.Child("name"), &pod.Name, nil, tag.Required, validate.LongName)
	return append(errs, tag.Value(op, at.Child("uid"), &pod.UID, nil, tag.Required, validate.UUID[types.UID])...)
}

func validateConditions(p *field.Path, conditions []metav1.Condition) field.ErrorList {
	if n := len(conditions); n > maxConditions {
		return field.ErrorList{field.TooMany(p, n, maxConditions)}
	}
	return metav1validation.ValidateConditions(conditions, p)
}

// validateObserved lets an observed generation only rise.
func validateObserved(p *field.Path, value, old *int64) field.ErrorList {
	op := tag.Update()
	return tag.First(
		func() field.ErrorList { return tag.Only(op, p, value, old, validate.NoUnset) },
		func() field.ErrorList {
			return tag.Pointer(op, p, value, old, tag.Optional, validate.Monotonic, tag.Min[int64](1))
		})
}
