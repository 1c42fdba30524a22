package ttlafterfinished

import (
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	batch "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clienttesting "k8s.io/client-go/testing"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
	"github.com/coracle-io/coracle/internal/leaktest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Run(m)) }

// jobOf returns a Job that has finished now, with a condition of type t.
func jobOf(name string, ttl *int32, t batch.JobConditionType) *batch.Job {
	job := &batch.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "uid"}, Spec: batch.JobSpec{TTLSecondsAfterFinished: ttl}}
	if t != "" {
		job.Status.Conditions = []batch.JobCondition{{Type: t, Status: v1.ConditionTrue, LastTransitionTime: metav1.Now()}}
	}
	return job
}

// A Job is deleted in the foreground once it has been finished for its TTL.
func TestDeletesFinishedJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		minute := new(int32(60))
		c := controllertest.New(t, jobOf("complete", minute, batch.JobComplete), jobOf("failed", new(int32(0)), batch.JobFailed),
			jobOf("running", minute, ""), jobOf("suspended", minute, batch.JobSuspended), jobOf("kept", nil, batch.JobComplete))
		registry := prometheus.NewRegistry()
		c.Env.Metrics = registry
		c.Run(Descriptor())
		after := func(d time.Duration, want map[string]bool) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			for name, exists := range want {
				_, err := c.Fake.BatchV1().Jobs("default").Get(t.Context(), name, metav1.GetOptions{})
				if err != nil && !apierrors.IsNotFound(err) {
					t.Fatal(err)
				}
				if (err == nil) != exists {
					t.Errorf("after %v: %s exists: %v", d, name, err == nil)
				}
			}
		}
		after(0, map[string]bool{"complete": true, "failed": false})
		after(59*time.Second, map[string]bool{"complete": true})
		after(2*time.Second, map[string]bool{"complete": false, "running": true, "suspended": true, "kept": true})
		for _, action := range c.Fake.Actions() {
			d, ok := action.(clienttesting.DeleteActionImpl)
			if !ok {
				continue
			}
			o := d.DeleteOptions
			if o.PropagationPolicy == nil || *o.PropagationPolicy != metav1.DeletePropagationForeground || o.Preconditions == nil || o.Preconditions.UID == nil || o.Preconditions.ResourceVersion == nil {
				t.Errorf("%s is deleted with %+v", d.Name, o)
			}
		}
		families, err := registry.Gather()
		if err != nil || len(families) != 1 || families[0].GetName() != "ttl_after_finished_controller_job_deletion_duration_seconds" ||
			families[0].GetMetric()[0].GetHistogram().GetSampleCount() != 2 {
			t.Errorf("metrics %v, %v", families, err)
		}
	})
}

// A TTL that is set or extended later counts from the end of the Job.
func TestTTLChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := controllertest.New(t, jobOf("work", new(int32(60)), batch.JobComplete))
		c.Run(Descriptor())
		time.Sleep(30 * time.Second)
		synctest.Wait()
		jobs := c.Fake.BatchV1().Jobs("default")
		job, err := jobs.Get(t.Context(), "work", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		job.Spec.TTLSecondsAfterFinished = new(int32(120))
		if _, err := jobs.Update(t.Context(), job, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(89 * time.Second)
		synctest.Wait()
		if _, err := jobs.Get(t.Context(), "work", metav1.GetOptions{}); err != nil {
			t.Errorf("after 119 s: %v", err)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if _, err := jobs.Get(t.Context(), "work", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("after 121 s: %v", err)
		}
	})
}

// A Job that finished in the future, because the clock was set back, is deleted after its TTL too.
func TestTTLAfterTheClockIsSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		job := jobOf("work", new(int32(60)), batch.JobComplete)
		job.Status.Conditions[0].LastTransitionTime = metav1.NewTime(time.Now().Add(time.Hour))
		c := controllertest.New(t, job)
		c.Run(Descriptor())
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if _, err := c.Fake.BatchV1().Jobs("default").Get(t.Context(), "work", metav1.GetOptions{}); err != nil {
			t.Errorf("after 59 s: %v", err)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if _, err := c.Fake.BatchV1().Jobs("default").Get(t.Context(), "work", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("after 61 s: %v", err)
		}
	})
}
