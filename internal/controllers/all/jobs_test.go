package all_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	batch "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
)

// makeJob creates an indexed Job called work.
func (c *shop) makeJob(change func(*batch.JobSpec)) {
	c.t.Helper()
	_, template := podTemplate("work")
	template.Spec.RestartPolicy = v1.RestartPolicyNever
	job := &batch.Job{ObjectMeta: metav1.ObjectMeta{Name: "work"}, Spec: batch.JobSpec{
		CompletionMode: new(batch.IndexedCompletion), Completions: new(int32(4)), Parallelism: new(int32(4)), Template: template,
	}}
	change(&job.Spec)
	if _, err := c.BatchV1().Jobs("shop").Create(c.t.Context(), job, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

func (c *shop) patchJob(patch string) {
	c.t.Helper()
	if _, err := c.BatchV1().Jobs("shop").Patch(c.t.Context(), "work", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// job describes the status of the Job.
func (c *shop) job() string {
	j, err := c.BatchV1().Jobs("shop").Get(c.t.Context(), "work", metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	st := j.Status
	out := fmt.Sprintf("%d active, %d succeeded, %d failed", st.Active, st.Succeeded, st.Failed)
	if st.CompletedIndexes != "" {
		out += ", completed " + st.CompletedIndexes
	}
	if st.FailedIndexes != nil && *st.FailedIndexes != "" {
		out += ", failed indexes " + *st.FailedIndexes
	}
	if st.StartTime == nil {
		out += ", not started"
	}
	for _, condition := range st.Conditions {
		if condition.Status == v1.ConditionTrue {
			out += ", " + string(condition.Type)
		}
	}
	return out
}

// end ends the pods of some indexes with a phase.
func (c *shop) end(phase v1.PodPhase, indexes string) {
	c.t.Helper()
	for index := range strings.FieldsSeq(indexes) {
		controllertest.Eventually(c.t, func() bool {
			list, err := c.CoreV1().Pods("shop").List(c.t.Context(), metav1.ListOptions{LabelSelector: batch.JobCompletionIndexAnnotation + "=" + index})
			if err != nil {
				c.t.Fatal(err)
			}
			for _, p := range list.Items {
				if p.Status.Phase != v1.PodPending || p.DeletionTimestamp != nil {
					continue
				}
				patch := fmt.Sprintf(`{"status":{"phase":%q}}`, phase)
				_, err := c.CoreV1().Pods("shop").Patch(c.t.Context(), p.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
				if err != nil && !apierrors.IsNotFound(err) {
					c.t.Fatal(err)
				}
				return err == nil
			}
			return false
		}, true)
	}
}

// A Job whose completions are reduced is not complete by the indexes above them.
func TestElasticJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newShop(t)
		c.makeJob(func(*batch.JobSpec) {})
		controllertest.Eventually(t, c.pods("work-"), 4)
		c.end(v1.PodSucceeded, "2 3")
		controllertest.Eventually(t, c.job, "2 active, 2 succeeded, 0 failed, completed 2,3")
		c.patchJob(`{"spec":{"completions":2,"parallelism":2}}`)
		controllertest.Eventually(t, c.job, "2 active, 0 succeeded, 0 failed")
		c.end(v1.PodSucceeded, "0 1")
		controllertest.Eventually(t, c.job, "0 active, 2 succeeded, 0 failed, completed 0,1, SuccessCriteriaMet, Complete")
	})
}

// The pods of a failed Job are deleted and counted, but only the indexes that failed are listed.
func TestFailedIndexes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newShop(t)
		c.makeJob(func(j *batch.JobSpec) { j.BackoffLimitPerIndex, j.MaxFailedIndexes = new(int32(0)), new(int32(1)) })
		controllertest.Eventually(t, c.pods("work-"), 4)
		c.end(v1.PodFailed, "0 1")
		controllertest.Eventually(t, c.job, "0 active, 0 succeeded, 4 failed, failed indexes 0,1, FailureTarget, Failed")
	})
}

// A Job that succeeds by its policy deletes its other pods, which do not count as failed.
func TestSuccessPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newShop(t)
		c.makeJob(func(j *batch.JobSpec) {
			j.SuccessPolicy = &batch.SuccessPolicy{Rules: []batch.SuccessPolicyRule{{SucceededIndexes: new("0")}}}
		})
		controllertest.Eventually(t, c.pods("work-"), 4)
		c.end(v1.PodSucceeded, "0")
		controllertest.Eventually(t, c.job, "0 active, 1 succeeded, 0 failed, completed 0, SuccessCriteriaMet, Complete")
		controllertest.Eventually(t, c.pods("work-"), 1)
	})
}

// A Job that is suspended deletes its pods. When it is resumed, it makes new ones at once.
func TestSuspendedJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newShop(t)
		c.makeJob(func(*batch.JobSpec) {})
		controllertest.Eventually(t, c.pods("work-"), 4)
		for range 3 {
			c.patchJob(`{"spec":{"suspend":true}}`)
			controllertest.Eventually(t, c.job, "0 active, 0 succeeded, 0 failed, not started, Suspended")
			controllertest.Eventually(t, c.pods("work-"), 0)
			begin := time.Now()
			c.patchJob(`{"spec":{"suspend":false}}`)
			controllertest.Eventually(t, c.job, "4 active, 0 succeeded, 0 failed")
			t.Logf("resumed after %v", time.Since(begin))
		}
		pods, err := c.CoreV1().Pods("shop").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range pods.Items {
			for _, label := range []string{"batch.kubernetes.io/job-name", "batch.kubernetes.io/controller-uid", "job-name", "controller-uid"} {
				if p.Labels[label] == "" {
					t.Errorf("pod %s lacks the label %s", p.Name, label)
				}
			}
		}
	})
}
