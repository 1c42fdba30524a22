package devices

import (
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
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
		Cluster:      true,
		Spec:         func(r *resourcev1.DeviceTaintRule) any { return r.Spec },
		CopyStatus:   func(r, from *resourcev1.DeviceTaintRule) { r.Status = from.Status },
		PrepareForCreate: func(r *resource.Request, t *resourcev1.DeviceTaintRule) {
			if t.Spec.Taint.TimeAdded == nil {
				added := metav1.NewTime(r.Now)
				t.Spec.Taint.TimeAdded = &added
			}
		},
		Validate: validateTaintRule,
		Columns:  []metav1.TableColumnDefinition{resource.NameColumn(), resource.AgeColumn()},
	})
}

func validateTaintRule(_ *resource.Request, r *resourcev1.DeviceTaintRule) field.ErrorList {
	var errs field.ErrorList
	if s := r.Spec.DeviceSelector; s != nil {
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
	return append(errs, validateTaint(field.NewPath("spec", "taint"), &r.Spec.Taint)...)
}

func validateTaint(p *field.Path, t *resourcev1.DeviceTaint) field.ErrorList {
	errs := rule.Problems(p.Child("key"), t.Key, utilvalidation.IsQualifiedName(t.Key))
	if t.Value != "" {
		errs = append(errs, rule.Problems(p.Child("value"), t.Value, utilvalidation.IsValidLabelValue(t.Value))...)
	}
	if t.Effect == "" {
		return append(errs, field.Required(p.Child("effect"), ""))
	}
	return append(errs, rule.OneOf(p.Child("effect"), t.Effect, resourcev1.DeviceTaintEffectNoExecute, resourcev1.DeviceTaintEffectNoSchedule, resourcev1.DeviceTaintEffectNone)...)
}
