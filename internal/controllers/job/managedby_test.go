package job

import (
	"testing"
	"testing/synctest"
	"time"

	batch "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
)

// A Job that names another controller is left to that one: it gets neither pods nor a
// status.
func TestJobOfAnotherController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		job := jobOf(2, 2, 6, batch.NonIndexedCompletion)
		job.Spec.ManagedBy = new("example.com/queue")
		c := controllertest.New(t, job)
		c.Run(Descriptor())
		time.Sleep(time.Minute)
		synctest.Wait()
		got, err := c.Fake.BatchV1().Jobs("default").Get(t.Context(), "work", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if pods := c.Pods("default"); len(pods) > 0 || got.Status.StartTime != nil || len(got.Status.Conditions) > 0 {
			t.Errorf("it has %d pods and the status %+v", len(pods), got.Status)
		}
	})
}
