package cronjob

import (
	"testing"
	"testing/synctest"
	"time"

	batch "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
	"github.com/coracle-io/coracle/internal/wallclock/wallclocktest"
)

// After the clock was set back, a CronJob starts Jobs again within a period, also if it has been
// scheduled or created in the future. Jobs of times that come again within a period are not
// started twice.
func TestClockSetBack(t *testing.T) {
	for _, c := range []struct {
		name, schedule string
		created, last  time.Duration // after the begin; last 0: never scheduled
		want           map[time.Duration]int
	}{
		{"by more than a period", "* * * * *", -time.Hour, time.Hour, map[time.Duration]int{59 * time.Second: 0, 61 * time.Second: 1, 121 * time.Second: 2}},
		{"by years", "* * * * *", -time.Hour, 10 * 365 * 24 * time.Hour, map[time.Duration]int{59 * time.Second: 0, 61 * time.Second: 1, 121 * time.Second: 2}},
		{"after the creation", "* * * * *", time.Hour, 0, map[time.Duration]int{59 * time.Second: 0, 61 * time.Second: 1, 121 * time.Second: 2}},
		{"by less than a period", "30 0 * * *", -time.Hour, 30 * time.Minute, map[time.Duration]int{31 * time.Minute: 0, 24 * time.Hour: 0, 24*time.Hour + 31*time.Minute: 1}},
		{"of every five minutes", "@every 5m", -time.Hour, time.Hour, map[time.Duration]int{299 * time.Second: 0, 301 * time.Second: 1, 601 * time.Second: 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for after, want := range c.want {
				synctest.Test(t, func(t *testing.T) {
					cj := &batch.CronJob{
						ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "tick", UID: "cj", CreationTimestamp: metav1.NewTime(time.Now().Add(c.created))},
						Spec:       batch.CronJobSpec{Schedule: c.schedule, ConcurrencyPolicy: batch.AllowConcurrent},
					}
					if c.last != 0 {
						cj.Status.LastScheduleTime = &metav1.Time{Time: time.Now().Add(c.last)}
					}
					cluster := controllertest.New(t, cj)
					cluster.Run(Descriptor())
					time.Sleep(after)
					synctest.Wait()
					list, err := cluster.Fake.BatchV1().Jobs("default").List(t.Context(), metav1.ListOptions{})
					if err != nil {
						t.Fatal(err)
					}
					if len(list.Items) != want {
						t.Errorf("after %v there are %d jobs, want %d", after, len(list.Items), want)
					}
				})
			}
		})
	}
}

// Times from which a schedule counts follow the clock when it is set again.
func TestScheduleFollowsTheClock(t *testing.T) {
	begin := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC).Sub(time.Now().Round(0)).Truncate(time.Second)
	at := func(elapsed, set time.Duration) time.Time {
		return wallclocktest.Set(time.Now().Add(elapsed), begin+set)
	}
	cj := &batch.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "tick"}, Spec: batch.CronJobSpec{Schedule: "* * * * *"}}
	cj.Status.LastScheduleTime = &metav1.Time{Time: time.Date(2026, 3, 1, 20, 0, 0, 0, time.UTC)}
	s, err := schedule(cj)
	if err != nil {
		t.Fatal(err)
	}
	c := &cronJobs{}
	if ahead := c.fromNow(cj, s, at(0, 0)); ahead == cj {
		t.Error("a CronJob that was scheduled ten hours ahead counts from then")
	}
	// Ten minutes later, after the clock was set back by another two hours, the CronJob counts from ten
	// minutes ago by that clock.
	now := at(10*time.Minute, -2*time.Hour)
	from := c.fromNow(cj, s, now)
	if got := now.Round(0).Sub(from.Status.LastScheduleTime.Time).Round(time.Minute); got != 10*time.Minute {
		t.Errorf("counts from %v ago", got)
	}
	if got := cj.Status.LastScheduleTime.UTC().Format("15:04"); got != "20:00" {
		t.Errorf("the CronJob itself was changed: %s", got)
	}
	cj.Status.LastScheduleTime = &metav1.Time{Time: now.Add(time.Minute).Round(0)}
	if c.fromNow(cj, s, now) != cj {
		t.Error("a CronJob that was scheduled a minute ahead does not wait for that")
	}
}
