package devices

import (
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/rule"
)

// DeviceTaintRules is the resource devicetaintrules (KEP-5055).
func DeviceTaintRules() *resource.Resource {
	return resource.Define(resource.Definition[resourcev1.DeviceTaintRule, *resourcev1.DeviceTaintRule]{
		GroupVersion: resourcev1.SchemeGroupVersion,
		Kind:         "DeviceTaintRule",
		Plural:       "devicetaintrules",
		Gate:         "DRADeviceTaintRules",
		Cluster:      true,
		Spec:         func(r *resourcev1.DeviceTaintRule) any { return r.Spec },
		CopyStatus:   func(r, from *resourcev1.DeviceTaintRule) { r.Status = from.Status },
		PrepareForCreate: func(r *resource.Request, t *resourcev1.DeviceTaintRule) {
			if t.Spec.Taint.TimeAdded == nil {
				added := metav1.NewTime(r.Now)
				t.Spec.Taint.TimeAdded = &added
			}
		},
		Validate: func(_ *resource.Request, r *resourcev1.DeviceTaintRule) field.ErrorList {
			return validateTaintRule(&r.Spec, nil)
		},
		UpdateValidatesAlone: true,
		ValidateUpdate: func(_ *resource.Request, r, old *resourcev1.DeviceTaintRule) field.ErrorList {
			return validateTaintRule(&r.Spec, &old.Spec)
		},
		StatusKeepsMetadata: true,
		ValidateStatus:      validateTaintRuleStatus,
		Columns:             []metav1.TableColumnDefinition{resource.NameColumn(), resource.AgeColumn()},
	})
}

// validateTaintRule checks a rule; old is the one before, nil for a new one.
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
			errs = append(errs, rule.Label(p.Child("device"), *s.Device)...)
		}
	}
	var taint *resourcev1.DeviceTaint
	if old != nil {
		taint = &old.Taint
	}
	return append(errs, validateTaint(field.NewPath("spec", "taint"), &s.Taint, taint)...)
}

func validateTaintRuleStatus(_ *resource.Request, r, _ *resourcev1.DeviceTaintRule) field.ErrorList {
	p := field.NewPath("status", "conditions")
	errs := metav1validation.ValidateConditions(r.Status.Conditions, p)
	if n := len(r.Status.Conditions); n > resourcev1.DeviceTaintRuleStatusMaxConditions {
		errs = append(errs, field.TooMany(p, n, resourcev1.DeviceTaintRuleStatusMaxConditions))
	}
	return errs
}
