package batch

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource/rule"
)

// validateTemplateUpdate fixes a job's template. While the job is suspended
// and has no pods, the directives for scheduling them (KEP-2926) and their
// containers' resources (KEP-5440) can still be changed.
func validateTemplateUpdate(features *feature.Set, p *field.Path, j, old *batchv1.Job) field.ErrorList {
	template, before := &j.Spec.Template, old.Spec.Template.DeepCopy()
	directives, resources := mutableOfTemplate(features, old)
	if directives {
		before.Labels, before.Annotations = template.Labels, template.Annotations
		adoptDirectives(&before.Spec, &template.Spec)
	}
	if resources {
		adoptResources(before.Spec.Containers, template.Spec.Containers)
		adoptResources(before.Spec.InitContainers, template.Spec.InitContainers)
		if !equality.Semantic.DeepEqual(template.Spec, before.Spec) {
			return field.ErrorList{field.Invalid(p.Child("spec"), rule.Shown(template.Spec), validation.FieldImmutableErrorMsg)}
		}
		return nil
	}
	if !equality.Semantic.DeepEqual(template, before) {
		return field.ErrorList{field.Invalid(p, rule.Shown(*template), validation.FieldImmutableErrorMsg)}
	}
	return nil
}

// mutableOfTemplate tells what of a job's template may change.
func mutableOfTemplate(features *feature.Set, j *batchv1.Job) (directives, resources bool) {
	if !ptr.Deref(j.Spec.Suspend, false) {
		return false, false
	}
	fresh := j.Status.StartTime == nil
	idle := j.Status.Active == 0 && (fresh || hasCondition(j, batchv1.JobSuspended))
	directives = fresh
	if features.Enabled("MutableSchedulingDirectivesForSuspendedJobs") {
		directives = idle
	}
	return directives, idle && features.Enabled("MutablePodResourcesForSuspendedJobs")
}

// adoptDirectives makes a pod's scheduling what next says, as far as it is
// about nodes: where other pods are is not.
func adoptDirectives(s, next *corev1.PodSpec) {
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

// adoptResources gives containers the resources of those of next, if they are
// as many, by the same names.
func adoptResources(containers, next []corev1.Container) {
	if len(containers) != len(next) {
		return
	}
	for i := range containers {
		if containers[i].Name == next[i].Name {
			containers[i].Resources = next[i].Resources
		}
	}
}
