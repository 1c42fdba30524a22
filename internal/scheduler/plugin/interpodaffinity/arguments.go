package interpodaffinity

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubescheduler "k8s.io/kube-scheduler/config/v1"

	"github.com/coracle-io/coracle/internal/resource/defaults"
)

func setDefaults(a *kubescheduler.InterPodAffinityArgs) {
	defaults.Nil(&a.HardPodAffinityWeight, 1)
}

func validate(path *field.Path, a *kubescheduler.InterPodAffinityArgs) field.ErrorList {
	if w := *a.HardPodAffinityWeight; w < 0 || w > 100 {
		return field.ErrorList{field.Invalid(path.Child("hardPodAffinityWeight"), w, "not in valid range [0, 100]")}
	}
	return nil
}
