package apps

import (
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// rollbackTo returns the revision in the annotation of the former field
// spec.rollbackTo. It returns false without one.
func rollbackTo(d *appsv1.Deployment) (revision int64, asked bool, err error) {
	text := d.Annotations[appsv1.DeprecatedRollbackTo]
	if text == "" {
		return 0, false, nil
	}
	if revision, err = strconv.ParseInt(text, 10, 64); err != nil {
		return 0, false, fmt.Errorf("failed to parse annotation[%s]=%s as int64: %w", appsv1.DeprecatedRollbackTo, text, err)
	}
	return revision, true, nil
}

// keepRollback sets the annotation to that of old: it is a part of the spec.
func keepRollback(d, old *appsv1.Deployment) {
	text, asked := old.Annotations[appsv1.DeprecatedRollbackTo]
	switch {
	case !asked:
		delete(d.Annotations, appsv1.DeprecatedRollbackTo)
	case d.Annotations == nil:
		d.Annotations = map[string]string{appsv1.DeprecatedRollbackTo: text}
	default:
		d.Annotations[appsv1.DeprecatedRollbackTo] = text
	}
}

func validateDeployment(r *resource.RequestContext, d, old *appsv1.Deployment) field.ErrorList {
	p, s := field.NewPath("spec"), &d.Spec
	errs := validators.NonnegativePointer(p.Child("replicas"), s.Replicas)
	errs = append(errs, validateSelector(p.Child("selector"), s.Selector, "deployment")...)
	errs = append(errs, validateSelected(r, p, s.Selector, &s.Template, deploymentTemplate(old))...)
	errs = append(errs, validateDeploymentStrategy(p.Child("strategy"), &s.Strategy)...)
	errs = append(errs, validators.Nonnegative(p.Child("minReadySeconds"), s.MinReadySeconds)...)
	errs = append(errs, validators.NonnegativePointer(p.Child("revisionHistoryLimit"), s.RevisionHistoryLimit)...)
	if revision, asked, _ := rollbackTo(d); asked {
		errs = append(errs, validators.Nonnegative(p.Child("rollback", "version"), revision)...)
	}
	if deadline := s.ProgressDeadlineSeconds; deadline != nil {
		errs = append(errs, validators.Nonnegative(p.Child("progressDeadlineSeconds"), *deadline)...)
		if *deadline <= s.MinReadySeconds {
			errs = append(errs, field.Invalid(p.Child("progressDeadlineSeconds"), *deadline, "must be greater than minReadySeconds"))
		}
	}
	return errs
}

func validateDeploymentStrategy(p *field.Path, s *appsv1.DeploymentStrategy) field.ErrorList {
	const recreate, rolling = appsv1.RecreateDeploymentStrategyType, appsv1.RollingUpdateDeploymentStrategyType
	at := p.Child("rollingUpdate")
	switch s.Type {
	case recreate:
		if s.RollingUpdate != nil {
			return field.ErrorList{field.Forbidden(at, "may not be specified when strategy `type` is 'Recreate'")}
		}
		return nil
	case rolling:
		if s.RollingUpdate == nil {
			return field.ErrorList{field.Required(at, "this should be defaulted and never be nil")}
		}
		return validateRollingUpdate(at, s.RollingUpdate)
	default:
		return field.ErrorList{field.NotSupported(p, validators.Shown(*s), []appsv1.DeploymentStrategyType{recreate, rolling})}
	}
}

func validateRollingUpdate(p *field.Path, u *appsv1.RollingUpdateDeployment) field.ErrorList {
	var errs field.ErrorList
	if u.MaxUnavailable != nil {
		errs = append(errs, validators.IntOrPercent(p.Child("maxUnavailable"), *u.MaxUnavailable)...)
	}
	if u.MaxSurge != nil {
		errs = append(errs, validators.IntOrPercent(p.Child("maxSurge"), *u.MaxSurge)...)
	}
	if isNone(u.MaxUnavailable) && isNone(u.MaxSurge) {
		errs = append(errs, field.Invalid(p.Child("maxUnavailable"), u.MaxUnavailable, "may not be 0 when `maxSurge` is 0"))
	}
	if u.MaxUnavailable != nil {
		errs = append(errs, validators.AtMostWhole(p.Child("maxUnavailable"), *u.MaxUnavailable)...)
	}
	return errs
}

func validateDeploymentUpdate(r *resource.RequestContext, d, old *appsv1.Deployment) field.ErrorList {
	errs := validateDeployment(r, d, old)
	return append(errs, validators.Immutable(field.NewPath("spec", "selector"), d.Spec.Selector, old.Spec.Selector)...)
}

func validateDeploymentStatus(_ *resource.RequestContext, d, old *appsv1.Deployment) field.ErrorList {
	p, s := field.NewPath("status"), &d.Status
	errs := validators.Nonnegative(p.Child("observedGeneration"), s.ObservedGeneration)
	errs = append(errs, validateCounts(p, count{"replicas", s.Replicas}, count{"updatedReplicas", s.UpdatedReplicas},
		count{"readyReplicas", s.ReadyReplicas}, count{"availableReplicas", s.AvailableReplicas},
		count{"unavailableReplicas", s.UnavailableReplicas})...)
	errs = append(errs, validators.NonnegativePointer(p.Child("terminatingReplicas"), s.TerminatingReplicas)...)
	errs = append(errs, validators.NonnegativePointer(p.Child("collisionCount"), s.CollisionCount)...)
	errs = append(errs, validateAtMost(p, count{"updatedReplicas", s.UpdatedReplicas}, s.Replicas, "status.replicas")...)
	errs = append(errs, validateAtMost(p, count{"readyReplicas", s.ReadyReplicas}, s.Replicas, "status.replicas")...)
	errs = append(errs, validateAtMost(p, count{"availableReplicas", s.AvailableReplicas}, s.Replicas, "status.replicas")...)
	errs = append(errs, validateAtMost(p, count{"availableReplicas", s.AvailableReplicas}, s.ReadyReplicas, "readyReplicas")...)
	return append(errs, validateCollisions(p, s.CollisionCount, old.Status.CollisionCount)...)
}

// validateCollisions checks that the number of hash collisions does not
// decrease.
func validateCollisions(p *field.Path, now, before *int32) field.ErrorList {
	if before == nil || now != nil && *now >= *before {
		return nil
	}
	return field.ErrorList{field.Invalid(p.Child("collisionCount"), ptr.Deref(now, 0), "cannot be decremented")}
}
