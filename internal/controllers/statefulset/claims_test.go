package statefulset

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
)

// A claim that was deleted while its pod waits for a node is created again. Otherwise
// the pod would wait for ever.
func TestClaimOfPendingPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := controllertest.New(t, setOf(1, apps.OrderedReadyPodManagement, 0))
		c.Run(Descriptor())
		core, ctx := c.Fake.CoreV1(), t.Context()
		exists := func() bool {
			_, err := core.PersistentVolumeClaims("default").Get(ctx, "data-db-0", metav1.GetOptions{})
			return err == nil
		}
		controllertest.Eventually(t, func() int { return len(c.Pods("default")) }, 1)
		pod := c.Pods("default")[0]
		pod.Status.Phase = v1.PodPending
		if _, err := core.Pods("default").UpdateStatus(ctx, &pod, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := core.PersistentVolumeClaims("default").Delete(ctx, "data-db-0", metav1.DeleteOptions{}); err != nil || exists() {
			t.Fatal(err)
		}
		controllertest.Eventually(t, exists, true)
	})
}

// While the former claim of a pod is being deleted, the pod is not created, and an event says why.
func TestClaimBeingDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leaving := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "data-db-0", DeletionTimestamp: &metav1.Time{Time: time.Unix(1, 0)}, Finalizers: []string{"kubernetes.io/pvc-protection"},
		}}
		c := controllertest.New(t, setOf(1, apps.OrderedReadyPodManagement, 0), leaving)
		c.Run(Descriptor())
		synctest.Wait()
		if got := len(c.Pods("default")); got != 0 {
			t.Errorf("%d pods were created", got)
		}
		const want = "Warning FailedCreate create Pod db-0 in StatefulSet db failed error: pvc data-db-0 is being deleted"
		if events := c.DrainEvents(); !slices.Contains(events, want) {
			t.Errorf("events %q, want %q", events, want)
		}
	})
}
