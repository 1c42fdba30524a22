package dynamicresources

import (
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// DeviceTaintRules is the resource devicetaintrules (KEP-5055).
func DeviceTaintRules() *resource.Resource {
	return resource.Define(resource.Definition[resourcev1.DeviceTaintRule, *resourcev1.DeviceTaintRule]{
		GroupVersion: resourcev1.SchemeGroupVersion,
		Names:        resource.Names{Kind: "DeviceTaintRule", Plural: "devicetaintrules"},
		Cluster:      true,
		Gate:         feature.DRADeviceTaintRules,
		Spec:         func(r *resourcev1.DeviceTaintRule) any { return r.Spec },
		Status: resource.Status[*resourcev1.DeviceTaintRule]{
			Copy:          func(r, from *resourcev1.DeviceTaintRule) { r.Status = from.Status },
			KeepsMetadata: true,
			Validate:      validateTaintRuleStatus,
		},
		UpdateValidatesAlone: true,
		Strategy: resource.Strategy[*resourcev1.DeviceTaintRule]{
			ForbidUnconditionalUpdate: true,
			UnconditionalVersions:     []string{"v1beta2", "v1alpha3"},
			PrepareForCreate: func(r *resource.RequestContext, t *resourcev1.DeviceTaintRule) {
				if t.Spec.Taint.TimeAdded == nil {
					t.Spec.Taint.TimeAdded = new(metav1.NewTime(r.Now))
				}
			},
			PrepareForUpdate: func(r *resource.RequestContext, t, old *resourcev1.DeviceTaintRule) {
				is, was := &t.Spec.Taint, &old.Spec.Taint
				// The time is that of the effect, unless the user chooses another.
				if is.TimeAdded == nil || is.Effect != was.Effect && is.TimeAdded.Equal(was.TimeAdded) {
					is.TimeAdded = new(metav1.NewTime(r.Now))
				}
			},
			Validate: func(_ *resource.RequestContext, r *resourcev1.DeviceTaintRule) field.ErrorList {
				return validateTaintRule(&r.Spec, nil)
			},
			ValidateUpdate: func(_ *resource.RequestContext, r, old *resourcev1.DeviceTaintRule) field.ErrorList {
				return validateTaintRule(&r.Spec, &old.Spec)
			},
		},
		Table: resource.Table[*resourcev1.DeviceTaintRule]{Columns: []metav1.TableColumnDefinition{resource.NameColumn(), resource.AgeColumn()}},
	})
}

// validateTaintRule checks a rule. old is the old rule, or nil.
func validateTaintRule(s, old *resourcev1.DeviceTaintRuleSpec) field.ErrorList {
	var errs field.ErrorList
	if s := s.DeviceSelector; s != nil {
		p := field.NewPath("spec", "deviceSelector")
		if s.Driver != nil {
			errs = append(errs, validateDriverName(p.Child("driver"), *s.Driver)...)
		}
		if s.Pool != nil {
			errs = append(errs, validatePoolName(p.Child("pool"), *s.Pool)...)
		}
		if s.Device != nil {
			errs = append(errs, validators.Label(p.Child("device"), *s.Device)...)
		}
	}
	var taint *resourcev1.DeviceTaint
	if old != nil {
		taint = &old.Taint
	}
	return append(errs, validateTaint(field.NewPath("spec", "taint"), &s.Taint, taint)...)
}

func validateTaintRuleStatus(_ *resource.RequestContext, r, _ *resourcev1.DeviceTaintRule) field.ErrorList {
	p := field.NewPath("status", "conditions")
	errs := metav1validation.ValidateConditions(r.Status.Conditions, p)
	if n := len(r.Status.Conditions); n > resourcev1.DeviceTaintRuleStatusMaxConditions {
		errs = append(errs, field.TooMany(p, n, resourcev1.DeviceTaintRuleStatusMaxConditions))
	}
	return errs
}
