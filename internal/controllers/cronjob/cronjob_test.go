package cronjob

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	batch "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/controllertest"
)

func TestMostRecentScheduleTime(t *testing.T) {
	at := func(s string) time.Time {
		parsed, err := time.Parse(time.RFC3339, "2026-03-01T"+s+"Z")
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	for _, c := range []struct {
		schedule, created, last, now string
		deadline                     int64
		latest, next                 string
		missed                       bool
	}{
		{schedule: "*/5 * * * *", created: "10:01:00", now: "10:02:00", latest: "", next: "10:05"},
		{schedule: "*/5 * * * *", created: "10:01:00", now: "10:05:00", latest: "10:05", next: "10:10"},
		{schedule: "*/5 * * * *", created: "08:01:00", last: "10:00:00", now: "10:16:00", latest: "10:15", next: "10:20"},
		{schedule: "* * * * *", created: "01:00:00", now: "10:00:30", latest: "10:00", next: "10:01", missed: true},
		{schedule: "* * * * *", created: "01:00:00", deadline: 300, now: "10:00:30", latest: "10:00", next: "10:01"},
		{schedule: "* * * * *", created: "09:58:30", deadline: math.MaxInt64, now: "10:00:30", latest: "10:00", next: "10:01"},
		{schedule: "30 6-16/4 * * *", created: "01:00:00", last: "06:30:00", now: "15:00:00", latest: "14:30", next: "06:30"},
		{schedule: "*/5 * * * *", created: "10:00:00", last: "10:30:00", deadline: 60, now: "10:32:00", latest: "", next: "10:35"},
		{schedule: "0 9 * * *", created: "08:00:00", last: "09:00:00", now: "12:00:00", latest: "", next: "09:00"},
	} {
		cj := &batch.CronJob{Spec: batch.CronJobSpec{Schedule: c.schedule}}
		cj.CreationTimestamp = metav1.NewTime(at(c.created))
		if c.last != "" {
			cj.Status.LastScheduleTime = new(metav1.NewTime(at(c.last)))
		}
		if c.deadline > 0 {
			cj.Spec.StartingDeadlineSeconds = &c.deadline
		}
		s, err := schedule(cj)
		if err != nil {
			t.Fatal(err)
		}
		latest, missed, next := mostRecentScheduleTime(cj, s, time.Time{}, at(c.now))
		show := func(t time.Time) string {
			if t.IsZero() {
				return ""
			}
			return t.UTC().Format("15:04")
		}
		if show(latest) != c.latest || missed != c.missed || show(next) != c.next {
			t.Errorf("%s since %s%s at %s: latest %s, missed %v, next %s", c.schedule, c.created, c.last, c.now, show(latest), missed, show(next))
		}
	}
}

// "@every" counts from the last Job or from the creation: neither a restart of the controller,
// nor missed times, nor an edit changes when in the period a Job is started.
func TestEveryKeepsItsPhase(t *testing.T) {
	at := func(s string) time.Time {
		if s == "" {
			return time.Time{}
		}
		parsed, err := time.Parse(time.RFC3339, "2026-03-01T"+s+"Z")
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	for _, c := range []struct{ name, schedule, last, changed, deadline, now, latest, next string }{
		{name: "not yet due", schedule: "@every 1m", now: "10:01:00", next: "10:01:30"},
		{name: "due", schedule: "@every 1m", now: "10:01:31", latest: "10:01:30", next: "10:02:30"},
		{name: "after a Job", schedule: "@every 1m", last: "10:01:30", now: "10:01:50", next: "10:02:30"},
		{name: "many missed", schedule: "@every 1m", now: "10:10:45", latest: "10:10:30", next: "10:11:30"},
		{name: "starting deadline", schedule: "@every 1m", deadline: "90s", now: "10:10:45", latest: "10:10:30", next: "10:11:30"},
		{name: "all too late", schedule: "@every 1m", deadline: "10s", now: "10:10:45", next: "10:11:30"},
		{name: "edited", schedule: "@every 7m", changed: "10:05:00", now: "10:06:00", next: "10:07:30"},
		{name: "edited after some times", schedule: "@every 2m", changed: "10:05:00", now: "10:05:10", next: "10:06:30"},
	} {
		cj := &batch.CronJob{Spec: batch.CronJobSpec{Schedule: c.schedule}}
		cj.CreationTimestamp = metav1.NewTime(at("10:00:30"))
		if c.last != "" {
			cj.Status.LastScheduleTime = new(metav1.NewTime(at(c.last)))
		}
		if d, err := time.ParseDuration(c.deadline); err == nil {
			cj.Spec.StartingDeadlineSeconds = new(int64(d.Seconds()))
		}
		s, err := schedule(cj)
		if err != nil {
			t.Fatal(err)
		}
		if latest, _, next := mostRecentScheduleTime(cj, s, at(c.changed), at(c.now)); !latest.Equal(at(c.latest)) || !next.Equal(at(c.next)) {
			t.Errorf("%s: latest %v, next %v", c.name, latest, next)
		}
	}
}

// TestSchedule starts Jobs with the concurrency policy Forbid and deletes old ones.
func TestSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := int32(1)
		c := controllertest.New(t, &batch.CronJob{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "tick"},
			Spec: batch.CronJobSpec{
				Schedule: "* * * * *", ConcurrencyPolicy: batch.ForbidConcurrent,
				SuccessfulJobsHistoryLimit: &one, FailedJobsHistoryLimit: &one,
			},
		})
		registry := prometheus.NewRegistry()
		c.Env.Metrics = registry
		c.Run(Descriptor())
		jobs := func() string {
			list, err := c.Fake.BatchV1().Jobs("default").List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var out []string
			for _, j := range list.Items {
				at, _ := time.Parse(time.RFC3339, j.Annotations[batch.CronJobScheduledTimestampAnnotation])
				out = append(out, at.UTC().Format("15:04"))
			}
			return strings.Join(out, " ")
		}
		finish := func() {
			list, _ := c.Fake.BatchV1().Jobs("default").List(t.Context(), metav1.ListOptions{})
			for _, j := range list.Items {
				if finishedCondition(&j) == "" {
					j.Status.Conditions = []batch.JobCondition{{Type: batch.JobComplete, Status: v1.ConditionTrue}}
					j.Status.StartTime, j.Status.CompletionTime = new(metav1.Now()), new(metav1.Now())
					if _, err := c.Fake.BatchV1().Jobs("default").UpdateStatus(t.Context(), &j, metav1.UpdateOptions{}); err != nil {
						t.Fatal(err)
					}
				}
			}
			synctest.Wait()
		}
		after := func(d time.Duration, want string) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if got := jobs(); got != want {
				t.Errorf("after %v: %q, want %q", d, got, want)
			}
		}
		after(30*time.Second, "")
		after(31*time.Second, "00:01")
		after(time.Minute, "00:01") // the first still runs
		finish()
		after(0, "00:01 00:02") // the Job of the missed time starts late
		finish()
		after(time.Minute, "00:02 00:03")
		cj, _ := c.Fake.BatchV1().CronJobs("default").Get(t.Context(), "tick", metav1.GetOptions{})
		if got := fmt.Sprint(len(cj.Status.Active), cj.Status.LastScheduleTime.UTC().Format(" 15:04")); got != "1 00:03" {
			t.Errorf("status: %s", got)
		}
		families, err := registry.Gather()
		if err != nil || len(families) != 1 || families[0].GetName() != "cronjob_controller_job_creation_skew_duration_seconds" ||
			families[0].GetMetric()[0].GetHistogram().GetSampleCount() != 3 {
			t.Errorf("metrics %v, %v", families, err)
		}
	})
}

// With a history limit of 0, a completed Job is deleted, and is not said to be missing.
func TestNoHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := controllertest.New(t, &batch.CronJob{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "tick"},
			Spec:       batch.CronJobSpec{Schedule: "* * * * *", SuccessfulJobsHistoryLimit: new(int32(0)), FailedJobsHistoryLimit: new(int32(0))},
		})
		c.Run(Descriptor())
		time.Sleep(70 * time.Second)
		synctest.Wait()
		list, err := c.Fake.BatchV1().Jobs("default").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) != 1 {
			t.Fatal(list, err)
		}
		job := &list.Items[0]
		job.Status.Conditions = []batch.JobCondition{{Type: batch.JobComplete, Status: v1.ConditionTrue}}
		job.Status.StartTime, job.Status.CompletionTime = new(metav1.Now()), new(metav1.Now())
		if _, err := c.Fake.BatchV1().Jobs("default").UpdateStatus(t.Context(), job, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		want := []string{"Normal SuccessfulCreate Created job " + job.Name, "Normal SuccessfulDelete Deleted job " + job.Name}
		if events := c.DrainEvents(); !slices.Equal(events, want) {
			t.Errorf("events %q, want %q", events, want)
		}
		cj, err := c.Fake.BatchV1().CronJobs("default").Get(t.Context(), "tick", metav1.GetOptions{})
		if err != nil || len(cj.Status.Active) != 0 || !cj.Status.LastSuccessfulTime.Equal(job.Status.CompletionTime) {
			t.Errorf("%v, status %v", err, cj.Status)
		}
	})
}

// A Job that was created right before the controller ended counts as active, so that the policy
// Forbid holds.
func TestJobWithoutStatus(t *testing.T) {
	for _, test := range []struct {
		name, annotation, want string
	}{
		{"of the controller", "2000-01-01T00:00:00Z", "1 active, last 2000-01-01T00:00:00Z: tick-15778080"},
		{"of somebody else", "", "1 active, last 2000-01-01T00:01:00Z: tick-15778080 tick-15778081"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cj := &batch.CronJob{
					ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "tick", UID: "cj", CreationTimestamp: metav1.NewTime(time.Now().Add(-time.Second))},
					Spec:       batch.CronJobSpec{Schedule: "* * * * *", ConcurrencyPolicy: batch.ForbidConcurrent},
				}
				job := &batch.Job{ObjectMeta: metav1.ObjectMeta{
					Namespace: "default", Name: "tick-15778080", OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(cj, kind)},
				}}
				if test.annotation != "" {
					job.Annotations = map[string]string{batch.CronJobScheduledTimestampAnnotation: test.annotation}
				}
				time.Sleep(time.Minute + time.Second)
				c := controllertest.New(t, cj, job)
				c.Run(Descriptor())
				synctest.Wait()
				now, err := c.Fake.BatchV1().CronJobs("default").Get(t.Context(), "tick", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				list, err := c.Fake.BatchV1().Jobs("default").List(t.Context(), metav1.ListOptions{})
				if err != nil {
					t.Fatal(err)
				}
				var names []string
				for _, j := range list.Items {
					names = append(names, j.Name)
				}
				got := fmt.Sprintf("%d active, last %s: %s", len(now.Status.Active), now.Status.LastScheduleTime.UTC().Format(time.RFC3339), strings.Join(names, " "))
				if got != test.want {
					t.Errorf("got  %s\nwant %s", got, test.want)
				}
			})
		})
	}
}

// A Job that the policy Replace has deleted does not become active again while it ends, nor after it is
// gone and the cache still shows it.
func TestReplacedJob(t *testing.T) {
	cj := &batch.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "tick", UID: "cj"}}
	cached := &batch.Job{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "tick-15778080", UID: "1", Annotations: map[string]string{batch.CronJobScheduledTimestampAnnotation: "2000-01-01T00:00:00Z"},
	}}
	ending := cached.DeepCopy()
	ending.DeletionTimestamp, ending.Finalizers = new(metav1.Now()), []string{metav1.FinalizerDeleteDependents}
	another := cached.DeepCopy()
	another.UID = "2"
	for _, test := range []struct {
		name   string
		stored []runtime.Object
		want   int
	}{
		{"running", []runtime.Object{cj, cached}, 1},
		{"ending", []runtime.Object{cj, ending}, 0},
		{"gone", []runtime.Object{cj}, 0},
		{"another one", []runtime.Object{cj, another}, 0},
	} {
		cluster := controllertest.New(t, test.stored...)
		c := &cronJobs{kube: cluster.Fake, env: cluster.Env}
		now := cj.DeepCopy()
		if err := c.reconcileActive(t.Context(), now, []*batch.Job{cached}); err != nil || len(now.Status.Active) != test.want {
			t.Errorf("%s: %d active, error %v", test.name, len(now.Status.Active), err)
		}
		if events := cluster.DrainEvents(); len(events) != 0 {
			t.Errorf("%s: events %q", test.name, events)
		}
	}
}

// A Job of the scheduled time that runs already is neither replaced nor created again, and one of
// somebody else is left alone.
func TestJobOfTheTimeExists(t *testing.T) {
	for _, test := range []struct {
		policy batch.ConcurrencyPolicy
		active bool // whether the Job is one of the CronJob and in its status
		want   string
	}{
		{batch.AllowConcurrent, true, "1 active, last <nil>, job 1"},
		{batch.ForbidConcurrent, true, "1 active, last <nil>, job 1"},
		{batch.ReplaceConcurrent, true, "1 active, last <nil>, job 1"},
		{batch.ForbidConcurrent, false, "0 active, last <nil>, job 1"},
	} {
		synctest.Test(t, func(t *testing.T) {
			cj := &batch.CronJob{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "tick", UID: "cj", CreationTimestamp: metav1.NewTime(time.Now().Add(-90 * time.Second))},
				Spec:       batch.CronJobSpec{Schedule: "* * * * *", ConcurrencyPolicy: test.policy},
			}
			job := &batch.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "tick-15778080", UID: "1"}}
			if test.active {
				job.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(cj, kind)}
				cj.Status.Active = []v1.ObjectReference{{Name: job.Name, UID: job.UID}}
			}
			cluster := controllertest.New(t, cj, job)
			cluster.Run(Descriptor())
			synctest.Wait()
			now, err := cluster.Fake.BatchV1().CronJobs("default").Get(t.Context(), "tick", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			stored, err := cluster.Fake.BatchV1().Jobs("default").Get(t.Context(), job.Name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			got := fmt.Sprintf("%d active, last %v, job %s", len(now.Status.Active), now.Status.LastScheduleTime, stored.UID)
			if events := cluster.DrainEvents(); got != test.want || len(events) != 0 {
				t.Errorf("%s: %s, want %s; events %q", test.policy, got, test.want, events)
			}
		})
	}
}

// Jobs are deleted in the order in which they have started, those that have not started last.
func TestOrderOfHistory(t *testing.T) {
	job := func(name string, start int64) *batch.Job {
		j := &batch.Job{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if start > 0 {
			j.Status.StartTime = &metav1.Time{Time: time.Unix(start, 0)}
		}
		return j
	}
	jobs := []*batch.Job{job("f", 0), job("d", 3), job("e", 0), job("b", 2), job("a", 2), job("c", 2)}
	slices.SortFunc(jobs, byStartTime)
	var names []string
	for _, j := range jobs {
		names = append(names, j.Name)
	}
	if got := strings.Join(names, " "); got != "a b c d e f" {
		t.Errorf("deletes %s", got)
	}
}

// A cache that does not show the controller's own status update is stale.
func TestStaleStatus(t *testing.T) {
	stored := &batch.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "tick"}}
	stored.Status.Active = []v1.ObjectReference{{Name: "tick-1", UID: "1"}}
	c := &cronJobs{kube: fake.NewClientset(stored)}
	cached := &batch.CronJob{ObjectMeta: stored.ObjectMeta}
	job := &batch.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "tick-1", UID: "1"}}
	if err := c.reconcileActive(t.Context(), cached, []*batch.Job{job}); !errors.Is(err, controller.ErrStale) {
		t.Errorf("a job in the stored status: %v", err)
	}
}

// No Job is created for a time that the cache shows as due, while the stored CronJob has started it, or is
// suspended or another one by now.
func TestStaleSchedule(t *testing.T) {
	at := time.Unix(1e9, 0)
	cached := &batch.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "tick", UID: "1", Generation: 1}}
	cached.Status.LastScheduleTime = &metav1.Time{Time: at.Add(-time.Minute)}
	for name, test := range map[string]struct {
		change func(*batch.CronJob)
		want   error
	}{
		"the same":  {func(*batch.CronJob) {}, nil},
		"started":   {func(cj *batch.CronJob) { cj.Status.LastScheduleTime = &metav1.Time{Time: at} }, controller.ErrStale},
		"suspended": {func(cj *batch.CronJob) { cj.Generation, cj.Spec.Suspend = 2, new(true) }, controller.ErrStale},
		"replaced":  {func(cj *batch.CronJob) { cj.UID = "2" }, controller.ErrStale},
		"gone":      {nil, controller.ErrStale},
	} {
		var objects []runtime.Object
		if test.change != nil {
			stored := cached.DeepCopy()
			test.change(stored)
			objects = append(objects, stored)
		}
		c := &cronJobs{kube: fake.NewClientset(objects...)}
		if err := c.checkDue(t.Context(), cached, at); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
	}
}

// A CronJob that can never start a Job gets an event that says why.
func TestInvalidSchedules(t *testing.T) {
	for _, c := range []struct{ name, schedule, zone, want string }{
		{"no scheduled time", "59 23 31 2 *", "", "Warning InvalidSchedule invalid schedule: 59 23 31 2 * : time difference between two schedules is less than 1 second"},
		{"unknown time zone", "* * * * *", "Moon/Crater", "Warning UnknownTimeZone invalid timeZone: \"Moon/Crater\": unknown time zone Moon/Crater"},
		{"unparseable", "every day", "", "Warning UnparseableSchedule unparseable schedule: \"every day\" : "},
		{"zone in the schedule", "TZ=UTC 0 0 * * *", "", "Warning UnsupportedSchedule CRON_TZ or TZ used in schedule \"TZ=UTC 0 0 * * *\" is not officially supported"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cj := &batch.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c"}, Spec: batch.CronJobSpec{Schedule: c.schedule}}
				if c.zone != "" {
					cj.Spec.TimeZone = &c.zone
				}
				cluster := controllertest.New(t, cj)
				cluster.Run(Descriptor())
				synctest.Wait()
				if events := cluster.DrainEvents(); len(events) != 1 || !strings.HasPrefix(events[0], c.want) {
					t.Errorf("events %q, want %q", events, c.want)
				}
			})
		})
	}
}

// A CronJob with a new schedule or time zone starts no Job for a time of it that has passed
// before, also if something else changes later.
func TestChangedSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := controllertest.New(t, &batch.CronJob{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "nightly"},
			Spec:       batch.CronJobSpec{Schedule: "0 12 * * *", ConcurrencyPolicy: batch.AllowConcurrent},
		})
		c.Run(Descriptor())
		after := func(d time.Duration, want int) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			list, err := c.Fake.BatchV1().Jobs("default").List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if len(list.Items) != want {
				t.Errorf("after %v: %d jobs, want %d", d, len(list.Items), want)
			}
		}
		change := func(change func(cj *batch.CronJob)) {
			t.Helper()
			cj, err := c.Fake.BatchV1().CronJobs("default").Get(t.Context(), "nightly", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			change(cj)
			if _, err := c.Fake.BatchV1().CronJobs("default").Update(t.Context(), cj, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		after(6*time.Hour, 0) // 06:00 UTC
		change(func(cj *batch.CronJob) { cj.Spec.Schedule = "0 3 * * *" })
		after(time.Hour, 0)
		change(func(cj *batch.CronJob) { cj.Spec.SuccessfulJobsHistoryLimit = new(int32(1)) })
		after(time.Hour, 0)
		after(19*time.Hour+time.Minute, 1) // 03:01 UTC of the next day
		change(func(cj *batch.CronJob) { cj.Spec.TimeZone = new("Etc/GMT+1") })
		after(0, 1)
		after(time.Hour, 2)
	})
}
