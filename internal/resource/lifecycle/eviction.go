package lifecycle

import (
	"fmt"
	"time"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/declarative"
)

// Evictions is the resource evictions.
func Evictions() *resource.Resource {
	return resource.Define(resource.Definition[lifecyclev1alpha1.Eviction, *lifecyclev1alpha1.Eviction]{
		GroupVersion: lifecyclev1alpha1.SchemeGroupVersion,
		Names:        resource.Names{Kind: "Eviction", Plural: "evictions"},
		Gate:         feature.EvictionRequestAPI,
		Spec:         func(e *lifecyclev1alpha1.Eviction) any { return e.Spec },
		Status: resource.Status[*lifecyclev1alpha1.Eviction]{
			Copy:          func(e, from *lifecyclev1alpha1.Eviction) { e.Status = from.Status },
			KeepsMetadata: true,
			Validate: func(r *resource.RequestContext, e, old *lifecyclev1alpha1.Eviction) field.ErrorList {
				return validateStatus(r.Now, field.NewPath("status"), &e.Status, &old.Status)
			},
		},
		UpdateValidatesAlone: true,
		Strategy: resource.Strategy[*lifecyclev1alpha1.Eviction]{
			ForbidUnconditionalUpdate: true,
			Validate: func(_ *resource.RequestContext, e *lifecyclev1alpha1.Eviction) field.ErrorList {
				return validateTarget(declarative.Create(), field.NewPath("spec", "target"), e.Spec.Target.Pod, e.Spec.Target, nil)
			},
			ValidateUpdate: func(_ *resource.RequestContext, e, old *lifecyclev1alpha1.Eviction) field.ErrorList {
				return validateTarget(declarative.Update(), field.NewPath("spec", "target"), e.Spec.Target.Pod, e.Spec.Target, &old.Spec.Target)
			},
		},
		Table: resource.Table[*lifecyclev1alpha1.Eviction]{
			Columns: []metav1.TableColumnDefinition{resource.NameColumn(), resource.AgeColumn()},
			Row: func(e *lifecyclev1alpha1.Eviction, now time.Time) []any {
				return []any{e.Name, resource.Age(e.CreationTimestamp, now)}
			},
		},
	})
}

func validateStatus(now time.Time, p *field.Path, s, old *lifecyclev1alpha1.EvictionStatus) field.ErrorList {
	errs := validateConditions(p.Child("conditions"), s.Conditions)
	over := false
	for _, kind := range []lifecyclev1alpha1.EvictionConditionType{lifecyclev1alpha1.EvictionConditionTargetEvicted, lifecyclev1alpha1.EvictionConditionFailed} {
		before := meta.FindStatusCondition(old.Conditions, string(kind))
		if before != nil && before.Status == metav1.ConditionTrue {
			over = true
			if !equality.Semantic.DeepEqual(before, meta.FindStatusCondition(s.Conditions, string(kind))) {
				errs = append(errs, field.Invalid(p.Child("conditions"), s.Conditions, fmt.Sprintf("%s condition status cannot be reverted", kind)))
			}
		}
		over = over || meta.IsStatusConditionTrue(s.Conditions, string(kind))
	}
	errs = append(errs, validateObserved(p.Child("observedGeneration"), s.ObservedGeneration, old.ObservedGeneration)...)
	errs = append(errs, declarative.List(declarative.Update(), p.Child("requesters"), s.Requesters, old.Requesters,
		func(r *lifecyclev1alpha1.Requester) string { return r.Name }, maxRequesters, validateRequester)...)
	errs = append(errs, validateTargetResponders(now, p.Child("targetResponders"), s, old, over)...)
	return append(errs, validateResponders(now, p.Child("responders"), s, old)...)
}

func validateRequester(op declarative.Operation, p *field.Path, r, old *lifecyclev1alpha1.Requester) field.ErrorList {
	if old == nil {
		op, old = declarative.Create(), &lifecyclev1alpha1.Requester{}
	}
	errs := declarative.Value(op, p.Child("name"), &r.Name, &old.Name, declarative.Required, validate.PrefixedLabelKey)
	return append(errs, declarative.Value(op, p.Child("intent"), &r.Intent, &old.Intent, declarative.Required,
		declarative.OneOf(lifecyclev1alpha1.RequesterIntentEviction, lifecyclev1alpha1.RequesterIntentWithdrawn))...)
}
