package apps

import (
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// templateGeneration returns the generation of the template in the annotation that older
// clients read, 0 without one.
func templateGeneration(d *appsv1.DaemonSet) (int64, error) {
	text, ok := d.Annotations[appsv1.DeprecatedTemplateGeneration]
	if !ok {
		return 0, nil
	}
	return strconv.ParseInt(text, 10, 64)
}

// keepTemplateGeneration sets the annotation to that of old: it is a part of the spec.
func keepTemplateGeneration(d, old *appsv1.DaemonSet) {
	if n, err := templateGeneration(old); err == nil {
		setTemplateGeneration(d, n)
	}
}

// setTemplateGeneration writes the generation of the template to the annotation.
func setTemplateGeneration(d *appsv1.DaemonSet, n int64) {
	if d.Annotations == nil {
		d.Annotations = map[string]string{}
	}
	d.Annotations[appsv1.DeprecatedTemplateGeneration] = strconv.FormatInt(n, 10)
}

func countTemplate(d, old *appsv1.DaemonSet) {
	n, err := templateGeneration(old)
	if err != nil {
		n = 1
	}
	if !equality.Semantic.DeepEqual(d.Spec.Template, old.Spec.Template) {
		n++
	}
	setTemplateGeneration(d, n)
}

func validateDaemonSet(r *resource.RequestContext, d, old *appsv1.DaemonSet) field.ErrorList {
	p, s := field.NewPath("spec"), &d.Spec
	// Older versions did not check the values of selectors.
	errs := metav1validation.ValidateLabelSelector(s.Selector, metav1validation.LabelSelectorValidationOptions{
		AllowInvalidLabelValueInSelector: old != nil && metav1validation.LabelSelectorHasInvalidLabelValue(old.Spec.Selector),
	}, p.Child("selector"))
	if selector, err := metav1.LabelSelectorAsSelector(s.Selector); err == nil {
		errs = append(errs, validateMatch(p.Child("template"), selector, &s.Template)...)
	}
	errs = append(errs, validateNotEmpty(p.Child("selector"), s.Selector, "daemonset")...)
	errs = append(errs, validateTemplate(r, p.Child("template"), &s.Template, daemonSetTemplate(old), "DaemonSet")...)
	errs = append(errs, validators.Nonnegative(p.Child("minReadySeconds"), s.MinReadySeconds)...)
	errs = append(errs, validateDaemonStrategy(p.Child("updateStrategy"), &s.UpdateStrategy)...)
	return append(errs, validators.NonnegativePointer(p.Child("revisionHistoryLimit"), s.RevisionHistoryLimit)...)
}

func validateDaemonStrategy(p *field.Path, s *appsv1.DaemonSetUpdateStrategy) field.ErrorList {
	const rolling, onDelete = appsv1.RollingUpdateDaemonSetStrategyType, appsv1.OnDeleteDaemonSetStrategyType
	switch s.Type {
	case onDelete:
		return nil
	case rolling:
	default:
		return field.ErrorList{field.NotSupported(p, validators.Shown(*s), []appsv1.DaemonSetUpdateStrategyType{rolling, onDelete})}
	}
	at, u := p.Child("rollingUpdate"), s.RollingUpdate
	if u == nil {
		return field.ErrorList{field.Required(at, "")}
	}
	errs := validateShare(at.Child("maxUnavailable"), u.MaxUnavailable)
	errs = append(errs, validateShare(at.Child("maxSurge"), u.MaxSurge)...)
	switch noUnavailable, noSurge := isNone(u.MaxUnavailable), isNone(u.MaxSurge); {
	case !noUnavailable && !noSurge:
		errs = append(errs, field.Invalid(at.Child("maxSurge"), u.MaxSurge, "may not be set when maxUnavailable is non-zero"))
	case noUnavailable && noSurge:
		errs = append(errs, field.Required(at.Child("maxUnavailable"), "cannot be 0 when maxSurge is 0"))
	}
	return errs
}

func validateDaemonSetUpdate(r *resource.RequestContext, d, old *appsv1.DaemonSet) field.ErrorList {
	errs := validators.Immutable(field.NewPath("spec", "selector"), d.Spec.Selector, old.Spec.Selector)
	return append(errs, validateDaemonSet(r, d, old)...)
}

func validateDaemonSetStatus(_ *resource.RequestContext, d, old *appsv1.DaemonSet) field.ErrorList {
	p, s := field.NewPath("status"), &d.Status
	errs := validateCounts(p, count{"currentNumberScheduled", s.CurrentNumberScheduled},
		count{"numberMisscheduled", s.NumberMisscheduled}, count{"desiredNumberScheduled", s.DesiredNumberScheduled},
		count{"numberReady", s.NumberReady}, count{"updatedNumberScheduled", s.UpdatedNumberScheduled},
		count{"numberAvailable", s.NumberAvailable}, count{"numberUnavailable", s.NumberUnavailable})
	errs = append(errs, validators.Nonnegative(p.Child("observedGeneration"), s.ObservedGeneration)...)
	errs = append(errs, validators.NonnegativePointer(p.Child("collisionCount"), s.CollisionCount)...)
	return append(errs, validateCollisions(p, s.CollisionCount, old.Status.CollisionCount)...)
}
