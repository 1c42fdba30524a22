package cronjob

import (
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	batch "k8s.io/api/batch/v1"

	"github.com/coracle-io/coracle/internal/timespan"
)

// tooManyMissed is the number of missed times above which something is wrong
// with the clock or the schedule; the user is told.
const tooManyMissed = 100

// schedule parses a CronJob's schedule in its time zone.
func schedule(cj *batch.CronJob) (cron.Schedule, error) {
	spec := cj.Spec.Schedule
	if zone := cj.Spec.TimeZone; zone != nil && !strings.Contains(spec, "TZ") {
		if _, err := time.LoadLocation(*zone); err != nil {
			return nil, fmt.Errorf("unknown time zone %q: %w", *zone, err)
		}
		spec = "TZ=" + *zone + " " + spec
	}
	return cron.ParseStandard(spec)
}

// due is the latest scheduled time that has passed and for which no Job was
// started yet; zero if there is none. missed says that there were suspiciously
// many since the last start. next is the first scheduled time after now.
func due(cj *batch.CronJob, s cron.Schedule, now time.Time) (latest time.Time, missed bool, next time.Time) {
	from := cj.CreationTimestamp.Time
	if last := cj.Status.LastScheduleTime; last != nil {
		from = last.Time
	}
	if d := cj.Spec.StartingDeadlineSeconds; d != nil {
		// What is older than the deadline is not started any more.
		if earliest := now.Add(-timespan.Seconds(*d)); earliest.After(from) {
			from = earliest
		}
	}
	next = s.Next(now)
	first := s.Next(from)
	if first.IsZero() || first.After(now) {
		return time.Time{}, false, next
	}
	second := s.Next(first)
	latest = first
	count := 1
	if !second.IsZero() && !second.After(now) {
		// Skip what is far in the past in one jump: schedules are periodic
		// enough that the last few periods hold the latest time.
		period := second.Sub(first)
		if jump := now.Add(-period * 3); jump.After(first) {
			count += int(jump.Sub(first) / period)
			if t := s.Next(jump); !t.IsZero() && !t.After(now) {
				latest = t
			}
		}
		for t := s.Next(latest); !t.IsZero() && !t.After(now); t = s.Next(t) {
			latest = t
			count++
		}
	}
	return latest, count > tooManyMissed, next
}
