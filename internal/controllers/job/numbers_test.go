package job

import (
	"math"
	"testing"
	"time"

	batch "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The cost of a sync depends on the existing pods and those created next, not on
// spec.parallelism, which may be larger than memory.
func TestLargestParallelism(t *testing.T) {
	for _, mode := range []batch.CompletionMode{batch.NonIndexedCompletion, batch.IndexedCompletion} {
		job := jobOf(math.MaxInt32, math.MaxInt32, 6, mode)
		p := decide(snapshot{job: job, now: time.Now()}, 0, time.Time{})
		if len(p.create) != burst {
			t.Errorf("%s: creates %d pods, want %d", mode, len(p.create), burst)
		}
	}
}

// The cost of a sync does not depend on the length of index ranges.
func TestLargestIndexes(t *testing.T) {
	job := jobOf(10, math.MaxInt32, 6, batch.IndexedCompletion)
	job.Spec.BackoffLimitPerIndex = new(int32(1))
	job.Status.CompletedIndexes = "0-1000000000,1000000003-2147483640"
	job.Status.FailedIndexes = new("1000000001")
	done := podOf(job, 1, 1000000002, v1.PodSucceeded)
	p := decide(snapshot{job: job, pods: []*v1.Pod{done}, now: time.Now()}, 0, time.Time{})
	if want := "0-1000000000,1000000002-2147483640"; p.status.CompletedIndexes != want {
		t.Errorf("completed %s, want %s", p.status.CompletedIndexes, want)
	}
	if want := int32(2147483640); p.status.Succeeded != want {
		t.Errorf("%d succeeded, want %d", p.status.Succeeded, want)
	}
	var next []int
	for _, s := range p.create {
		next = append(next, s.index)
	}
	if len(next) != 6 || next[0] != 2147483641 || next[5] != 2147483646 {
		t.Errorf("creates %v, want 2147483641 to 2147483646", next)
	}
}

func TestSuccessPolicyOfAllIndexes(t *testing.T) {
	job := jobOf(10, math.MaxInt32, 6, batch.IndexedCompletion)
	job.Spec.SuccessPolicy = &batch.SuccessPolicy{Rules: []batch.SuccessPolicyRule{{SucceededIndexes: new("0-2147483646")}}}
	for completed, want := range map[string]int{"0-2147483645": -1, "0-2147483646": 0} {
		if got := matchedRule(job, completed); got != want {
			t.Errorf("with %s completed, rule %d matches, want %d", completed, got, want)
		}
	}
	job.Spec.SuccessPolicy.Rules[0].SucceededCount = new(int32(3))
	for completed, want := range map[string]int{"5,7": -1, "5-7": 0} {
		if got := matchedRule(job, completed); got != want {
			t.Errorf("with %s completed and three wanted, rule %d matches, want %d", completed, got, want)
		}
	}
}

func TestDeadlineBeyondTheEndOfTime(t *testing.T) {
	job := jobOf(1, 1, 6, batch.NonIndexedCompletion)
	job.Spec.ActiveDeadlineSeconds = new(int64(math.MaxInt64))
	job.Status.StartTime = new(metav1.NewTime(time.Now()))
	p := decide(snapshot{job: job, now: time.Now()}, 0, time.Time{})
	if c := condition(&p.status, batch.JobFailureTarget); c != nil {
		t.Errorf("the Job failed: %s", c.Message)
	}
}
