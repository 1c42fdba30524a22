package batch

import (
	"fmt"
	"math"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/cell"
	"github.com/coracle-io/coracle/internal/resource/core"
	"github.com/coracle-io/coracle/internal/resource/fill"
	"github.com/coracle-io/coracle/internal/resource/rule"
)

// Jobs is the resource jobs.
func Jobs() *resource.Resource {
	return resource.Define(resource.Definition[batchv1.Job, *batchv1.Job]{
		GroupVersion:       batchv1.SchemeGroupVersion,
		Kind:               "Job",
		Plural:             "jobs",
		Categories:         []string{"all"},
		DefaultPropagation: metav1.DeletePropagationOrphan,
		Default:            defaultJob,
		Spec:               func(j *batchv1.Job) any { return j.Spec },
		CopyStatus:         func(j, from *batchv1.Job) { j.Status = from.Status },
		PrepareForCreate:   prepareJob,
		PrepareForUpdate: func(r *resource.Request, j, old *batchv1.Job) {
			core.DropDisabledPodTemplateFields(r.Features, &j.Spec.Template, &old.Spec.Template)
			feature.Drop(r.Features, jobFields, &j.Spec, &old.Spec)
		},
		Validate:             func(r *resource.Request, j *batchv1.Job) field.ErrorList { return validateJob(r, j, nil) },
		UpdateValidatesAlone: true,
		ValidateUpdate:       validateJobUpdate,
		ValidateStatus:       validateJobStatus,
		Warnings: func(_ *resource.Request, j, old *batchv1.Job) []string {
			var before *corev1.PodTemplateSpec
			if old != nil {
				before = &old.Spec.Template
			}
			var warnings []string
			if old == nil {
				warnings = rule.PodNameWarnings(j.Name)
			}
			warnings = append(warnings, core.PodTemplateWarnings(&j.Spec.Template, before, field.NewPath("spec", "template"))...)
			return append(warnings, indexWarnings(field.NewPath("spec"), &j.Spec)...)
		},
		Columns: append(append([]metav1.TableColumnDefinition{
			resource.NameColumn(),
			resource.Column("Status", "string", "Status of the job."),
			resource.Column("Completions", "string", batchv1.JobStatus{}.SwaggerDoc()["succeeded"]),
			resource.Column("Duration", "string", "Time required to complete the job."),
			resource.AgeColumn(),
		}, cell.ContainersColumns()...), cell.SelectorColumn(batchv1.JobSpec{}.SwaggerDoc()["selector"])),
		Row: jobRow,
		SelectableFields: func(j *batchv1.Job) fields.Set {
			return fields.Set{"status.successful": strconv.Itoa(int(j.Status.Succeeded))}
		},
		Fields: []string{"status.successful"},
	})
}

func defaultJob(j *batchv1.Job) {
	s := &j.Spec
	core.DefaultPodTemplateSpec(&s.Template)
	if s.Completions == nil && s.Parallelism == nil {
		fill.Nil(&s.Completions, 1)
	}
	fill.Nil(&s.Parallelism, 1)
	if s.BackoffLimitPerIndex != nil {
		fill.Nil(&s.BackoffLimit, math.MaxInt32)
	}
	fill.Nil(&s.BackoffLimit, 6)
	if len(j.Labels) == 0 {
		j.Labels = s.Template.Labels
	}
	fill.Nil(&s.CompletionMode, batchv1.NonIndexedCompletion)
	fill.Nil(&s.Suspend, false)
	fill.Nil(&s.ManualSelector, false)
	defaultPodFailurePolicy(s.PodFailurePolicy)
	if s.PodFailurePolicy != nil {
		fill.Nil(&s.PodReplacementPolicy, batchv1.Failed)
	}
	fill.Nil(&s.PodReplacementPolicy, batchv1.TerminatingOrFailed)
}

func defaultPodFailurePolicy(p *batchv1.PodFailurePolicy) {
	if p == nil {
		return
	}
	for i := range p.Rules {
		for k := range p.Rules[i].OnPodConditions {
			fill.Zero(&p.Rules[i].OnPodConditions[k].Status, corev1.ConditionTrue)
		}
	}
}

func jobRow(j *batchv1.Job, now time.Time) []any {
	names, images := cell.Containers(j.Spec.Template.Spec.Containers)
	return []any{
		j.Name, jobState(j), jobCompletions(j), jobDuration(j, now), resource.Age(j.CreationTimestamp, now),
		names, images, metav1.FormatLabelSelector(j.Spec.Selector),
	}
}

func jobCompletions(j *batchv1.Job) string {
	if j.Spec.Completions != nil {
		return fmt.Sprintf("%d/%d", j.Status.Succeeded, *j.Spec.Completions)
	}
	if j.Spec.Parallelism != nil && *j.Spec.Parallelism > 1 {
		return fmt.Sprintf("%d/1 of %d", j.Status.Succeeded, *j.Spec.Parallelism)
	}
	return fmt.Sprintf("%d/1", j.Status.Succeeded)
}

func jobDuration(j *batchv1.Job, now time.Time) string {
	switch {
	case j.Status.StartTime == nil:
		return ""
	case j.Status.CompletionTime == nil:
		return duration.HumanDuration(now.Sub(j.Status.StartTime.Time))
	default:
		return duration.HumanDuration(j.Status.CompletionTime.Sub(j.Status.StartTime.Time))
	}
}

// jobState names the most telling condition.
func jobState(j *batchv1.Job) string {
	switch {
	case hasCondition(j, batchv1.JobComplete):
		return "Complete"
	case hasCondition(j, batchv1.JobFailed):
		return "Failed"
	case j.DeletionTimestamp != nil:
		return "Terminating"
	case hasCondition(j, batchv1.JobSuspended):
		return "Suspended"
	case hasCondition(j, batchv1.JobFailureTarget):
		return "FailureTarget"
	case hasCondition(j, batchv1.JobSuccessCriteriaMet):
		return "SuccessCriteriaMet"
	default:
		return "Running"
	}
}

func hasCondition(j *batchv1.Job, kind batchv1.JobConditionType) bool {
	for i := range j.Status.Conditions {
		if j.Status.Conditions[i].Type == kind {
			return j.Status.Conditions[i].Status == corev1.ConditionTrue
		}
	}
	return false
}
