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

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/tag"
)

// Evictions is the resource evictions.
func Evictions() *resource.Resource {
	return resource.Define(resource.Definition[lifecyclev1alpha1.Eviction, *lifecyclev1alpha1.Eviction]{
		GroupVersion: lifecyclev1alpha1.SchemeGroupVersion,
		Kind:         "Eviction",
		Plural:       "evictions",
		Gate:         "EvictionRequestAPI",
		Spec:         func(e *lifecyclev1alpha1.Eviction) any { return e.Spec },
		CopyStatus:   func(e, from *lifecyclev1alpha1.Eviction) { e.Status = from.Status },
		Validate: func(_ *resource.Request, e *lifecyclev1alpha1.Eviction) field.ErrorList {
			return validateTarget(tag.Create(), field.NewPath("spec", "target"), e.Spec.Target.Pod, e.Spec.Target, nil)
		},
		UpdateValidatesAlone: true,
		ValidateUpdate: func(_ *resource.Request, e, old *lifecyclev1alpha1.Eviction) field.ErrorList {
			return validateTarget(tag.Update(), field.NewPath("spec", "target"), e.Spec.Target.Pod, e.Spec.Target, &old.Spec.Target)
		},
		ValidateStatus: func(r *resource.Request, e, old *lifecyclev1alpha1.Eviction) field.ErrorList {
			return validateStatus(r.Now, field.NewPath("status"), &e.Status, &old.Status)
		},
		Columns: []metav1.TableColumnDefinition{resource.NameColumn(), resource.AgeColumn()},
		Row: func(e *lifecyclev1alpha1.Eviction, now time.Time) []any {
			return []any{e.Name, resource.Age(e.CreationTimestamp, now)}
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
	errs = append(errs, tag.List(tag.Update(), p.Child("requesters"), s.Requesters, old.Requesters,
		func(r *lifecyclev1alpha1.Requester) string { return r.Name }, maxRequesters, validateRequester)...)
	errs = append(errs, validateTargetResponders(now, p.Child("targetResponders"), s, old, over)...)
	return append(errs, validateResponders(now, p.Child("responders"), s, old)...)
}

func validateRequester(op tag.Operation, p *field.Path, r, old *lifecyclev1alpha1.Requester) field.ErrorList {
	if old == nil {
		old = &lifecyclev1alpha1.Requester{}
	}
	errs := tag.Value(op, p.Child("name"), &r.Name, &old.Name, tag.Required, validate.PrefixedLabelKey)
	return append(errs, tag.Value(op, p.Child("intent"), &r.Intent, &old.Intent, tag.Required,
		tag.OneOf(lifecyclev1alpha1.RequesterIntentEviction, lifecyclev1alpha1.RequesterIntentWithdrawn))...)
}
