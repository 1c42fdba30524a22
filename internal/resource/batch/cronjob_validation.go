package batch

import (
	"errors"
	"regexp"
	"strings"
	"time"
	_ "time/tzdata" // the zones of CronJobs, for machines without a database of zones

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// maxCronJobName leaves room for the 11 characters that are appended to the
// names of jobs.
const maxCronJobName = 52

func validateCronJob(r *resource.RequestContext, c, old *batchv1.CronJob) field.ErrorList {
	p, s := field.NewPath("spec"), &c.Spec
	var errs field.ErrorList
	if old == nil && len(c.Name) > maxCronJobName {
		errs = append(errs, field.Invalid(field.NewPath("metadata").Child("name"), c.Name, "must be no more than 52 characters"))
	}
	errs = append(errs, validateSchedule(p.Child("schedule"), c, old)...)
	if s.StartingDeadlineSeconds != nil {
		errs = append(errs, validators.Nonnegative(p.Child("startingDeadlineSeconds"), *s.StartingDeadlineSeconds)...)
	}
	if s.TimeZone != nil && (old == nil || old.Spec.TimeZone == nil || *old.Spec.TimeZone != *s.TimeZone) {
		errs = append(errs, validateTimeZone(p.Child("timeZone"), *s.TimeZone)...)
	}
	errs = append(errs, validators.OneOf(p.Child("concurrencyPolicy"), s.ConcurrencyPolicy,
		batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent)...)
	errs = append(errs, validateJobTemplate(r, p.Child("jobTemplate", "spec"), &s.JobTemplate.Spec, old)...)
	errs = append(errs, validators.NonnegativePointer(p.Child("successfulJobsHistoryLimit"), s.SuccessfulJobsHistoryLimit)...)
	return append(errs, validators.NonnegativePointer(p.Child("failedJobsHistoryLimit"), s.FailedJobsHistoryLimit)...)
}

func validateSchedule(p *field.Path, c, old *batchv1.CronJob) field.ErrorList {
	schedule := c.Spec.Schedule
	if schedule == "" {
		return field.ErrorList{field.Required(p, "")}
	}
	var errs field.ErrorList
	if err := parseSchedule(schedule); err != nil {
		errs = append(errs, field.Invalid(p, schedule, err.Error()))
	}
	if strings.Contains(schedule, "TZ") {
		// A stored schedule may have a time zone in it.
		if old == nil || !strings.Contains(old.Spec.Schedule, "TZ") {
			errs = append(errs, field.Invalid(p, schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"))
		} else if c.Spec.TimeZone != nil {
			errs = append(errs, field.Invalid(p, schedule, "cannot use both timeZone field and TZ or CRON_TZ in schedule"))
		}
	}
	return errs
}

// parseSchedule returns what is wrong with a schedule. The parser panics if
// nothing follows a time zone.
func parseSchedule(schedule string) error {
	if (strings.HasPrefix(schedule, "TZ=") || strings.HasPrefix(schedule, "CRON_TZ=")) && !strings.Contains(schedule, " ") {
		return errors.New("expected 5 fields after the time zone, found none")
	}
	_, err := cron.ParseStandard(schedule)
	return err
}

func validateTimeZone(p *field.Path, zone string) field.ErrorList {
	if zone == "" {
		return field.ErrorList{field.Invalid(p, zone, "timeZone must be nil or non-empty string")}
	}
	for part := range strings.SplitSeq(zone, "/") {
		if part == "." || part == ".." || strings.HasPrefix(part, "-") || !zonePart.MatchString(part) {
			return field.ErrorList{field.Invalid(p, zone, "unknown time zone "+zone)}
		}
	}
	var errs field.ErrorList
	if strings.EqualFold(zone, "Local") {
		errs = append(errs, field.Invalid(p, zone, "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"))
	}
	if _, err := time.LoadLocation(zone); err != nil {
		errs = append(errs, field.Invalid(p, zone, err.Error()))
	}
	return errs
}

// zonePart is a part of the name of a time zone between slashes.
var zonePart = regexp.MustCompile(`^[A-Za-z._0-9+-]{1,14}$`)

// validateJobTemplate checks the template of jobs. It has no selector, because
// jobs get theirs when they are created.
func validateJobTemplate(r *resource.RequestContext, p *field.Path, s *batchv1.JobSpec, old *batchv1.CronJob) field.ErrorList {
	var before *batchv1.JobSpec
	if old != nil {
		before = &old.Spec.JobTemplate.Spec
	}
	errs := validateJobSpec(r, p, s, before)
	if s.Selector != nil {
		errs = append(errs, field.Invalid(p.Child("selector"), s.Selector, "`selector` will be auto-generated"))
	}
	if s.ManualSelector != nil && *s.ManualSelector {
		errs = append(errs, field.NotSupported(p.Child("manualSelector"), *s.ManualSelector, []string{"nil", "false"}))
	}
	return errs
}
