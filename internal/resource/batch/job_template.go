package batch

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// validateTemplateUpdate keeps a job's template. Two kinds of fields can
// change while the job is suspended and has no pods: the directives for
// scheduling (KEP-2926) and the containers' resources (KEP-5440).
func validateTemplateUpdate(features *feature.Set, p *field.Path, j, old *batchv1.Job) field.ErrorList {
	template, before := &j.Spec.Template, old.Spec.Template.DeepCopy()
	directives, resources := mutableTemplateFields(features, old)
	if directives {
		before.Labels, before.Annotations = template.Labels, template.Annotations
		copySchedulingDirectives(&before.Spec, &template.Spec)
	}
	if resources {
		copyContainerResources(before.Spec.Containers, template.Spec.Containers)
		copyContainerResources(before.Spec.InitContainers, template.Spec.InitContainers)
		if !equality.Semantic.DeepEqual(template.Spec, before.Spec) {
			return field.ErrorList{field.Invalid(p.Child("spec"), validators.Shown(template.Spec), validation.FieldImmutableErrorMsg)}
		}
		return nil
	}
	if !equality.Semantic.DeepEqual(template, before) {
		return field.ErrorList{field.Invalid(p, validators.Shown(*template), validation.FieldImmutableErrorMsg)}
	}
	return nil
}

// mutableTemplateFields reports which fields of a job's template can change.
func mutableTemplateFields(features *feature.Set, j *batchv1.Job) (directives, resources bool) {
	if !ptr.Deref(j.Spec.Suspend, false) {
		return false, false
	}
	fresh := j.Status.StartTime == nil
	idle := j.Status.Active == 0 && (fresh || hasCondition(j, batchv1.JobSuspended))
	directives = fresh
	if features.Enabled(feature.MutableSchedulingDirectivesForSuspendedJobs) {
		directives = idle
	}
	return directives, idle && features.Enabled(feature.MutablePodResourcesForSuspendedJobs)
}

// copySchedulingDirectives copies the scheduling directives of next that are
// about nodes. The directives about other pods stay.
func copySchedulingDirectives(s, next *corev1.PodSpec) {
	s.NodeSelector, s.Tolerations, s.SchedulingGates = next.NodeSelector, next.Tolerations, next.SchedulingGates
	switch {
	case next.Affinity != nil && s.Affinity == nil:
		s.Affinity = &corev1.Affinity{NodeAffinity: next.Affinity.NodeAffinity}
	case next.Affinity != nil:
		s.Affinity.NodeAffinity = next.Affinity.NodeAffinity
	case s.Affinity != nil && s.Affinity.PodAffinity == nil && s.Affinity.PodAntiAffinity == nil:
		s.Affinity = nil
	}
}

// copyContainerResources copies the resources of containers from next if both
// lists have the same names.
func copyContainerResources(containers, next []corev1.Container) {
	if len(containers) != len(next) {
		return
	}
	for i := range containers {
		if containers[i].Name == next[i].Name {
			containers[i].Resources = next[i].Resources
		}
	}
}
