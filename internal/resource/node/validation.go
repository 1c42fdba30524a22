package node

import (
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core/pod"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

func validateRuntimeClass(_ *resource.RequestContext, c *nodev1.RuntimeClass) field.ErrorList {
	var errs field.ErrorList
	if c.Handler == "" {
		errs = append(errs, field.Required(field.NewPath("handler"), ""))
	} else {
		errs = append(errs, validators.Label(field.NewPath("handler"), c.Handler)...)
	}
	if c.Overhead != nil {
		errs = append(errs, pod.ValidateOverhead(c.Overhead.PodFixed, field.NewPath("overhead"))...)
	}
	if s := c.Scheduling; s != nil {
		p := field.NewPath("scheduling")
		errs = append(errs, metav1validation.ValidateLabels(s.NodeSelector, p.Child("nodeSelector"))...)
		errs = append(errs, validateTolerations(p.Child("tolerations"), s.Tolerations)...)
	}
	return errs
}

// validateTolerations requires tolerations that differ in more than
// tolerationSeconds. Unlike those of pods, they cannot compare numbers.
func validateTolerations(p *field.Path, tolerations []corev1.Toleration) field.ErrorList {
	errs := pod.ValidateTolerations(tolerations, p, false)
	seen := sets.New[corev1.Toleration]()
	for i, t := range tolerations {
		key := t
		key.TolerationSeconds = nil
		if seen.Has(key) {
			errs = append(errs, field.Duplicate(p.Index(i), validators.Shown(t)))
		}
		seen.Insert(key)
	}
	return errs
}
