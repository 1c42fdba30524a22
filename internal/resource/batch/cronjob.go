package batch

import (
	"fmt"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core/pod"
	"github.com/coracle-io/coracle/internal/resource/defaults"
	"github.com/coracle-io/coracle/internal/resource/printers"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// CronJobs is the resource cronjobs.
func CronJobs() *resource.Resource {
	spec, status := batchv1.CronJobSpec{}.SwaggerDoc(), batchv1.CronJobStatus{}.SwaggerDoc()
	return resource.Define(resource.Definition[batchv1.CronJob, *batchv1.CronJob]{
		GroupVersion:         batchv1.SchemeGroupVersion,
		Names:                resource.Names{Kind: "CronJob", Plural: "cronjobs", ShortNames: []string{"cj"}, Categories: []string{"all"}},
		Default:              defaultCronJob,
		Spec:                 func(c *batchv1.CronJob) any { return c.Spec },
		Status:               resource.Status[*batchv1.CronJob]{Copy: func(c, from *batchv1.CronJob) { c.Status = from.Status }},
		UpdateValidatesAlone: true,
		Strategy: resource.Strategy[*batchv1.CronJob]{
			PrepareForCreate: func(r *resource.RequestContext, c *batchv1.CronJob) {
				pod.DropDisabledTemplateFields(r.Features, &c.Spec.JobTemplate.Spec.Template, nil)
				feature.Drop(r.Features, jobFields(), &c.Spec.JobTemplate.Spec, nil)
			},
			PrepareForUpdate: func(r *resource.RequestContext, c, old *batchv1.CronJob) {
				pod.DropDisabledTemplateFields(r.Features, &c.Spec.JobTemplate.Spec.Template, &old.Spec.JobTemplate.Spec.Template)
				feature.Drop(r.Features, jobFields(), &c.Spec.JobTemplate.Spec, &old.Spec.JobTemplate.Spec)
			},
			Validate: func(r *resource.RequestContext, c *batchv1.CronJob) field.ErrorList {
				return validateCronJob(r, c, nil)
			},
			ValidateUpdate: func(r *resource.RequestContext, c, old *batchv1.CronJob) field.ErrorList {
				return validateCronJob(r, c, old)
			},
			Warnings: func(_ *resource.RequestContext, c, old *batchv1.CronJob) []string {
				var warnings []string
				var before *batchv1.JobSpec
				if old == nil {
					warnings = validators.PodNameWarnings(c.Name)
				} else {
					before = &old.Spec.JobTemplate.Spec
				}
				if strings.Contains(c.Spec.Schedule, "TZ") {
					warnings = append(warnings, fmt.Sprintf("%s: cannot use TZ or CRON_TZ in schedule, use timeZone instead", field.NewPath("spec", "schedule")))
				}
				return append(warnings, specWarnings(field.NewPath("spec", "jobTemplate", "spec"), &c.Spec.JobTemplate.Spec, before)...)
			},
		},
		Table: resource.Table[*batchv1.CronJob]{
			Columns: append(append([]metav1.TableColumnDefinition{
				resource.NameColumn(),
				resource.Column("Schedule", "string", spec["schedule"]),
				resource.Column("Timezone", "string", spec["timeZone"]),
				resource.Column("Suspend", "boolean", spec["suspend"]),
				resource.Column("Active", "integer", status["active"]),
				resource.Column("Last Schedule", "string", status["lastScheduleTime"]),
				resource.AgeColumn(),
			}, printers.ContainersColumns()...), printers.SelectorColumn(batchv1.JobSpec{}.SwaggerDoc()["selector"])),
			Row: cronJobRow,
		},
	})
}

func defaultCronJob(c *batchv1.CronJob) {
	pod.DefaultTemplate(&c.Spec.JobTemplate.Spec.Template)
	defaultPodFailurePolicy(c.Spec.JobTemplate.Spec.PodFailurePolicy)
	defaults.Zero(&c.Spec.ConcurrencyPolicy, batchv1.AllowConcurrent)
	defaults.Nil(&c.Spec.Suspend, false)
	defaults.Nil(&c.Spec.SuccessfulJobsHistoryLimit, 3)
	defaults.Nil(&c.Spec.FailedJobsHistoryLimit, 1)
}

func cronJobRow(c *batchv1.CronJob, now time.Time) []any {
	timeZone, lastSchedule := ptr.Deref(c.Spec.TimeZone, printers.None), printers.None
	if c.Status.LastScheduleTime != nil {
		lastSchedule = resource.Age(*c.Status.LastScheduleTime, now)
	}
	names, images := printers.Containers(c.Spec.JobTemplate.Spec.Template.Spec.Containers)
	return []any{
		c.Name, c.Spec.Schedule, timeZone, printers.BoolPointer(c.Spec.Suspend), int64(len(c.Status.Active)),
		lastSchedule, resource.Age(c.CreationTimestamp, now),
		names, images, metav1.FormatLabelSelector(c.Spec.JobTemplate.Spec.Selector),
	}
}
