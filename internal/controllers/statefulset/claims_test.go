package statefulset

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

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

// A pod that has been replaced meanwhile is not a failed deletion.
func TestReplacedPodIsNotDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := setOf(1, apps.OrderedReadyPodManagement, 0)
		c := controllertest.New(t, set)
		c.Run(Descriptor())
		controllertest.Eventually(t, func() int { return len(c.Pods("default")) }, 1)
		synctest.Wait() // the status is written
		refusals := 0
		c.Fake.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			if refusals++; refusals > 3 {
				return false, nil, nil
			}
			return true, nil, apierrors.NewConflict(v1.Resource("pods"), "db-0", errors.New("the UID in the precondition does not match"))
		})
		latest, err := c.Fake.AppsV1().StatefulSets("default").Get(t.Context(), set.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		latest.Spec.Replicas = new(int32)
		if _, err := c.Fake.AppsV1().StatefulSets("default").Update(t.Context(), latest, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, func() int { return len(c.Pods("default")) }, 0)
		if events := c.DrainEvents(); slices.ContainsFunc(events, func(e string) bool { return strings.Contains(e, "FailedDelete") }) {
			t.Errorf("events %q", events)
		}
	})
}
