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
	"github.com/coracle-io/coracle/internal/resource/core/pod"
	"github.com/coracle-io/coracle/internal/resource/defaults"
	"github.com/coracle-io/coracle/internal/resource/printers"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// Jobs is the resource jobs.
func Jobs() *resource.Resource {
	return resource.Define(resource.Definition[batchv1.Job, *batchv1.Job]{
		GroupVersion: batchv1.SchemeGroupVersion,
		Names:        resource.Names{Kind: "Job", Plural: "jobs", Categories: []string{"all"}},
		Default:      defaultJob,
		Spec:         func(j *batchv1.Job) any { return j.Spec },
		Status: resource.Status[*batchv1.Job]{
			Copy:     func(j, from *batchv1.Job) { j.Status = from.Status },
			Validate: validateJobStatus,
		},
		UpdateValidatesAlone: true,
		Strategy: resource.Strategy[*batchv1.Job]{
			PrepareForCreate: prepareJob,
			PrepareForUpdate: func(r *resource.RequestContext, j, old *batchv1.Job) {
				pod.DropDisabledTemplateFields(r.Features, &j.Spec.Template, &old.Spec.Template)
				feature.Drop(r.Features, jobFields(), &j.Spec, &old.Spec)
			},
			Validate:       validateJob,
			ValidateUpdate: validateJobUpdate,
			Warnings: func(_ *resource.RequestContext, j, old *batchv1.Job) []string {
				if old == nil {
					return append(validators.PodNameWarnings(j.Name), specWarnings(field.NewPath("spec"), &j.Spec, nil)...)
				}
				return specWarnings(field.NewPath("spec"), &j.Spec, &old.Spec)
			},
		},
		DeleteStrategy: resource.DeleteStrategy[*batchv1.Job]{DefaultPropagation: metav1.DeletePropagationOrphan},
		Table: resource.Table[*batchv1.Job]{
			Columns: append(append([]metav1.TableColumnDefinition{
				resource.NameColumn(),
				resource.Column("Status", "string", "Status of the job."),
				resource.Column("Completions", "string", batchv1.JobStatus{}.SwaggerDoc()["succeeded"]),
				resource.Column("Duration", "string", "Time required to complete the job."),
				resource.AgeColumn(),
			}, printers.ContainersColumns()...), printers.SelectorColumn(batchv1.JobSpec{}.SwaggerDoc()["selector"])),
			Row: jobRow,
		},
		FieldSelectors: resource.FieldSelectors[*batchv1.Job]{
			SelectableFields: func(j *batchv1.Job) fields.Set {
				return fields.Set{"status.successful": strconv.Itoa(int(j.Status.Succeeded))}
			},
			Fields: []string{"status.successful"},
		},
	})
}

func defaultJob(j *batchv1.Job) {
	s := &j.Spec
	pod.DefaultTemplate(&s.Template)
	if s.Completions == nil && s.Parallelism == nil {
		defaults.Nil(&s.Completions, 1)
	}
	defaults.Nil(&s.Parallelism, 1)
	if s.BackoffLimitPerIndex != nil {
		defaults.Nil(&s.BackoffLimit, math.MaxInt32)
	}
	defaults.Nil(&s.BackoffLimit, 6)
	if len(j.Labels) == 0 {
		j.Labels = s.Template.Labels
	}
	defaults.Nil(&s.CompletionMode, batchv1.NonIndexedCompletion)
	defaults.Nil(&s.Suspend, false)
	defaults.Nil(&s.ManualSelector, false)
	defaultPodFailurePolicy(s.PodFailurePolicy)
	if s.PodFailurePolicy != nil {
		defaults.Nil(&s.PodReplacementPolicy, batchv1.Failed)
	}
	defaults.Nil(&s.PodReplacementPolicy, batchv1.TerminatingOrFailed)
}

func defaultPodFailurePolicy(p *batchv1.PodFailurePolicy) {
	if p == nil {
		return
	}
	for i := range p.Rules {
		for k := range p.Rules[i].OnPodConditions {
			defaults.Zero(&p.Rules[i].OnPodConditions[k].Status, corev1.ConditionTrue)
		}
	}
}

func jobRow(j *batchv1.Job, now time.Time) []any {
	names, images := printers.Containers(j.Spec.Template.Spec.Containers)
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

// jobState returns the condition that a table shows as the job's status.
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
