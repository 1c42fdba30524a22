package localvolume

import (
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
)

// requestSize lets the claim, which is bound, request a size.
func requestSize(t *testing.T, c *controllertest.Cluster, size string) {
	t.Helper()
	synctest.Wait() // the provisioner writes the claim, too
	claims := c.Fake.CoreV1().PersistentVolumeClaims("default")
	claim, err := claims.Get(t.Context(), "data", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	claim.Spec.VolumeName = "pvc-1234"
	claim.Spec.Resources.Requests = v1.ResourceList{v1.ResourceStorage: resource.MustParse(size)}
	if claim, err = claims.Update(t.Context(), claim, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if claim.Status.Phase == "" { // the binder's part
		claim.Status = v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound, Capacity: claim.Spec.Resources.Requests}
		if _, err := claims.UpdateStatus(t.Context(), claim, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// A volume of this node grows with the request of its claim, one of another node does not.
func TestExpand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, t.TempDir()+"/volumes", class(nil), requesting("n", nil))
		controllertest.Eventually(t, func() int { return len(volumes(c)) }, 1)
		claims := c.Fake.CoreV1().PersistentVolumeClaims("default")
		sizes := func() string {
			claim, err := claims.Get(t.Context(), "data", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			v := volumes(c)["pvc-1234"]
			return fmt.Sprint(claim.Status.Capacity.Storage(), " of ", v.Spec.Capacity.Storage())
		}
		requestSize(t, c, "1Gi")
		requestSize(t, c, "3Gi")
		controllertest.Eventually(t, sizes, "3Gi of 3Gi")

		v := volumes(c)["pvc-1234"]
		v.Annotations[nodeAnnotation] = "another"
		if _, err := c.Fake.CoreV1().PersistentVolumes().Update(t.Context(), &v, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		requestSize(t, c, "5Gi")
		time.Sleep(time.Minute)
		if got := sizes(); got != "3Gi of 3Gi" {
			t.Errorf("a volume of another node: %s", got)
		}
	})
}

// A claim that requests more before the provisioner sees its volume gets it.
func TestExpandOnceTheVolumeIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "volumes")
		claim := requesting("n", func(c *v1.PersistentVolumeClaim) {
			c.Spec.VolumeName, c.Spec.Resources.Requests = "pvc-1234", v1.ResourceList{v1.ResourceStorage: resource.MustParse("3Gi")}
			c.Status = v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound, Capacity: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}}
		})
		bound := made(t, dir, func(v *v1.PersistentVolume) {
			v.Status.Phase, v.Spec.Capacity = v1.VolumeBound, v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}
		})
		c := start(t, dir, class(nil), claim)
		synctest.Wait()
		if _, err := c.Fake.CoreV1().PersistentVolumes().Create(t.Context(), bound, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, func() string {
			claim, err := c.Fake.CoreV1().PersistentVolumeClaims("default").Get(t.Context(), "data", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return claim.Status.Capacity.Storage().String()
		}, "3Gi")
	})
}
