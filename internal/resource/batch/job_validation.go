package batch

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core/pod"
	"github.com/coracle-io/coracle/internal/resource/declarative"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// Limits of indexed jobs, which limit the size of their status.
const (
	manyCompletions       = 100_000
	maxIndexedParallelism = 100_000
	maxParallelismOfMany  = 10_000
	maxFailedOfMany       = 10_000
	maxFailedIndexes      = 100_000
	maxManagedBy          = 63
)

// validateJob checks a new job.
func validateJob(r *resource.RequestContext, j *batchv1.Job) field.ErrorList {
	p := field.NewPath("spec")
	errs := validateOwnPods(j)
	errs = append(errs, validateJobSpec(r, p, &j.Spec, nil)...)
	errs = append(errs, validateJobSelector(p, &j.Spec, nil)...)
	errs = append(errs, validateScheduling(declarative.Create(), p.Child("scheduling"), j.Spec.Scheduling, nil)...)
	return append(errs, validateHostnames(j)...)
}

// validateHostnames checks that the pods of an indexed job can have host names.
func validateHostnames(j *batchv1.Job) field.ErrorList {
	if ptr.Deref(j.Spec.CompletionMode, "") != batchv1.IndexedCompletion || ptr.Deref(j.Spec.Completions, 0) <= 0 {
		return nil
	}
	last := fmt.Sprintf("%s-%d", j.Name, *j.Spec.Completions-1)
	if len(validation.NameIsDNSLabel(last, false)) == 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata", "name"), j.Name, "will not able to create pod with invalid DNS label: "+last)}
}

func validateJobSpec(r *resource.RequestContext, p *field.Path, s, old *batchv1.JobSpec) field.ErrorList {
	errs := validators.NonnegativePointer(p.Child("parallelism"), s.Parallelism)
	errs = append(errs, validators.NonnegativePointer(p.Child("completions"), s.Completions)...)
	errs = append(errs, validators.NonnegativePointer(p.Child("activeDeadlineSeconds"), s.ActiveDeadlineSeconds)...)
	errs = append(errs, validators.NonnegativePointer(p.Child("backoffLimit"), s.BackoffLimit)...)
	errs = append(errs, validators.NonnegativePointer(p.Child("ttlSecondsAfterFinished"), s.TTLSecondsAfterFinished)...)
	errs = append(errs, validators.NonnegativePointer(p.Child("backoffLimitPerIndex"), s.BackoffLimitPerIndex)...)
	errs = append(errs, validators.NonnegativePointer(p.Child("maxFailedIndexes"), s.MaxFailedIndexes)...)
	if s.MaxFailedIndexes != nil && s.BackoffLimitPerIndex == nil {
		errs = append(errs, field.Required(p.Child("backoffLimitPerIndex"), "when maxFailedIndexes is specified"))
	}
	if s.ManagedBy != nil {
		at := p.Child("managedBy")
		errs = append(errs, utilvalidation.IsDomainPrefixedPath(at, *s.ManagedBy)...)
		if len(*s.ManagedBy) > maxManagedBy {
			errs = append(errs, field.TooLong(at, *s.ManagedBy, maxManagedBy))
		}
	}
	if s.CompletionMode != nil {
		errs = append(errs, validators.OneOf(p.Child("completionMode"), *s.CompletionMode, batchv1.NonIndexedCompletion, batchv1.IndexedCompletion)...)
	}
	if ptr.Deref(s.CompletionMode, "") == batchv1.IndexedCompletion {
		errs = append(errs, validateIndexed(p, s)...)
	} else if ptr.Deref(s.CompletionMode, batchv1.NonIndexedCompletion) == batchv1.NonIndexedCompletion {
		for _, limit := range []struct {
			name  string
			value *int32
		}{{"backoffLimitPerIndex", s.BackoffLimitPerIndex}, {"maxFailedIndexes", s.MaxFailedIndexes}} {
			if limit.value != nil {
				errs = append(errs, field.Invalid(p.Child(limit.name), *limit.value, "requires indexed completion mode"))
			}
		}
	}
	if s.PodFailurePolicy != nil {
		errs = append(errs, validatePodFailurePolicy(p.Child("podFailurePolicy"), s)...)
	}
	if s.SuccessPolicy != nil {
		if ptr.Deref(s.CompletionMode, "") != batchv1.IndexedCompletion {
			errs = append(errs, field.Invalid(p.Child("successPolicy"), validators.Shown(s.SuccessPolicy), "requires indexed completion mode"))
		} else {
			errs = append(errs, validateSuccessPolicy(p.Child("successPolicy"), s)...)
		}
	}
	errs = append(errs, validateReplacement(p.Child("podReplacementPolicy"), s)...)
	return append(errs, validateJobTemplateSpec(r, p.Child("template"), s, old)...)
}

func validateIndexed(p *field.Path, s *batchv1.JobSpec) field.ErrorList {
	var errs field.ErrorList
	if s.Completions == nil {
		errs = append(errs, field.Required(p.Child("completions"), "when completion mode is Indexed"))
	}
	completions, parallelism, failed := ptr.Deref(s.Completions, 0), ptr.Deref(s.Parallelism, 0), ptr.Deref(s.MaxFailedIndexes, 0)
	at, most := p.Child("maxFailedIndexes"), "must be less than or equal to %d"
	if parallelism > maxIndexedParallelism {
		errs = append(errs, field.Invalid(p.Child("parallelism"), parallelism, fmt.Sprintf(most+" when completion mode is Indexed", maxIndexedParallelism)))
	}
	if s.Completions != nil && s.MaxFailedIndexes != nil && failed > completions {
		errs = append(errs, field.Invalid(at, failed, "must be less than or equal to completions"))
	}
	if failed > maxFailedIndexes {
		errs = append(errs, field.Invalid(at, failed, fmt.Sprintf(most, maxFailedIndexes)))
	}
	if s.BackoffLimitPerIndex == nil || completions <= manyCompletions {
		return errs
	}
	most += " when completions are above %d and used with backoff limit per index"
	if s.MaxFailedIndexes == nil {
		errs = append(errs, field.Required(at, fmt.Sprintf("must be specified when completions is above %d", manyCompletions)))
	}
	if parallelism > maxParallelismOfMany {
		errs = append(errs, field.Invalid(p.Child("parallelism"), parallelism, fmt.Sprintf(most, maxParallelismOfMany, manyCompletions)))
	}
	if failed > maxFailedOfMany {
		errs = append(errs, field.Invalid(at, failed, fmt.Sprintf(most, maxFailedOfMany, manyCompletions)))
	}
	return errs
}

func validateReplacement(p *field.Path, s *batchv1.JobSpec) field.ErrorList {
	switch {
	case s.PodReplacementPolicy == nil:
		return nil
	case s.PodFailurePolicy != nil:
		return validators.OneOf(p, *s.PodReplacementPolicy, batchv1.Failed)
	default:
		return validators.OneOf(p, *s.PodReplacementPolicy, batchv1.Failed, batchv1.TerminatingOrFailed)
	}
}

func validateJobTemplateSpec(r *resource.RequestContext, p *field.Path, s, old *batchv1.JobSpec) field.ErrorList {
	var before *corev1.PodTemplateSpec
	if old != nil {
		before = &old.Template
	}
	errs := pod.ValidateTemplate(&s.Template, p, pod.TemplateOptions(r, before))
	at := p.Child("spec", "restartPolicy")
	switch policy := s.Template.Spec.RestartPolicy; {
	case policy == "" || policy == corev1.RestartPolicyAlways:
		errs = append(errs, field.Required(at, `valid values: "OnFailure", "Never"`))
	case policy != corev1.RestartPolicyOnFailure && policy != corev1.RestartPolicyNever:
		errs = append(errs, field.NotSupported(at, policy, []corev1.RestartPolicy{corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever}))
	case policy != corev1.RestartPolicyNever && s.PodFailurePolicy != nil:
		errs = append(errs, field.Invalid(at, policy, `only "Never" is supported when podFailurePolicy is specified`))
	}
	return errs
}

func validateJobUpdate(r *resource.RequestContext, j, old *batchv1.Job) field.ErrorList {
	p, s, before := field.NewPath("spec"), &j.Spec, &old.Spec
	errs := validateJobSpec(r, p, s, before)
	errs = append(errs, validateJobSelector(p, s, before)...)
	errs = append(errs, validateCompletionsUpdate(p.Child("completions"), s, before)...)
	errs = append(errs, validators.Immutable(p.Child("selector"), s.Selector, before.Selector)...)
	errs = append(errs, validateTemplateUpdate(r.Features, p.Child("template"), j, old)...)
	errs = append(errs, validators.Immutable(p.Child("completionMode"), s.CompletionMode, before.CompletionMode)...)
	if !equality.Semantic.DeepEqual(s.PodFailurePolicy, before.PodFailurePolicy) {
		errs = append(errs, field.Invalid(p.Child("podFailurePolicy"), validators.Shown(s.PodFailurePolicy), validation.FieldImmutableErrorMsg))
	}
	errs = append(errs, validators.Immutable(p.Child("backoffLimitPerIndex"), s.BackoffLimitPerIndex, before.BackoffLimitPerIndex)...)
	errs = append(errs, validators.Immutable(p.Child("managedBy"), s.ManagedBy, before.ManagedBy)...)
	if !equality.Semantic.DeepEqual(s.SuccessPolicy, before.SuccessPolicy) {
		errs = append(errs, field.Invalid(p.Child("successPolicy"), validators.Shown(s.SuccessPolicy), validation.FieldImmutableErrorMsg))
	}
	errs = append(errs, validateScheduling(declarative.Update(), p.Child("scheduling"), s.Scheduling, before.Scheduling)...)
	return append(errs, validateHostnames(j)...)
}

// validateCompletionsUpdate allows an indexed job to be scaled: completions
// may change together with parallelism (KEP-3715).
func validateCompletionsUpdate(p *field.Path, s, old *batchv1.JobSpec) field.ErrorList {
	if ptr.Deref(s.CompletionMode, "") != batchv1.IndexedCompletion {
		return validators.Immutable(p, s.Completions, old.Completions)
	}
	if s.Completions == nil || old.Completions == nil {
		return nil
	}
	if *s.Completions == *old.Completions {
		return nil
	}
	if s.Parallelism != nil && *s.Completions == *s.Parallelism {
		return nil
	}
	return field.ErrorList{field.Invalid(p, *s.Completions, "can only be modified in tandem with spec.parallelism")}
}

// specWarnings returns the warnings about a job's spec, if an update changes
// it.
func specWarnings(p *field.Path, s, old *batchv1.JobSpec) []string {
	var before *corev1.PodTemplateSpec
	if old != nil {
		if resource.Equal(s, old) {
			return nil
		}
		before = &old.Template
	}
	return append(pod.TemplateWarnings(&s.Template, before, p.Child("template")), indexWarnings(p, s)...)
}

// indexWarnings warns of a job that can have more failed indexes than its
// status can hold.
func indexWarnings(p *field.Path, s *batchv1.JobSpec) []string {
	if ptr.Deref(s.CompletionMode, "") != batchv1.IndexedCompletion ||
		ptr.Deref(s.Completions, 0) <= manyCompletions || ptr.Deref(s.Parallelism, 0) <= maxParallelismOfMany {
		return nil
	}
	return []string{p.String() + ": In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, " +
		"Kubernetes might not be able to track completedIndexes when a big number of indexes fail"}
}
