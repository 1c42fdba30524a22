package cronjob

import (
	"strings"
	"sync"
	"time"
	_ "time/tzdata" // the zones of CronJobs, for machines without a database of zones

	"github.com/robfig/cron/v3"
	batch "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/timespan"
)

// tooManyMissed is the number of missed times above which the controller records
// an event, because the clock or the schedule may be wrong.
const tooManyMissed = 100

// schedule parses the schedule of a CronJob in its time zone, which must exist.
func schedule(cj *batch.CronJob) (cron.Schedule, error) {
	spec := cj.Spec.Schedule
	if zone := cj.Spec.TimeZone; zone != nil && !strings.Contains(spec, "TZ") {
		spec = "TZ=" + *zone + " " + spec
	}
	return cron.ParseStandard(spec)
}

// schedules remembers the schedules of CronJobs, so that a changed one counts only from
// the change. Otherwise a Job would be started at once for a time of the new schedule
// that had passed before. The zero value is empty.
type schedules struct {
	mu    sync.Mutex // guards known
	known map[controller.Key]known
}

// known is the schedule of a CronJob and when it replaced another one.
type known struct {
	cronJob        types.UID
	schedule, zone string
	since          time.Time // zero: it is the first that the controller has seen
}

// changed records the schedule of a CronJob, and returns when the CronJob got it. The time
// is zero if the controller has not seen another one.
func (s *schedules) changed(cj *batch.CronJob, now time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, next := cache.MetaObjectToName(cj), known{cronJob: cj.UID, schedule: cj.Spec.Schedule, zone: ptr.Deref(cj.Spec.TimeZone, "")}
	if before, ok := s.known[key]; ok && before.cronJob == cj.UID {
		next.since = before.since
		if before.schedule != next.schedule || before.zone != next.zone {
			next.since = now
		}
	}
	if s.known == nil {
		s.known = map[controller.Key]known{}
	}
	s.known[key] = next
	return next.since
}

// forget drops the state of a deleted CronJob.
func (s *schedules) forget(key controller.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, key)
}

// lastScheduled returns the last time that a CronJob was scheduled, or when it was created.
func lastScheduled(cj *batch.CronJob) time.Time {
	if last := cj.Status.LastScheduleTime; last != nil {
		return last.Time
	}
	return cj.CreationTimestamp.Time
}

// setBack reports whether the last scheduled time of a CronJob is ahead of the clock by more than
// a period of the schedule.
func setBack(s cron.Schedule, last, now time.Time) bool {
	next := s.Next(last)
	return last.Sub(now) > s.Next(next).Sub(next)
}

// mostRecentScheduleTime returns the latest scheduled time that has passed and for
// which no Job was created, or zero. missed is true if more than tooManyMissed
// times have passed since the last Job. next is the first scheduled time after now.
// Times before changed, which may be zero, and before the starting deadline do not
// count. "@every 5m" counts from the last Job or from the creation.
func mostRecentScheduleTime(cj *batch.CronJob, s cron.Schedule, changed, now time.Time) (latest time.Time, missed bool, next time.Time) {
	from := lastScheduled(cj)
	earliest := changed
	if d := cj.Spec.StartingDeadlineSeconds; d != nil {
		if at := now.Add(-timespan.Seconds(*d)); at.After(earliest) {
			earliest = at
		}
	}
	first := s.Next(from)
	if earliest.After(from) {
		first = following(s, first, earliest)
	}
	if first.IsZero() || first.After(now) {
		return time.Time{}, false, first
	}
	count := 1
	latest = first
	if period := s.Next(first).Sub(first); period > 0 {
		// Skip times far in the past at once. Schedules are periodic enough that
		// the latest time is within the last few periods.
		if skipped := now.Sub(first)/period - 3; skipped > 0 {
			count += int(skipped)
			if t := s.Next(first.Add(skipped * period)); !t.IsZero() && !t.After(now) {
				latest = t
			}
		}
	}
	for next = s.Next(latest); !next.IsZero() && !next.After(now); next = s.Next(next) {
		latest = next
		count++
	}
	return latest, count > tooManyMissed, next
}

// following returns the first time of a schedule after t, or zero if there is none.
// The schedule is followed from first, one of its times, in steps of whole periods,
// because each time of "@every" depends on the one before.
func following(s cron.Schedule, first, t time.Time) time.Time {
	if period := s.Next(first).Sub(first); period > 0 && t.After(first) {
		first = first.Add(t.Sub(first) / period * period)
	}
	for !first.IsZero() && !first.After(t) {
		first = s.Next(first)
	}
	return first
}
