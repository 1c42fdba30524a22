package batch

import (
	"fmt"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/cell"
	"github.com/coracle-io/coracle/internal/resource/core"
	"github.com/coracle-io/coracle/internal/resource/fill"
	"github.com/coracle-io/coracle/internal/resource/rule"
)

// CronJobs is the resource cronjobs.
func CronJobs() *resource.Resource {
	spec, status := batchv1.CronJobSpec{}.SwaggerDoc(), batchv1.CronJobStatus{}.SwaggerDoc()
	return resource.Define(resource.Definition[batchv1.CronJob, *batchv1.CronJob]{
		GroupVersion: batchv1.SchemeGroupVersion,
		Kind:         "CronJob",
		Plural:       "cronjobs",
		ShortNames:   []string{"cj"},
		Categories:   []string{"all"},
		Default:      defaultCronJob,
		Spec:         func(c *batchv1.CronJob) any { return c.Spec },
		CopyStatus:   func(c, from *batchv1.CronJob) { c.Status = from.Status },
		PrepareForCreate: func(r *resource.Request, c *batchv1.CronJob) {
			core.DropDisabledPodTemplateFields(r.Features, &c.Spec.JobTemplate.Spec.Template, nil)
			feature.Drop(r.Features, jobFields, &c.Spec.JobTemplate.Spec, nil)
		},
		PrepareForUpdate: func(r *resource.Request, c, old *batchv1.CronJob) {
			core.DropDisabledPodTemplateFields(r.Features, &c.Spec.JobTemplate.Spec.Template, &old.Spec.JobTemplate.Spec.Template)
			feature.Drop(r.Features, jobFields, &c.Spec.JobTemplate.Spec, &old.Spec.JobTemplate.Spec)
		},
		Validate:             func(r *resource.Request, c *batchv1.CronJob) field.ErrorList { return validateCronJob(r, c, nil) },
		UpdateValidatesAlone: true,
		ValidateUpdate:       func(r *resource.Request, c, old *batchv1.CronJob) field.ErrorList { return validateCronJob(r, c, old) },
		Warnings: func(_ *resource.Request, c, old *batchv1.CronJob) []string {
			var warnings []string
			var before *corev1.PodTemplateSpec
			if old == nil {
				warnings = rule.PodNameWarnings(c.Name)
			} else {
				before = &old.Spec.JobTemplate.Spec.Template
			}
			if strings.Contains(c.Spec.Schedule, "TZ") {
				warnings = append(warnings, fmt.Sprintf("%s: cannot use TZ or CRON_TZ in schedule, use timeZone instead", field.NewPath("spec", "schedule")))
			}
			p := field.NewPath("spec", "jobTemplate", "spec")
			warnings = append(warnings, core.PodTemplateWarnings(&c.Spec.JobTemplate.Spec.Template, before, p.Child("template"))...)
			return append(warnings, indexWarnings(p, &c.Spec.JobTemplate.Spec)...)
		},
		Columns: append(append([]metav1.TableColumnDefinition{
			resource.NameColumn(),
			resource.Column("Schedule", "string", spec["schedule"]),
			resource.Column("Timezone", "string", spec["timeZone"]),
			resource.Column("Suspend", "boolean", spec["suspend"]),
			resource.Column("Active", "integer", status["active"]),
			resource.Column("Last Schedule", "string", status["lastScheduleTime"]),
			resource.AgeColumn(),
		}, cell.ContainersColumns()...), cell.SelectorColumn(batchv1.JobSpec{}.SwaggerDoc()["selector"])),
		Row: cronJobRow,
	})
}

func defaultCronJob(c *batchv1.CronJob) {
	core.DefaultPodTemplateSpec(&c.Spec.JobTemplate.Spec.Template)
	defaultPodFailurePolicy(c.Spec.JobTemplate.Spec.PodFailurePolicy)
	fill.Zero(&c.Spec.ConcurrencyPolicy, batchv1.AllowConcurrent)
	fill.Nil(&c.Spec.Suspend, false)
	fill.Nil(&c.Spec.SuccessfulJobsHistoryLimit, 3)
	fill.Nil(&c.Spec.FailedJobsHistoryLimit, 1)
}

func cronJobRow(c *batchv1.CronJob, now time.Time) []any {
	timeZone, lastSchedule := cell.None, cell.None
	if c.Spec.TimeZone != nil {
		timeZone = *c.Spec.TimeZone
	}
	if c.Status.LastScheduleTime != nil {
		lastSchedule = resource.Age(*c.Status.LastScheduleTime, now)
	}
	names, images := cell.Containers(c.Spec.JobTemplate.Spec.Template.Spec.Containers)
	return []any{
		c.Name, c.Spec.Schedule, timeZone, cell.BoolPointer(c.Spec.Suspend), int64(len(c.Status.Active)),
		lastSchedule, resource.Age(c.CreationTimestamp, now),
		names, images, metav1.FormatLabelSelector(c.Spec.JobTemplate.Spec.Selector),
	}
}
