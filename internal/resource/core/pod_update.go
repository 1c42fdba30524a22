package core

import (
	"fmt"
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
)

const podImmutable = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"

// validatePodUpdate lets images, the deadline, added tolerations and what
// scheduling gates open change; all else of a pod's spec is fixed.
func validatePodUpdate(_ *resource.Request, p, old *corev1.Pod) field.ErrorList {
	spec := field.NewPath("spec")
	options := PodTemplateOptions(podAsTemplate(p), podAsTemplate(old))
	errs := resource.ValidateNamedMetadata(p, true, PodName)
	errs = append(errs, validatePodBody(p, options)...)
	const fixed = "pod updates may not add or remove containers"
	if len(p.Spec.Containers) != len(old.Spec.Containers) {
		return append(errs, field.Forbidden(spec.Child("containers"), fixed))
	}
	errs = append(errs, validateImages(p.Spec.Containers, spec.Child("containers"))...)
	if len(p.Spec.InitContainers) != len(old.Spec.InitContainers) {
		return append(errs, field.Forbidden(spec.Child("initContainers"), fixed))
	}
	errs = append(errs, validateImages(p.Spec.InitContainers, spec.Child("initContainers"))...)
	errs = append(errs, validateDeadlineChange(p, old, spec)...)
	errs = append(errs, validateGatesRemoved(p, old, spec)...)
	errs = append(errs, validateTolerationsAdded(p.Spec.Tolerations, old.Spec.Tolerations, spec.Child("tolerations"))...)
	if allowed := withAllowedChanges(&p.Spec, old); !equal(*allowed, old.Spec) {
		errs = append(errs, field.Forbidden(spec, podImmutable+"\n"+changes(old.Spec, *allowed)))
	}
	return errs
}

func validateImages(containers []corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range containers {
		at := path.Index(i).Child("image")
		errs = append(errs, required(containers[i].Image, at)...)
		if containers[i].Image != strings.TrimSpace(containers[i].Image) {
			errs = append(errs, field.Invalid(at, containers[i].Image, "must not have leading or trailing whitespace"))
		}
	}
	return errs
}

func validateDeadlineChange(p, old *corev1.Pod, path *field.Path) field.ErrorList {
	at := path.Child("activeDeadlineSeconds")
	is, was := p.Spec.ActiveDeadlineSeconds, old.Spec.ActiveDeadlineSeconds
	if is == nil {
		if was != nil {
			return field.ErrorList{field.Invalid(at, is, "must not update from a positive integer to nil value")}
		}
		return nil
	}
	if *is < 0 || *is > math.MaxInt32 {
		return field.ErrorList{field.Invalid(at, *is, fmt.Sprintf("must be between %d and %d, inclusive", 0, math.MaxInt32))}
	}
	if was != nil && *was < *is {
		return field.ErrorList{field.Invalid(at, *is, "must be less than or equal to previous value")}
	}
	return nil
}

// validateGatesRemoved: scheduling gates can be taken away but not put up.
func validateGatesRemoved(p, old *corev1.Pod, path *field.Path) field.ErrorList {
	had := sets.New[string]()
	for _, gate := range old.Spec.SchedulingGates {
		had.Insert(gate.Name)
	}
	var added []string
	for _, gate := range p.Spec.SchedulingGates {
		if !had.Has(gate.Name) {
			added = append(added, gate.Name)
		}
	}
	if len(added) == 0 {
		return nil
	}
	return field.ErrorList{field.Forbidden(path.Child("schedulingGates").Child(fmt.Sprint(added)), "only deletion is allowed, but found new scheduling gates")}
}

// validateTolerationsAdded: a pod may come to tolerate more, and for another
// time, but not less.
func validateTolerationsAdded(is, was []corev1.Toleration, path *field.Path) field.ErrorList {
	without := func(t corev1.Toleration) corev1.Toleration {
		t.TolerationSeconds = nil
		return t
	}
	now := map[corev1.Toleration]bool{}
	for _, t := range is {
		now[without(t)] = true
	}
	for _, t := range was {
		if !now[without(t)] {
			return field.ErrorList{field.Forbidden(path, "existing toleration can not be modified except its tolerationSeconds")}
		}
	}
	return validateTolerations(is, path)
}

// withAllowedChanges is the new spec with everything that may change put back
// to what it was.
func withAllowedChanges(spec *corev1.PodSpec, old *corev1.Pod) *corev1.PodSpec {
	munged, was := spec.DeepCopy(), &old.Spec
	for i := range munged.Containers {
		munged.Containers[i].Image = was.Containers[i].Image
	}
	for i := range munged.InitContainers {
		munged.InitContainers[i].Image = was.InitContainers[i].Image
	}
	munged.ActiveDeadlineSeconds = was.ActiveDeadlineSeconds
	munged.SchedulingGates = was.SchedulingGates
	munged.Tolerations = was.Tolerations
	if grace := was.TerminationGracePeriodSeconds; grace != nil && *grace < 0 &&
		spec.TerminationGracePeriodSeconds != nil && *spec.TerminationGracePeriodSeconds == 1 {
		munged.TerminationGracePeriodSeconds = grace
	}
	if len(was.SchedulingGates) > 0 {
		allowNarrowerScheduling(munged, was)
	}
	return munged
}

// allowNarrowerScheduling lets a gated pod's node selection become stricter.
func allowNarrowerScheduling(munged, was *corev1.PodSpec) {
	keeps := len(munged.NodeSelector) >= len(was.NodeSelector)
	for key, value := range was.NodeSelector {
		if munged.NodeSelector[key] != value {
			keeps = false
		}
	}
	if keeps {
		munged.NodeSelector = was.NodeSelector
	}
	if narrowerAffinity(munged.Affinity, was.Affinity) {
		munged.Affinity = was.Affinity
	}
}

// narrowerAffinity reports whether is demands at least what was did of nodes,
// and the same of pods.
func narrowerAffinity(is, was *corev1.Affinity) bool {
	if is == nil {
		return was == nil
	}
	if was == nil {
		was = &corev1.Affinity{}
	}
	if !equal(is.PodAffinity, was.PodAffinity) || !equal(is.PodAntiAffinity, was.PodAntiAffinity) {
		return false
	}
	if was.NodeAffinity == nil || was.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return true
	}
	if is.NodeAffinity == nil || is.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return false
	}
	terms := is.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	old := was.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	if len(terms) != len(old) {
		return len(old) == 0
	}
	for i := range old {
		if len(terms[i].MatchExpressions) < len(old[i].MatchExpressions) || len(terms[i].MatchFields) < len(old[i].MatchFields) ||
			!equal(terms[i].MatchExpressions[:len(old[i].MatchExpressions)], old[i].MatchExpressions) ||
			!equal(terms[i].MatchFields[:len(old[i].MatchFields)], old[i].MatchFields) {
			return false
		}
	}
	return true
}
