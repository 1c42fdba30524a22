package statefulset

import (
	"testing"
	"testing/synctest"

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
