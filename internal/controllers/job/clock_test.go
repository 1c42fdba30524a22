package job

import (
	"testing"
	"testing/synctest"
	"time"

	batch "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/controllertest"
	"github.com/coracle-io/coracle/internal/wallclock"
	"github.com/coracle-io/coracle/internal/wallclock/wallclocktest"
)

// The back-off after a failure takes as long as it is, though the clock is set by an hour after
// the failure was seen, or was set back before, so that the failure lies in the future.
func TestBackOffAfterTheClockIsSet(t *testing.T) {
	begin := time.Now()
	for _, c := range []struct {
		name       string
		ended, set time.Duration // when the pod ended, and by what the clock is set since; relative to begin
	}{
		{"not set", 0, 0},
		{"set back before", time.Hour, 0},
		{"set back", 0, -time.Hour},
		{"set forward", 0, time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			job := jobOf(1, 1, 6, batch.NonIndexedCompletion)
			pod := podOf(job, 0, -1, v1.PodFailed)
			pod.Status.ContainerStatuses = []v1.ContainerStatus{terminated("c", begin.Add(c.ended).Unix())}
			controls := &jobs{backoffs: map[controller.Key]backoffRecord{}}
			controls.recordFailures(job, []*v1.Pod{pod}, begin)
			wait := func(elapsed time.Duration) time.Duration {
				now := wallclocktest.Set(begin.Add(elapsed), c.set)
				r := controls.recordFailures(job, []*v1.Pod{pod}, now)
				return decide(snapshot{job: job, pods: []*v1.Pod{pod}, now: now, ended: r.counted}, r.failures, r.lastFailure).requeueAfter
			}
			// The time in the status has whole seconds.
			if left := wait(4 * time.Second); left <= 5*time.Second || left > 6*time.Second {
				t.Errorf("after 4 s, the Job waits for %v", left)
			}
			if left := wait(10 * time.Second); left != 0 {
				t.Errorf("after 10 s, the Job waits for %v", left)
			}
		})
	}
}

// The same for the back-off of an index.
func TestBackOffOfIndexAfterTheClockIsSet(t *testing.T) {
	begin := time.Now()
	for _, set := range []time.Duration{0, -time.Hour, time.Hour} {
		job := jobOf(1, 1, 6, batch.IndexedCompletion)
		job.Spec.BackoffLimitPerIndex = new(int32(4))
		pod := attempt{0, 0, 1}.pod(job, 0)
		pod.Status.ContainerStatuses[0].State.Terminated.FinishedAt = metav1.NewTime(begin)
		controls := &jobs{backoffs: map[controller.Key]backoffRecord{}}
		controls.recordFailures(job, []*v1.Pod{pod}, begin)
		now := wallclocktest.Set(begin.Add(4*time.Second), set)
		s := snapshot{job: job, pods: []*v1.Pod{pod}, now: now, ended: controls.recordFailures(job, []*v1.Pod{pod}, now).counted}
		if _, left := s.retry(pod); left != 6*time.Second {
			t.Errorf("set by %v: after 4 s, the index waits for %v, want 6s", set, left)
		}
	}
}

// activeDeadlineSeconds count from when the controller saw that the Job has started, if the
// clock was set back since.
func TestDeadlineAfterTheClockIsSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		job := jobOf(1, 1, 6, batch.NonIndexedCompletion)
		job.Spec.ActiveDeadlineSeconds = new(int64(60))
		job.Status.StartTime = &metav1.Time{Time: time.Now().Add(time.Hour)}
		c := controllertest.New(t, job)
		c.Run(Descriptor())
		reason := func() string {
			synctest.Wait()
			j, err := c.Fake.BatchV1().Jobs("default").Get(t.Context(), "work", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, cond := range j.Status.Conditions {
				if cond.Type == batch.JobFailureTarget {
					return cond.Reason
				}
			}
			return ""
		}
		time.Sleep(55 * time.Second)
		if got := reason(); got != "" {
			t.Errorf("after 55 s the Job fails: %s", got)
		}
		time.Sleep(10 * time.Second)
		if got := reason(); got != batch.JobReasonDeadlineExceeded {
			t.Errorf("after 65 s the Job has the reason %q", got)
		}
	})
}

// A Job that runs does not exceed its deadline because the clock is set forward.
func TestDeadlineAfterTheClockIsSetForward(t *testing.T) {
	begin := time.Now()
	job := jobOf(1, 1, 6, batch.NonIndexedCompletion)
	job.Spec.ActiveDeadlineSeconds = new(int64(60))
	job.Status.StartTime = &metav1.Time{Time: begin.Round(0)}
	var started wallclock.Moments[string]
	decideAfter := func(elapsed, set time.Duration) plan {
		now := wallclocktest.Set(begin.Add(elapsed), set)
		return decide(snapshot{job: job, now: now, started: started.At("work", job.Status.StartTime.Time, now)}, 0, time.Time{})
	}
	decideAfter(0, 0)
	if p := decideAfter(20*time.Second, time.Hour); has(&p.status, batch.JobFailureTarget) || p.requeueAfter != 40*time.Second {
		t.Errorf("after 20 s the Job has %v, and is synced again after %v", p.status.Conditions, p.requeueAfter)
	}
	if p := decideAfter(60*time.Second, time.Hour); !has(&p.status, batch.JobFailureTarget) {
		t.Error("after 60 s the deadline is not exceeded")
	}
}
