package job

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	batch "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/controllertest"
)

func decideAt(job *batch.Job, pods ...*v1.Pod) plan {
	return decide(snapshot{job: job, pods: pods, now: time.Unix(1000, 0)}, 0, time.Time{})
}

// Indexes above spec.completions do not count once it has been reduced.
func TestFewerCompletions(t *testing.T) {
	job := jobOf(2, 2, 6, batch.IndexedCompletion)
	job.Spec.BackoffLimitPerIndex = new(int32(1))
	job.Status.CompletedIndexes, job.Status.Succeeded = "2,3", 2
	job.Status.FailedIndexes = new("4-6")
	p := decideAt(job)
	if got := describe(p); got != "create 0/0 1/0" || p.status.CompletedIndexes != "" || *p.status.FailedIndexes != "" || p.status.Succeeded != 0 {
		t.Errorf("%s, completed %q, failed %q, %d succeeded", got, p.status.CompletedIndexes, *p.status.FailedIndexes, p.status.Succeeded)
	}
}

// Pods whose index is out of range or that another pod has are deleted first.
func TestSurplusIndexes(t *testing.T) {
	for _, c := range []struct {
		parallelism int32
		indexes     []int
		want        string
	}{
		{2, []int{0, 3, 1}, "p1"},
		{3, []int{0, 3, 1}, "p1"},
		{3, []int{0, 1, 1}, "p2"},
		{1, []int{0, 3, 1}, "p1 p2"},
		{3, []int{0, 1, 2}, ""},
	} {
		job := jobOf(c.parallelism, 3, 6, batch.IndexedCompletion)
		var pods []*v1.Pod
		for i, index := range c.indexes {
			p := podOf(job, i, index, v1.PodRunning)
			p.CreationTimestamp = metav1.NewTime(time.Unix([]int64{0, 900, 990}[i], 0))
			pods = append(pods, p)
		}
		var got []string
		for _, p := range decideAt(job, pods...).delete {
			got = append(got, p.Name)
		}
		if slices.Sort(got); strings.Join(got, " ") != c.want {
			t.Errorf("parallelism %d, indexes %v: deletes %v, want %s", c.parallelism, c.indexes, got, c.want)
		}
	}
}

// The pods that the controller deletes because the Job is suspended or has too many have
// lost the finalizer. They do not delay the pods that are created when it is resumed.
func TestDeletedPodsAreNotFailures(t *testing.T) {
	job := jobOf(2, 2, 6, batch.NonIndexedCompletion)
	c := &jobs{backoffs: map[controller.Key]backoffRecord{}}
	deleted, failure := podOf(job, 1, -1, v1.PodRunning), podOf(job, 2, -1, v1.PodFailed)
	deleted.DeletionTimestamp = &metav1.Time{Time: time.Unix(900, 0)}
	deleted.Finalizers = nil
	now := time.Unix(1000, 0)
	if r := c.recordFailures(job, []*v1.Pod{deleted}, now); r.failures != 0 || !r.lastFailure.IsZero() {
		t.Errorf("%d failures at %v", r.failures, r.lastFailure)
	}
	if n := c.recordFailures(job, []*v1.Pod{deleted, failure}, now).failures; n != 1 {
		t.Errorf("%d failures, want 1", n)
	}
	if n := c.recordFailures(job, nil, now).failures; n != 1 || len(c.backoffs[controller.Key{Namespace: "default", Name: "work"}].counted) != 0 {
		t.Errorf("%d failures, want 1; remembers %v", n, c.backoffs)
	}
}

// A pod that is being deleted has failed when it was deleted, not when its grace period ends.
func TestFinishTimeOfDeletedPod(t *testing.T) {
	p := &v1.Pod{}
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: time.Unix(930, 0)}, new(int64(30))
	if at := finishTime(p); at.Unix() != 900 {
		t.Errorf("failed at %d", at.Unix())
	}
}

// The pods that the controller deletes when too many indexes have failed do not add to
// status.failedIndexes.
func TestFailedIndexesOfFailedJob(t *testing.T) {
	job := jobOf(4, 4, 1<<30, batch.IndexedCompletion)
	job.Spec.BackoffLimitPerIndex, job.Spec.MaxFailedIndexes = new(int32(0)), new(int32(1))
	pods := []*v1.Pod{
		attempt{0, 0, 1}.pod(job, 0), attempt{1, 0, 1}.pod(job, 1), attempt{2, 0, -1}.pod(job, 2), attempt{3, 0, -1}.pod(job, 3),
	}
	p := decideAt(job, pods...)
	if got := describe(p); got != "failed indexes 0,1, release p0 p1, delete p2 p3, FailureTarget/MaxFailedIndexesExceeded" {
		t.Error(got)
	}
	job.Status = p.status
	for _, p := range pods[2:] {
		p.DeletionTimestamp = &metav1.Time{Time: time.Unix(999, 0)}
	}
	p = decideAt(job, pods[2:]...)
	if got := describe(p); got != "failed indexes 0,1, release p2 p3, FailureTarget/MaxFailedIndexesExceeded" {
		t.Error(got)
	}
	if p.status.Failed != 2 || len(p.status.UncountedTerminatedPods.Failed) != 2 {
		t.Errorf("%d failed, uncounted %v", p.status.Failed, p.status.UncountedTerminatedPods.Failed)
	}
}

// A success policy ends a Job without failures.
func TestPodsDeletedBySuccessPolicy(t *testing.T) {
	job := jobOf(2, 2, 6, batch.IndexedCompletion)
	job.Spec.SuccessPolicy = &batch.SuccessPolicy{Rules: []batch.SuccessPolicyRule{{SucceededCount: new(int32(1))}}}
	p := decideAt(job, podOf(job, 0, 0, v1.PodSucceeded), podOf(job, 1, 1, v1.PodRunning))
	if len(p.delete) != 1 || p.countDeleted || !has(&p.status, batch.JobSuccessCriteriaMet) {
		t.Errorf("deletes %d pods, counts them: %v", len(p.delete), p.countDeleted)
	}
}

func TestStartTimeOfSuspendedJob(t *testing.T) {
	job := jobOf(1, 1, 0, batch.NonIndexedCompletion)
	job.Status.StartTime = &metav1.Time{Time: time.Unix(900, 0)}
	job.Spec.Suspend = new(true)
	pod := podOf(job, 0, -1, v1.PodRunning)
	stale := decide(snapshot{job: job, pods: []*v1.Pod{pod}, now: time.Unix(1000, 0), stale: true}, 0, time.Time{})
	if has(&stale.status, batch.JobSuspended) || stale.status.Active != 1 {
		t.Error("the Job is suspended while the cache is stale")
	}
	p := decideAt(job, pod)
	if !has(&p.status, batch.JobSuspended) || p.status.StartTime != nil {
		t.Errorf("the suspended Job started at %v", p.status.StartTime)
	}
	job.Status = p.status
	// A Job may fail while it is suspended. A finished Job has a start time.
	pod.Status.Phase = v1.PodFailed
	job.Status = decideAt(job, pod).status
	pod.Finalizers = nil
	ended := decideAt(job, pod)
	if !has(&ended.status, batch.JobFailed) || ended.status.StartTime == nil {
		t.Errorf("the Job that failed while suspended: %v", ended.status)
	}
	job.Status = p.status
	job.Spec.Suspend = new(false)
	if p = decideAt(job); has(&p.status, batch.JobSuspended) || p.status.StartTime.Unix() != 1000 {
		t.Errorf("the resumed Job started at %v", p.status.StartTime)
	}
}

// A pod may appear after its Job has finished, because the cache did not show it before. It
// does not change the status.
func TestPodAppearsAfterTheEnd(t *testing.T) {
	job := jobOf(1, 1, 6, batch.NonIndexedCompletion)
	p := decide(snapshot{job: job, pods: []*v1.Pod{podOf(job, 0, -1, v1.PodSucceeded)}, now: time.Unix(1000, 0)}, 0, time.Time{})
	job.Status = p.status
	if p = decide(snapshot{job: job, now: time.Unix(1000, 0), stale: true}, 0, time.Time{}); has(&p.status, batch.JobComplete) {
		t.Error("the Job is complete while the cache is stale")
	}
	job.Status = decideAt(job).status
	if !finished(job) {
		t.Fatal("the Job is not complete")
	}
	running, deleted := podOf(job, 1, -1, v1.PodRunning), podOf(job, 2, -1, v1.PodRunning)
	deleted.DeletionTimestamp = &metav1.Time{Time: time.Unix(900, 0)}
	p = decideAt(job, running, deleted)
	if got := fmt.Sprint(len(p.delete), len(p.release)); got != "1 1" || p.countDeleted || p.status.String() != job.Status.String() {
		t.Errorf("deletes and releases %s, status %v", got, p.status)
	}
}

// The remaining pods of a failed Job are deleted once its status says that it has failed.
func TestFailureIsWrittenFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		job := jobOf(1, 1, 6, batch.NonIndexedCompletion)
		job.Spec.ActiveDeadlineSeconds = new(int64(10))
		job.Status.StartTime = new(metav1.NewTime(time.Unix(0, 0)))
		c := controllertest.New(t, job, podOf(job, 1, -1, v1.PodRunning))
		refused := 0
		deletedAfter := -1
		c.Fake.PrependReactor("update", "jobs", func(clienttesting.Action) (bool, runtime.Object, error) {
			if refused++; refused < 3 {
				return true, nil, apierrors.NewConflict(batch.Resource("jobs"), "work", errors.New("changed"))
			}
			return false, nil, nil
		})
		c.Fake.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			deletedAfter = refused
			return false, nil, nil
		})
		c.Run(Descriptor())
		synctest.Wait()
		controllertest.Eventually(t, func() int { return len(c.Pods("default")) }, 0)
		if deletedAfter < 3 {
			t.Errorf("a pod was deleted after %d refused writes of the status", deletedAfter)
		}
	})
}

// A Job with more succeeded pods than completions says so when it completes.
func TestTooManySucceededPods(t *testing.T) {
	for succeeded, want := range map[int32]string{1: "[{Normal Completed Job completed}]", 2: "[{Warning TooManySucceededPods Too many succeeded pods running after completion count reached} {Normal Completed Job completed}]"} {
		job := jobOf(1, 1, 6, batch.NonIndexedCompletion)
		job.Status.Succeeded = succeeded
		job.Status.Conditions = []batch.JobCondition{{Type: batch.JobSuccessCriteriaMet, Status: v1.ConditionTrue, Reason: batch.JobReasonCompletionsReached}}
		if p := decideAt(job); fmt.Sprint(p.events) != want {
			t.Errorf("%d succeeded: events %v, want %s", succeeded, p.events, want)
		}
	}
}
