package dynamicresources

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubescheduler "k8s.io/kube-scheduler/config/v1"

	"github.com/coracle-io/coracle/internal/resource/defaults"
)

func setDefaults(a *kubescheduler.DynamicResourcesArgs) {
	defaults.Nil(&a.FilterTimeout, metav1.Duration{Duration: kubescheduler.DynamicResourcesFilterTimeoutDefault})
	defaults.Nil(&a.BindingTimeout, metav1.Duration{Duration: kubescheduler.DynamicResourcesBindingTimeoutDefault})
}

func validate(path *field.Path, a *kubescheduler.DynamicResourcesArgs) field.ErrorList {
	var errs field.ErrorList
	if t := a.FilterTimeout.Duration; t < 0 {
		errs = append(errs, field.Invalid(path.Child("filterTimeout"), t, "must be zero or larger"))
	}
	if t := a.BindingTimeout.Duration; t < 0 {
		errs = append(errs, field.Invalid(path.Child("bindingTimeout"), t, "must be zero or larger"))
	}
	return errs
}
