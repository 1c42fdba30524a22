package job

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	batch "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
)

// attempt describes a pod of an index that terminated with an exit code at time 900 s,
// after earlier failures. A pod with code -1 is running.
type attempt struct{ index, failures, code int }

func (a attempt) pod(job *batch.Job, n int) *v1.Pod {
	p := newPod(job, podToCreate{index: a.index, failures: &indexFailures{counted: a.failures}})
	p.Name = fmt.Sprint("p", n)
	p.UID = types.UID(p.Name)
	p.Status.Phase = v1.PodRunning
	if a.code < 0 {
		return p
	}
	p.Status.Phase = v1.PodSucceeded
	if a.code > 0 {
		p.Status.Phase = v1.PodFailed
	}
	p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "c", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
		ExitCode: int32(a.code), FinishedAt: metav1.NewTime(time.Unix(900, 0)),
	}}}}
	return p
}

func TestLimitPerIndex(t *testing.T) {
	failIndex := &batch.PodFailurePolicy{Rules: []batch.PodFailurePolicyRule{{
		Action: batch.PodFailurePolicyActionFailIndex,
		OnExitCodes: &batch.PodFailurePolicyOnExitCodesRequirement{
			Operator: batch.PodFailurePolicyOnExitCodesOpIn, Values: []int32{42},
		},
	}}}
	failJob := failIndex.DeepCopy()
	failJob.Rules[0].Action = batch.PodFailurePolicyActionFailJob
	for _, c := range []struct {
		name   string
		pods   []attempt
		change func(*batch.JobSpec)
		want   string
	}{
		{"new", nil, nil, "create 0/0 1/0 2/0"},
		{"retries an index", []attempt{{0, 0, 1}, {1, 0, -1}, {2, 0, -1}}, nil, "create 0/1, release "},
		{"back-off grows with failures", []attempt{{0, 4, 1}, {1, 0, -1}, {2, 0, -1}}, func(j *batch.JobSpec) { j.BackoffLimitPerIndex = new(int32(9)) }, "requeue after 1m0s"},
		{"releases a replaced pod", []attempt{{0, 0, 1}, {0, 1, -1}, {1, 0, -1}, {2, 0, -1}}, nil, "release p0"},
		{"fails an index", []attempt{{0, 1, 1}, {1, 0, -1}, {2, 0, -1}}, nil, "failed indexes 0, release p0"},
		{"fails an index by its policy", []attempt{{0, 0, 42}, {1, 0, -1}, {2, 0, -1}}, func(j *batch.JobSpec) { j.PodFailurePolicy = failIndex }, "failed indexes 0, release p0"},
		{"fails when all other indexes are complete", []attempt{{0, 1, 1}, {1, 0, 0}, {2, 0, 0}}, nil, "failed indexes 0, release p0 p1 p2, FailureTarget/FailedIndexes"},
		{"fails with too many failed indexes", []attempt{{0, 1, 1}, {1, 1, 1}, {2, 0, -1}}, func(j *batch.JobSpec) { j.MaxFailedIndexes = new(int32(1)) },
			"failed indexes 0,1, release p0 p1, delete p2, FailureTarget/MaxFailedIndexesExceeded"},
		{"fails by its policy before it retries", []attempt{{0, 0, 42}, {1, 0, -1}, {2, 0, -1}}, func(j *batch.JobSpec) { j.PodFailurePolicy = failJob },
			"release p0, delete p1 p2, FailureTarget/PodFailurePolicy"},
		{"fails with too many failures that are not retried yet", []attempt{{0, 0, 1}, {1, 0, 1}, {2, 0, -1}}, func(j *batch.JobSpec) { j.BackoffLimit = new(int32(1)) },
			"release p0 p1, delete p2, FailureTarget/BackoffLimitExceeded"},
		{"succeeds before it retries", []attempt{{0, 0, 1}, {1, 0, 0}, {2, 0, -1}}, func(j *batch.JobSpec) {
			j.SuccessPolicy = &batch.SuccessPolicy{Rules: []batch.SuccessPolicyRule{{SucceededCount: new(int32(1))}}}
		}, "release p1 p0, delete p2, SuccessCriteriaMet/SuccessPolicy"},
	} {
		t.Run(c.name, func(t *testing.T) {
			job := jobOf(3, 3, 1<<30, batch.IndexedCompletion)
			job.Spec.BackoffLimitPerIndex = new(int32(1))
			if c.change != nil {
				c.change(&job.Spec)
			}
			s := snapshot{job: job, now: time.Unix(1000, 0)}
			for i, a := range c.pods {
				s.pods = append(s.pods, a.pod(job, i))
			}
			if got := describe(decide(s, 0, time.Time{})); got != strings.TrimSuffix(c.want, ", release ") {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func describe(p plan) string {
	var parts []string
	list := func(what string, items []string) {
		if len(items) > 0 {
			parts = append(parts, what+" "+strings.Join(items, " "))
		}
	}
	names := func(pods []*v1.Pod) (out []string) {
		for _, p := range pods {
			out = append(out, p.Name)
		}
		return out
	}
	var create []string
	for _, s := range p.create {
		create = append(create, fmt.Sprintf("%d/%d", s.index, s.failures.counted))
	}
	list("create", create)
	if f := p.status.FailedIndexes; f != nil && *f != "" {
		list("failed indexes", []string{*f})
	}
	list("release", names(p.release))
	list("delete", names(p.delete))
	for _, c := range p.status.Conditions {
		parts = append(parts, string(c.Type)+"/"+c.Reason)
	}
	if p.requeueAfter > 0 {
		parts = append(parts, "requeue after "+p.requeueAfter.String())
	}
	return strings.Join(parts, ", ")
}

func TestSuccessPolicy(t *testing.T) {
	for _, c := range []struct {
		rules     []batch.SuccessPolicyRule
		completed string
		want      int
	}{
		{[]batch.SuccessPolicyRule{{SucceededCount: new(int32(2))}}, "3", -1},
		{[]batch.SuccessPolicyRule{{SucceededCount: new(int32(2))}}, "0,3", 0},
		{[]batch.SuccessPolicyRule{{SucceededIndexes: new("0-2")}}, "0,1,4", -1},
		{[]batch.SuccessPolicyRule{{SucceededIndexes: new("0-2")}}, "0-2", 0},
		{[]batch.SuccessPolicyRule{{SucceededIndexes: new("invalid-form")}}, "0", -1},
		{[]batch.SuccessPolicyRule{{SucceededIndexes: new("")}}, "1-3", -1},
		{[]batch.SuccessPolicyRule{{SucceededIndexes: new("")}}, "", -1},
		{[]batch.SuccessPolicyRule{}, "0", -1},
		{[]batch.SuccessPolicyRule{{SucceededIndexes: new("9")}, {SucceededIndexes: new("4,6")}}, "0-2,4-7", 1},
		{[]batch.SuccessPolicyRule{{SucceededIndexes: new("1-3,5-7")}}, "2-4,6-8", -1},
		{[]batch.SuccessPolicyRule{{SucceededIndexes: new("1-3,5-7"), SucceededCount: new(int32(4))}}, "2-4,6-8", 0},
		{[]batch.SuccessPolicyRule{{SucceededIndexes: new("0-6,8-9"), SucceededCount: new(int32(7))}}, "1-3,5-9", 0},
		{[]batch.SuccessPolicyRule{{SucceededIndexes: new("0")}, {SucceededIndexes: new("1-3"), SucceededCount: new(int32(2))}}, "1,3", 1},
	} {
		job := jobOf(5, 5, 6, batch.IndexedCompletion)
		job.Spec.SuccessPolicy = &batch.SuccessPolicy{Rules: c.rules}
		if got := matchedRule(job, c.completed); got != c.want {
			t.Errorf("%v with %s: rule %d, want %d", c.rules, c.completed, got, c.want)
		}
	}
}

// The pods of a Job that is deleted with the policy Orphan lose the tracking finalizer,
// so that they can be deleted.
func TestOrphansLoseFinalizer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		job := jobOf(1, 1, 6, batch.NonIndexedCompletion)
		c := controllertest.New(t, job)
		c.Run(Descriptor())
		synctest.Wait()
		finalizers := func() (all []string) {
			for _, p := range c.Pods("default") {
				all = append(all, p.Finalizers...)
			}
			return all
		}
		controllertest.Eventually(t, finalizers, []string{batch.JobTrackingFinalizer})
		jobs := c.Fake.BatchV1().Jobs("default")
		err := retry.RetryOnConflict(retry.DefaultRetry, func() error { // the controller writes the status
			deleting, err := jobs.Get(t.Context(), "work", metav1.GetOptions{})
			if err != nil {
				return err
			}
			deleting.DeletionTimestamp = &metav1.Time{Time: time.Unix(1000, 0)}
			deleting.Finalizers = []string{metav1.FinalizerOrphanDependents}
			_, err = jobs.Update(t.Context(), deleting, metav1.UpdateOptions{})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		pod := c.Pods("default")[0]
		pod.OwnerReferences = nil
		if _, err := c.Fake.CoreV1().Pods("default").Update(t.Context(), &pod, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := c.Fake.BatchV1().Jobs("default").Delete(t.Context(), "work", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, finalizers, nil)
	})
}
