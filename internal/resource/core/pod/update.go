package pod

import (
	"fmt"
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

const immutableMessage = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"

// validateUpdate allows changes to images, the deadline, added tolerations,
// and to what scheduling gates allow. All other fields of a pod's spec are
// immutable.
func validateUpdate(r *resource.RequestContext, p, old *corev1.Pod) field.ErrorList {
	spec := field.NewPath("spec")
	options := TemplateOptions(r, asTemplate(old))
	errs := resource.ValidateNamedMetadata(p, true, ValidateName)
	if p.Generation == old.Generation { // the spec is the same as the stored one
		errs = append(errs, validateAnnotations(p.Annotations, &p.Spec, options, field.NewPath("metadata", "annotations"))...)
		return append(errs, validateAnnotationsUpdate(p, old, options)...)
	}
	errs = append(errs, validateBody(p, options)...)
	errs = append(errs, validateAnnotationsUpdate(p, old, options)...)
	const fixed = "pod updates may not add or remove containers"
	if len(p.Spec.Containers) != len(old.Spec.Containers) {
		return append(errs, field.Forbidden(spec.Child("containers"), fixed))
	}
	errs = append(errs, validateImages(p.Spec.Containers, spec.Child("containers"))...)
	if len(p.Spec.InitContainers) != len(old.Spec.InitContainers) {
		return append(errs, field.Forbidden(spec.Child("initContainers"), fixed))
	}
	errs = append(errs, validateImages(p.Spec.InitContainers, spec.Child("initContainers"))...)
	deadline, final := validateActiveDeadlineUpdate(p, old, spec)
	errs = append(errs, deadline...)
	if final {
		return errs
	}
	errs = append(errs, validateSchedulingGatesUpdate(p, old, spec)...)
	errs = append(errs, validateTolerationsUpdate(p.Spec.Tolerations, old.Spec.Tolerations, spec.Child("tolerations"), options.NumericTolerations)...)
	allowed := withAllowedChanges(&p.Spec, old)
	if len(old.Spec.SchedulingGates) > 0 {
		errs = append(errs, allowNarrowerScheduling(allowed, &old.Spec, spec)...)
	}
	if !resource.Equal(*allowed, old.Spec) {
		errs = append(errs, field.Forbidden(spec, immutableMessage+"\n"+validators.Diff(old.Spec, *allowed)))
	}
	return errs
}

func validateImages(containers []corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range containers {
		at := path.Index(i).Child("image")
		errs = append(errs, validators.Required(at, containers[i].Image)...)
		if containers[i].Image != strings.TrimSpace(containers[i].Image) {
			errs = append(errs, field.Invalid(at, containers[i].Image, "must not have leading or trailing whitespace"))
		}
	}
	return errs
}

// validateActiveDeadlineUpdate allows only shorter deadlines. final means that
// the error ends the validation.
func validateActiveDeadlineUpdate(p, old *corev1.Pod, path *field.Path) (errs field.ErrorList, final bool) {
	at := path.Child("activeDeadlineSeconds")
	is, was := p.Spec.ActiveDeadlineSeconds, old.Spec.ActiveDeadlineSeconds
	switch {
	case is == nil && was != nil:
		return field.ErrorList{field.Invalid(at, is, "must not update from a positive integer to nil value")}, false
	case is == nil:
		return nil, false
	case *is < 0 || *is > math.MaxInt32:
		return field.ErrorList{field.Invalid(at, *is, utilvalidation.InclusiveRangeError(0, math.MaxInt32))}, true
	case was != nil && *was < *is:
		return field.ErrorList{field.Invalid(at, *is, "must be less than or equal to previous value")}, true
	}
	return nil, false
}

// validateSchedulingGatesUpdate allows scheduling gates to be removed but not
// added.
func validateSchedulingGatesUpdate(p, old *corev1.Pod, path *field.Path) field.ErrorList {
	had := sets.New[string]()
	for _, gate := range old.Spec.SchedulingGates {
		had.Insert(gate.Name)
	}
	var errs field.ErrorList
	for i, gate := range p.Spec.SchedulingGates {
		if !had.Has(gate.Name) {
			errs = append(errs, field.Forbidden(path.Child("schedulingGates").Index(i).Child("name"),
				fmt.Sprintf("only deletion is allowed, but found new scheduling gate '%s'", gate.Name)))
		}
	}
	return errs
}

// validateTolerationsUpdate allows tolerations to be added and
// tolerationSeconds to change.
func validateTolerationsUpdate(is, was []corev1.Toleration, path *field.Path, numeric bool) field.ErrorList {
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
	return ValidateTolerations(is, path, numeric)
}

// withAllowedChanges returns the new spec with every mutable field reset to
// the old value.
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
	return munged
}

// allowNarrowerScheduling allows a gated pod to select fewer nodes. It resets
// such changes in munged to the old values, and returns errors for those that
// select more nodes.
func allowNarrowerScheduling(munged, was *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for key, value := range was.NodeSelector {
		if now, ok := munged.NodeSelector[key]; !ok || now != value {
			errs = append(errs, field.Invalid(path.Child("nodeSelector"), munged.NodeSelector,
				"only additions to spec.nodeSelector are allowed (no mutations or deletions)"))
			break
		}
	}
	munged.NodeSelector = was.NodeSelector
	errs = append(errs, validateNarrowerAffinity(nodeAffinity(munged), nodeAffinity(was), path.Child("affinity", "nodeAffinity"))...)
	switch {
	case munged.Affinity == nil && nodeAffinity(was) != nil:
		munged.Affinity = &corev1.Affinity{NodeAffinity: was.Affinity.NodeAffinity}
	case munged.Affinity == nil:
	case was.Affinity == nil && munged.Affinity.PodAffinity == nil && munged.Affinity.PodAntiAffinity == nil:
		munged.Affinity = nil
	default:
		munged.Affinity.NodeAffinity = nodeAffinity(was)
	}
	return errs
}

func nodeAffinity(spec *corev1.PodSpec) *corev1.NodeAffinity {
	if spec.Affinity == nil {
		return nil
	}
	return spec.Affinity.NodeAffinity
}

func termsOf(a *corev1.NodeAffinity) []corev1.NodeSelectorTerm {
	if a == nil || a.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	return a.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
}

// validateNarrowerAffinity checks that each required term is still there. It
// may have more requirements.
func validateNarrowerAffinity(is, was *corev1.NodeAffinity, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	terms, old := termsOf(is), termsOf(was)
	at := path.Child(requiredTerms, "nodeSelectorTerms")
	if len(old) > 0 && len(terms) != len(old) {
		return field.ErrorList{field.Invalid(at, validators.Shown(terms), "no additions/deletions to non-empty NodeSelectorTerms list are allowed")}
	}
	for i := range old {
		if !onlyAdds(&terms[i], &old[i]) {
			errs = append(errs, field.Invalid(at.Index(i), validators.Shown(terms[i]), "only additions are allowed (no mutations or deletions)"))
		}
	}
	return errs
}

func onlyAdds(is, was *corev1.NodeSelectorTerm) bool {
	if len(was.MatchExpressions)+len(was.MatchFields) == 0 {
		return len(is.MatchExpressions)+len(is.MatchFields) == 0
	}
	starts := func(is, was []corev1.NodeSelectorRequirement) bool {
		return len(is) >= len(was) && (len(was) == 0 || resource.Equal(is[:len(was)], was))
	}
	return starts(is.MatchExpressions, was.MatchExpressions) && starts(is.MatchFields, was.MatchFields)
}
