package apps

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core/pod"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

func templateWarnings(template, old *corev1.PodTemplateSpec) []string {
	return pod.TemplateWarnings(template, old, field.NewPath("spec", "template"))
}

// nameWarnings warns if the name of a new object cannot be the prefix of its
// pods' host names.
func nameWarnings(o metav1.Object, isNew bool) []string {
	if !isNew {
		return nil
	}
	return validators.PodNameWarnings(o.GetName())
}

// validateSelector requires a selector that is not empty. kind is the
// workload's name in errors.
func validateSelector(p *field.Path, s *metav1.LabelSelector, kind string) field.ErrorList {
	if s == nil {
		return field.ErrorList{field.Required(p, "")}
	}
	return append(validators.Selector(p, s), validateNotEmpty(p, s, kind)...)
}

func validateNotEmpty(p *field.Path, s *metav1.LabelSelector, kind string) field.ErrorList {
	if s != nil && len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
		return field.ErrorList{field.Invalid(p, s, "empty selector is invalid for "+kind)}
	}
	return nil
}

// validateTemplate checks the template of pods that are replaced when they
// end. kind is the workload's name in errors.
func validateTemplate(r *resource.RequestContext, p *field.Path, template, old *corev1.PodTemplateSpec, kind string) field.ErrorList {
	errs := pod.ValidateTemplate(template, p, pod.TemplateOptions(r, old))
	return append(errs, validateTemplateEnding(p.Child("spec"), &template.Spec, kind)...)
}

// validateTemplateEnding refuses templates of pods that end by themselves.
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

// validateSelected checks the template of a ReplicaSet, whose labels must
// match the selector.
func validateSelected(r *resource.RequestContext, p *field.Path, s *metav1.LabelSelector, template, old *corev1.PodTemplateSpec) field.ErrorList {
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

// validateShare requires a number of pods, or a percentage of at most 100 %.
func validateShare(p *field.Path, value *intstr.IntOrString) field.ErrorList {
	if value == nil {
		return nil
	}
	return append(validators.IntOrPercent(p, *value), validators.AtMostWhole(p, *value)...)
}

// isNone reports whether value is 0 or 0 %, or is invalid.
func isNone(value *intstr.IntOrString) bool {
	if value == nil {
		return true
	}
	if percent, ok := validators.Percent(*value); ok {
		return percent == 0
	}
	return value.IntValue() == 0
}

// count is one count in a status.
type count struct {
	name  string
	value int32
}

func validateCounts(p *field.Path, counts ...count) field.ErrorList {
	var errs field.ErrorList
	for _, c := range counts {
		errs = append(errs, validators.Nonnegative(p.Child(c.name), c.value)...)
	}
	return errs
}

func validateAtMost(p *field.Path, c count, limit int32, name string) field.ErrorList {
	if c.value <= limit {
		return nil
	}
	return field.ErrorList{field.Invalid(p.Child(c.name), c.value, "cannot be greater than "+name)}
}
