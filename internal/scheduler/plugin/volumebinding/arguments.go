package volumebinding

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubescheduler "k8s.io/kube-scheduler/config/v1"

	"github.com/coracle-io/coracle/internal/resource/defaults"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/utilization"
)

func setDefaults(a *kubescheduler.VolumeBindingArgs) {
	defaults.Nil(&a.BindTimeoutSeconds, 600)
	if len(a.Shape) == 0 {
		a.Shape = utilization.LeastFirst()
	}
}

func validate(path *field.Path, a *kubescheduler.VolumeBindingArgs) field.ErrorList {
	var errs field.ErrorList
	if t := *a.BindTimeoutSeconds; t < 0 {
		errs = append(errs, field.Invalid(path.Child("bindTimeoutSeconds"), t, "invalid BindTimeoutSeconds, should not be a negative value"))
	}
	return append(errs, utilization.Validate(path.Child("shape"), a.Shape)...)
}
