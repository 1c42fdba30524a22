package node

import (
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/rule"
)

func validateRuntimeClass(_ *resource.Request, c *nodev1.RuntimeClass) field.ErrorList {
	var errs field.ErrorList
	if c.Handler == "" {
		errs = append(errs, field.Required(field.NewPath("handler"), ""))
	} else {
		errs = append(errs, rule.Label(field.NewPath("handler"), c.Handler)...)
	}
	if c.Overhead != nil {
		errs = append(errs, validateOverhead(field.NewPath("overhead", "podFixed"), c.Overhead.PodFixed)...)
	}
	if s := c.Scheduling; s != nil {
		p := field.NewPath("scheduling")
		errs = append(errs, metav1validation.ValidateLabels(s.NodeSelector, p.Child("nodeSelector"))...)
		errs = append(errs, validateTolerations(p.Child("tolerations"), s.Tolerations)...)
	}
	return errs
}

func validateOverhead(p *field.Path, list corev1.ResourceList) field.ErrorList {
	var errs field.ErrorList
	for name, quantity := range list {
		at := p.Key(string(name))
		errs = append(errs, rule.Problems(at, string(name), utilvalidation.IsQualifiedName(string(name)))...)
		if quantity.Sign() < 0 {
			errs = append(errs, field.Invalid(at, quantity.String(), "must be greater than or equal to 0"))
		}
	}
	return errs
}

func validateTolerations(p *field.Path, tolerations []corev1.Toleration) field.ErrorList {
	var errs field.ErrorList
	for i := range tolerations {
		at, t := p.Index(i), &tolerations[i]
		if t.Key != "" {
			errs = append(errs, rule.Problems(at.Child("key"), t.Key, utilvalidation.IsQualifiedName(t.Key))...)
		}
		if t.Key == "" && t.Operator != corev1.TolerationOpExists {
			errs = append(errs, field.Invalid(at.Child("operator"), t.Operator,
				"operator must be Exists when `key` is empty, which means \"match all values and all keys\""))
		}
		if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
			errs = append(errs, field.Invalid(at.Child("effect"), t.Effect, "effect must be 'NoExecute' when `tolerationSeconds` is set"))
		}
		switch t.Operator {
		case corev1.TolerationOpEqual, "":
			errs = append(errs, rule.Problems(at.Child("operator"), t.Value, utilvalidation.IsValidLabelValue(t.Value))...)
		case corev1.TolerationOpExists:
			if t.Value != "" {
				errs = append(errs, field.Invalid(at.Child("operator"), t.Value, "value must be empty when `operator` is 'Exists'"))
			}
		default:
			errs = append(errs, field.NotSupported(at.Child("operator"), t.Operator, []corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists}))
		}
		if t.Effect != "" {
			errs = append(errs, rule.OneOf(at.Child("effect"), t.Effect, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)...)
		}
	}
	return errs
}
