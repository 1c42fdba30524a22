package apps

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core"
	"github.com/coracle-io/coracle/internal/resource/rule"
)

func templateWarnings(template, old *corev1.PodTemplateSpec) []string {
	return core.PodTemplateWarnings(template, old, field.NewPath("spec", "template"))
}

// nameWarnings warns of a new object's name that cannot be the beginning of
// its pods' host names.
func nameWarnings(o metav1.Object, isNew bool) []string {
	if !isNew {
		return nil
	}
	return rule.PodNameWarnings(o.GetName())
}

// validateSelector requires a selector that selects something, for the
// workload that messages call kind.
func validateSelector(p *field.Path, s *metav1.LabelSelector, kind string) field.ErrorList {
	if s == nil {
		return field.ErrorList{field.Required(p, "")}
	}
	return append(rule.Selector(p, s), validateNotEmpty(p, s, kind)...)
}

func validateNotEmpty(p *field.Path, s *metav1.LabelSelector, kind string) field.ErrorList {
	if s != nil && len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
		return field.ErrorList{field.Invalid(p, s, "empty selector is invalid for "+kind)}
	}
	return nil
}

// validateTemplate checks the template of pods that are replaced when they
// end, for the workload that messages call kind.
func validateTemplate(r *resource.Request, p *field.Path, template, old *corev1.PodTemplateSpec, kind string) field.ErrorList {
	errs := core.ValidatePodTemplateSpec(template, p, core.PodTemplateOptions(r.Features, old))
	return append(errs, validateTemplateEnding(p.Child("spec"), &template.Spec, kind)...)
}

// validateTemplateEnding refuses pods that end by themselves.
func validateTemplateEnding(p *field.Path, s *corev1.PodSpec, kind string) field.ErrorList {
	var errs field.ErrorList
	if s.RestartPolicy != corev1.RestartPolicyAlways {
		errs = append(errs, field.NotSupported(p.Child("restartPolicy"), s.RestartPolicy, []corev1.RestartPolicy{corev1.RestartPolicyAlways}))
	}
	if s.ActiveDeadlineSeconds != nil {
		errs = append(errs, field.Forbidden(p.Child("activeDeadlineSeconds"), "activeDeadlineSeconds in "+kind+" is not Supported"))
	}
	return errs
}

func validateMatch(p *field.Path, selector labels.Selector, template *corev1.PodTemplateSpec) field.ErrorList {
	if selector.Matches(labels.Set(template.Labels)) {
		return nil
	}
	return field.ErrorList{field.Invalid(p.Child("metadata", "labels"), template.Labels, "`selector` does not match template `labels`")}
}

// validateSelected checks the template of a ReplicaSet's pods against the
// selector of spec.
func validateSelected(r *resource.Request, p *field.Path, s *metav1.LabelSelector, template, old *corev1.PodTemplateSpec) field.ErrorList {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return field.ErrorList{field.Invalid(p.Child("selector"), s, "invalid label selector")}
	}
	var errs field.ErrorList
	if !selector.Empty() {
		errs = validateMatch(p.Child("template"), selector, template)
	}
	return append(errs, validateTemplate(r, p.Child("template"), template, old, "ReplicaSet")...)
}

// validateShare requires a number of pods or a percentage of them, up to all.
func validateShare(p *field.Path, value *intstr.IntOrString) field.ErrorList {
	if value == nil {
		return nil
	}
	return append(rule.IntOrPercent(p, *value), rule.AtMostWhole(p, *value)...)
}

// isNone says whether value is 0 or 0 %, or says nothing valid.
func isNone(value *intstr.IntOrString) bool {
	if value == nil {
		return true
	}
	if percent, ok := rule.Percent(*value); ok {
		return percent == 0
	}
	return value.IntValue() == 0
}

// count is one number of a status.
type count struct {
	name  string
	value int32
}

func validateCounts(p *field.Path, counts ...count) field.ErrorList {
	var errs field.ErrorList
	for _, c := range counts {
		errs = append(errs, rule.Nonnegative(p.Child(c.name), c.value)...)
	}
	return errs
}

func validateAtMost(p *field.Path, c count, limit int32, name string) field.ErrorList {
	if c.value <= limit {
		return nil
	}
	return field.ErrorList{field.Invalid(p.Child(c.name), c.value, "cannot be greater than "+name)}
}
