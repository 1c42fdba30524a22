package volumeprotection

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
	"github.com/coracle-io/coracle/internal/feature"
)

// TestUnusedCondition checks that bound claims say since when no pod references them.
// A pod without a node counts, and one that has finished does not.
func TestUnusedCondition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		claim := func(name string, phase v1.PersistentVolumeClaimPhase) *v1.PersistentVolumeClaim {
			return &v1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Finalizers: []string{claimFinalizer}},
				Status:     v1.PersistentVolumeClaimStatus{Phase: phase},
			}
		}
		c := controllertest.New(t, claim("data", v1.ClaimBound), claim("waiting", v1.ClaimPending))
		c.Run(Claims())
		begin := time.Now()
		conditions := func() string {
			list, err := c.Fake.CoreV1().PersistentVolumeClaims("default").List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			out := ""
			for _, claim := range list.Items {
				out += claim.Name
				for _, condition := range claim.Status.Conditions {
					out += fmt.Sprint(" ", condition.Type, "=", condition.Status, " ", condition.Reason, " for ", condition.LastTransitionTime.Sub(begin).Round(time.Second))
				}
				out += "; "
			}
			return out
		}
		controllertest.Eventually(t, conditions, "data Unused=True NoPodsUsingPVC for 0s; waiting; ")
		begin = time.Now()
		pod, err := c.Fake.CoreV1().Pods("default").Create(t.Context(), &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "user"},
			Spec: v1.PodSpec{Volumes: []v1.Volume{{VolumeSource: v1.VolumeSource{
				PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
			}}}},
			Status: v1.PodStatus{Phase: v1.PodPending},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, conditions, "data Unused=False PodUsingPVC for 0s; waiting; ")
		begin = time.Now()
		pod.Status.Phase = v1.PodSucceeded
		if _, err := c.Fake.CoreV1().Pods("default").UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, conditions, "data Unused=True NoPodsUsingPVC for 0s; waiting; ")
	})
}

// Without the feature gate, claims get the finalizer and no condition.
func TestUnusedConditionIsOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := controllertest.New(t, &v1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data"},
			Status:     v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound},
		})
		gates, err := feature.Parse([]string{"PersistentVolumeClaimUnusedSinceTime=false"})
		if err != nil {
			t.Fatal(err)
		}
		c.Env.Features = gates
		c.Run(Claims())
		synctest.Wait()
		claim, err := c.Fake.CoreV1().PersistentVolumeClaims("default").Get(t.Context(), "data", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(claim.Finalizers) != 1 || len(claim.Status.Conditions) != 0 {
			t.Errorf("finalizers %v, conditions %v", claim.Finalizers, claim.Status.Conditions)
		}
	})
}
