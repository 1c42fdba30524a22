package batch

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// TestSchedules checks schedules, also some that the parser cannot read without
// a panic.
func TestSchedules(t *testing.T) {
	for _, test := range []struct {
		schedule, old string
		problems      []string
	}{
		{schedule: "*/5 * * * *"},
		{schedule: "@every 1h"},
		{problems: []string{"Required value"}},
		{schedule: "* * * *", problems: []string{"expected exactly 5 fields, found 4: [* * * *]"}},
		{schedule: "TZ=UTC 0 0 * * *", problems: []string{"cannot use TZ or CRON_TZ in schedule, use timeZone field instead"}},
		{schedule: "TZ=UTC 0 1 * * *", old: "TZ=UTC 0 0 * * *"},
		{schedule: "TZ=0", problems: []string{"expected 5 fields after the time zone, found none", "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"}},
		{schedule: "CRON_TZ=", old: "TZ=UTC 0 0 * * *", problems: []string{"expected 5 fields after the time zone, found none"}},
	} {
		t.Run(test.schedule, func(t *testing.T) {
			var old *batchv1.CronJob
			if test.old != "" {
				old = &batchv1.CronJob{Spec: batchv1.CronJobSpec{Schedule: test.old}}
			}
			errs := validateSchedule(field.NewPath("spec", "schedule"), &batchv1.CronJob{Spec: batchv1.CronJobSpec{Schedule: test.schedule}}, old)
			if len(errs) != len(test.problems) {
				t.Fatalf("got %v, want %q", errs, test.problems)
			}
			for i, err := range errs {
				if got := err.Detail; err.Type == field.ErrorTypeInvalid && got != test.problems[i] {
					t.Errorf("got %q, want %q", got, test.problems[i])
				}
			}
		})
	}
}

// TestTimeZones checks names of time zones, also those that a file system would find.
func TestTimeZones(t *testing.T) {
	for zone, want := range map[string]string{
		"UTC": "", "Europe/Berlin": "", "Etc/GMT+1": "", "America/Argentina/ComodRivadavia": "",
		"":                "timeZone must be nil or non-empty string",
		"local":           "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones",
		"Nowhere/Land":    "unknown time zone Nowhere/Land",
		"Europe//Berlin":  "unknown time zone Europe//Berlin",
		"Europe/./Berlin": "unknown time zone Europe/./Berlin",
		"../Berlin":       "unknown time zone ../Berlin",
		"Europe/Berlin ":  "unknown time zone Europe/Berlin ",
	} {
		got := ""
		if errs := validateTimeZone(field.NewPath("timeZone"), zone); len(errs) > 0 {
			got = errs[0].Detail
		}
		if got != want {
			t.Errorf("%q: %q, want %q", zone, got, want)
		}
	}
}
