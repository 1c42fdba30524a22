package cronjob

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	batch "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/controllertest"
)

func TestDue(t *testing.T) {
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
		latest, missed, next := due(cj, s, at(c.now))
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

func TestStartsForbidsAndTrims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := int32(1)
		c := controllertest.New(t, &batch.CronJob{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "tick"},
			Spec: batch.CronJobSpec{
				Schedule: "* * * * *", ConcurrencyPolicy: batch.ForbidConcurrent,
				SuccessfulJobsHistoryLimit: &one, FailedJobsHistoryLimit: &one,
			},
		})
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
				if end(&j) == "" {
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
		after(time.Minute, "00:01") // forbidden: the first still runs
		finish()
		after(0, "00:01 00:02") // the time that was missed is made up for
		finish()
		after(time.Minute, "00:02 00:03")
		cj, _ := c.Fake.BatchV1().CronJobs("default").Get(t.Context(), "tick", metav1.GetOptions{})
		if got := fmt.Sprint(len(cj.Status.Active), cj.Status.LastScheduleTime.UTC().Format(" 15:04")); got != "1 00:03" {
			t.Errorf("status: %s", got)
		}
	})
}

func TestWaitsForItsOwnStatus(t *testing.T) {
	stored := &batch.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "tick"}}
	stored.Status.Active = []v1.ObjectReference{{Name: "tick-1", UID: "1"}}
	c := &cronJobs{kube: fake.NewClientset(stored)}
	cached := &batch.CronJob{ObjectMeta: stored.ObjectMeta}
	job := &batch.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "tick-1", UID: "1"}}
	if err := c.reconcileActive(t.Context(), cached, []*batch.Job{job}); !errors.Is(err, controller.ErrStale) {
		t.Errorf("a job that the stored status knows: %v", err)
	}
}
