package apps

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core/volume"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// validateStatefulSet checks a StatefulSet. What an update cannot change is checked only
// without old.
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
	if old == nil {
		errs = append(errs, validateClaimTemplates(p.Child("volumeClaimTemplates"), spec.VolumeClaimTemplates)...)
	}
	errs = append(errs, validators.NonnegativePointer(p.Child("replicas"), spec.Replicas)...)
	errs = append(errs, validators.Nonnegative(p.Child("minReadySeconds"), spec.MinReadySeconds)...)
	if spec.Ordinals != nil {
		errs = append(errs, validators.Nonnegative(p.Child("ordinals", "start"), spec.Ordinals.Start)...)
	}
	if old == nil && spec.ServiceName != "" {
		errs = append(errs, validators.Label(p.Child("serviceName"), spec.ServiceName)...)
	}
	errs = append(errs, validateSelector(p.Child("selector"), spec.Selector, "statefulset")...)
	return append(errs, validateStatefulTemplate(r, p, s, old)...)
}

func validateClaimTemplates(p *field.Path, templates []corev1.PersistentVolumeClaim) field.ErrorList {
	var errs field.ErrorList
	for i := range templates {
		errs = append(errs, volume.ValidateClaimSpec(&templates[i].Spec, p.Index(i).Child("spec"))...)
	}
	return errs
}

func validateStatefulTemplate(r *resource.RequestContext, p *field.Path, s, old *appsv1.StatefulSet) field.ErrorList {
	template, at := completeTemplate(s), p.Child("template")
	selector, err := metav1.LabelSelectorAsSelector(s.Spec.Selector)
	if err != nil {
		errs := field.ErrorList{field.Invalid(p.Child("selector"), s.Spec.Selector, "")}
		return append(errs, validateTemplateEnding(at.Child("spec"), &template.Spec, "StatefulSet")...)
	}
	errs := field.ErrorList{}
	if !selector.Empty() {
		errs = validateMatch(at, selector, template)
	}
	errs = append(errs, metav1validation.ValidateLabels(template.Labels, at.Child("labels"))...)
	errs = append(errs, validation.ValidateAnnotations(template.Annotations, at.Child("annotations"))...)
	found := validateTemplate(r, at, template, statefulSetTemplate(old), "StatefulSet")
	if len(found) > 0 && old != nil && old != s && len(validateStatefulSet(r, old, old)) > 0 {
		found = validateTemplateEnding(at.Child("spec"), &template.Spec, "StatefulSet") // older versions accepted more
	}
	return append(errs, found...)
}

// completeTemplate returns the template with the volumes that the pods get from their
// claims, in the place of those with the same names, and without the host name and
// subdomain, which the controller replaces.
func completeTemplate(s *appsv1.StatefulSet) *corev1.PodTemplateSpec {
	template := s.Spec.Template.DeepCopy()
	template.Spec.Hostname, template.Spec.Subdomain, template.Spec.Volumes = "", "", nil
	names := sets.New[string]()
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
	for i := range s.Spec.Template.Spec.Volumes {
		if v := &s.Spec.Template.Spec.Volumes[i]; !names.Has(v.Name) {
			template.Spec.Volumes = append(template.Spec.Volumes, *v)
		}
	}
	return template
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
	p, is, was := field.NewPath("spec"), &s.Spec, &old.Spec
	errs := validateStatefulSet(r, s, old)
	errs = append(errs, validators.Immutable(p.Child("selector"), is.Selector, was.Selector)...)
	if !resource.Equal(is.VolumeClaimTemplates, was.VolumeClaimTemplates) {
		errs = append(errs, field.Invalid(p.Child("volumeClaimTemplates"), validators.Shown(is.VolumeClaimTemplates), validation.FieldImmutableErrorMsg))
	}
	errs = append(errs, validators.Immutable(p.Child("serviceName"), is.ServiceName, was.ServiceName)...)
	return append(errs, validators.Immutable(p.Child("podManagementPolicy"), is.PodManagementPolicy, was.PodManagementPolicy)...)
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
