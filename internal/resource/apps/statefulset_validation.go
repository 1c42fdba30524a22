package apps

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core/volume"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

func validateStatefulSet(r *resource.RequestContext, s, old *appsv1.StatefulSet) field.ErrorList {
	p, spec := field.NewPath("spec"), &s.Spec
	var errs field.ErrorList
	switch spec.PodManagementPolicy {
	case appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement:
	case "":
		errs = append(errs, field.Required(p.Child("podManagementPolicy"), ""))
	default:
		errs = append(errs, field.Invalid(p.Child("podManagementPolicy"), spec.PodManagementPolicy, "must be 'OrderedReady' or 'Parallel'"))
	}
	errs = append(errs, validateStatefulStrategy(p.Child("updateStrategy"), &spec.UpdateStrategy)...)
	if retention := spec.PersistentVolumeClaimRetentionPolicy; retention != nil {
		const retain, remove = appsv1.RetainPersistentVolumeClaimRetentionPolicyType, appsv1.DeletePersistentVolumeClaimRetentionPolicyType
		at := p.Child("persistentVolumeClaimRetentionPolicy")
		errs = append(errs, validators.OneOf(at.Child("whenDeleted"), retention.WhenDeleted, retain, remove)...)
		errs = append(errs, validators.OneOf(at.Child("whenScaled"), retention.WhenScaled, retain, remove)...)
	}
	errs = append(errs, validators.NonnegativePointer(p.Child("replicas"), spec.Replicas)...)
	errs = append(errs, validators.Nonnegative(p.Child("minReadySeconds"), spec.MinReadySeconds)...)
	if spec.Ordinals != nil {
		errs = append(errs, validators.Nonnegative(p.Child("ordinals", "start"), spec.Ordinals.Start)...)
	}
	errs = append(errs, validateSelector(p.Child("selector"), spec.Selector, "statefulset")...)
	return append(errs, validateStatefulTemplate(r, p, s, old)...)
}

func validateStatefulTemplate(r *resource.RequestContext, p *field.Path, s, old *appsv1.StatefulSet) field.ErrorList {
	template := withClaims(s)
	selector, err := metav1.LabelSelectorAsSelector(s.Spec.Selector)
	if err != nil {
		errs := field.ErrorList{field.Invalid(p.Child("selector"), s.Spec.Selector, "")}
		return append(errs, validateTemplateEnding(p.Child("template", "spec"), &template.Spec, "StatefulSet")...)
	}
	errs := field.ErrorList{}
	if !selector.Empty() {
		errs = validateMatch(p.Child("template"), selector, template)
	}
	at := p.Child("template")
	errs = append(errs, metav1validation.ValidateLabels(template.Labels, at.Child("labels"))...)
	errs = append(errs, validation.ValidateAnnotations(template.Annotations, at.Child("annotations"))...)
	return append(errs, validateTemplate(r, at, template, statefulSetTemplate(old), "StatefulSet")...)
}

// withClaims returns the template with the volumes that the pods get from
// their claims.
func withClaims(s *appsv1.StatefulSet) *corev1.PodTemplateSpec {
	if len(s.Spec.VolumeClaimTemplates) == 0 {
		return &s.Spec.Template
	}
	template := s.Spec.Template.DeepCopy()
	names := sets.New[string]()
	for i := range template.Spec.Volumes {
		names.Insert(template.Spec.Volumes[i].Name)
	}
	for i := range s.Spec.VolumeClaimTemplates {
		name := s.Spec.VolumeClaimTemplates[i].Name
		if names.Has(name) {
			continue
		}
		names.Insert(name)
		claim := corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}
		template.Spec.Volumes = append(template.Spec.Volumes, corev1.Volume{
			Name: name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &claim},
		})
	}
	return template
}

// validateIdentity checks the immutable fields of a StatefulSet.
func validateIdentity(s *appsv1.StatefulSet) field.ErrorList {
	var errs field.ErrorList
	p := field.NewPath("spec")
	if s.Spec.ServiceName != "" {
		errs = append(errs, validators.Label(p.Child("serviceName"), s.Spec.ServiceName)...)
	}
	for i := range s.Spec.VolumeClaimTemplates {
		at := p.Child("volumeClaimTemplates").Index(i).Child("spec")
		errs = append(errs, volume.ValidateClaimSpec(&s.Spec.VolumeClaimTemplates[i].Spec, at)...)
	}
	return errs
}

func validateStatefulStrategy(p *field.Path, s *appsv1.StatefulSetUpdateStrategy) field.ErrorList {
	at := p.Child("rollingUpdate")
	switch s.Type {
	case "":
		return field.ErrorList{field.Required(p, "")}
	case appsv1.OnDeleteStatefulSetStrategyType:
		if s.RollingUpdate != nil {
			return field.ErrorList{field.Invalid(at, validators.Shown(s.RollingUpdate), "only allowed for updateStrategy 'RollingUpdate'")}
		}
	case appsv1.RollingUpdateStatefulSetStrategyType:
		if u := s.RollingUpdate; u != nil {
			errs := validators.NonnegativePointer(at.Child("partition"), u.Partition)
			errs = append(errs, validateShare(at.Child("maxUnavailable"), u.MaxUnavailable)...)
			if u.MaxUnavailable != nil && isNone(u.MaxUnavailable) {
				errs = append(errs, field.Invalid(at.Child("maxUnavailable"), *u.MaxUnavailable, "cannot be 0"))
			}
			return errs
		}
	default:
		return field.ErrorList{field.Invalid(p, validators.Shown(*s), "must be 'RollingUpdate' or 'OnDelete'")}
	}
	return nil
}

func validateStatefulSetUpdate(r *resource.RequestContext, s, old *appsv1.StatefulSet) field.ErrorList {
	errs := validateStatefulSet(r, s, old)
	kept := s.Spec.DeepCopy()
	kept.Replicas, kept.Ordinals, kept.Template = old.Spec.Replicas, old.Spec.Ordinals, old.Spec.Template
	kept.UpdateStrategy, kept.RevisionHistoryLimit = old.Spec.UpdateStrategy, old.Spec.RevisionHistoryLimit
	kept.MinReadySeconds = old.Spec.MinReadySeconds
	kept.PersistentVolumeClaimRetentionPolicy = old.Spec.PersistentVolumeClaimRetentionPolicy
	if !equality.Semantic.DeepEqual(kept, &old.Spec) {
		errs = append(errs, field.Forbidden(field.NewPath("spec"),
			"updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', "+
				"'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"))
	}
	return errs
}

func validateStatefulSetStatus(_ *resource.RequestContext, set, old *appsv1.StatefulSet) field.ErrorList {
	p, s := field.NewPath("status"), &set.Status
	errs := validateCounts(p, count{"replicas", s.Replicas}, count{"readyReplicas", s.ReadyReplicas},
		count{"currentReplicas", s.CurrentReplicas}, count{"updatedReplicas", s.UpdatedReplicas},
		count{"availableReplicas", s.AvailableReplicas})
	errs = append(errs, validators.Nonnegative(p.Child("observedGeneration"), s.ObservedGeneration)...)
	errs = append(errs, validators.NonnegativePointer(p.Child("collisionCount"), s.CollisionCount)...)
	errs = append(errs, validateAtMost(p, count{"readyReplicas", s.ReadyReplicas}, s.Replicas, "status.replicas")...)
	errs = append(errs, validateAtMost(p, count{"currentReplicas", s.CurrentReplicas}, s.Replicas, "status.replicas")...)
	errs = append(errs, validateAtMost(p, count{"updatedReplicas", s.UpdatedReplicas}, s.Replicas, "status.replicas")...)
	errs = append(errs, validateAtMost(p, count{"availableReplicas", s.AvailableReplicas}, s.Replicas, "status.replicas")...)
	errs = append(errs, validateAtMost(p, count{"availableReplicas", s.AvailableReplicas}, s.ReadyReplicas, "status.readyReplicas")...)
	return append(errs, validateCollisions(p, s.CollisionCount, old.Status.CollisionCount)...)
}
