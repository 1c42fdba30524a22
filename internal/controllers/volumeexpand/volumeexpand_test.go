package volumeexpand

import (
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
)

func storage(size string) v1.ResourceList {
	return v1.ResourceList{v1.ResourceStorage: resource.MustParse(size)}
}

func claimOf(requests, has string, phase v1.PersistentVolumeClaimPhase) *v1.PersistentVolumeClaim {
	return &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data", UID: "data"},
		Spec:       v1.PersistentVolumeClaimSpec{VolumeName: "pv", Resources: v1.VolumeResourceRequirements{Requests: storage(requests)}},
		Status:     v1.PersistentVolumeClaimStatus{Phase: phase, Capacity: storage(has)},
	}
}

// A bound claim that asks for more than its volume has waits for an external controller, and an event
// says so, once for each size.
func TestEventAboutExpansion(t *testing.T) {
	for _, test := range []struct {
		about string
		claim *v1.PersistentVolumeClaim
		owner types.UID // the claim that the volume belongs to
		want  int       // events
	}{
		{"larger than its volume", claimOf("2Gi", "1Gi", v1.ClaimBound), "data", 1},
		{"as large as its volume", claimOf("1Gi", "1Gi", v1.ClaimBound), "data", 0},
		{"not bound", claimOf("2Gi", "1Gi", v1.ClaimPending), "data", 0},
		{"with the volume of another", claimOf("2Gi", "1Gi", v1.ClaimBound), "another", 0},
	} {
		t.Run(test.about, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				volume := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
				volume.Spec.ClaimRef = &v1.ObjectReference{UID: test.owner}
				c := controllertest.New(t, volume, test.claim)
				c.Run(Descriptor())
				events := func() (n int) {
					synctest.Wait()
					for _, e := range c.DrainEvents() {
						if e != "Normal ExternalExpanding waiting for an external controller to expand this PVC" {
							t.Errorf("event %q", e)
						}
						n++
					}
					return n
				}
				if n := events(); n != test.want {
					t.Errorf("%d events, want %d", n, test.want)
				}
				claim, err := c.Fake.CoreV1().PersistentVolumeClaims("default").Get(t.Context(), "data", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				claim.Labels = map[string]string{"changed": "metadata"}
				if claim, err = c.Fake.CoreV1().PersistentVolumeClaims("default").Update(t.Context(), claim, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
				if n := events(); n != 0 {
					t.Errorf("%d events after a change of metadata", n)
				}
				claim.Spec.Resources.Requests = storage("3Gi")
				if _, err = c.Fake.CoreV1().PersistentVolumeClaims("default").Update(t.Context(), claim, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
				want := 0
				if test.claim.Status.Phase == v1.ClaimBound && test.owner == "data" {
					want = 1
				}
				if n := events(); n != want {
					t.Errorf("%d events about a larger size, want %d", n, want)
				}
			})
		})
	}
}

// The driver that took the place of an in-tree plugin expands its volumes, once their
// claims say so.
func TestVolumeOfAnInTreePlugin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		volume := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
		volume.Spec.ClaimRef = &v1.ObjectReference{UID: "data"}
		volume.Spec.AWSElasticBlockStore = &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-3"}
		c := controllertest.New(t, volume, claimOf("2Gi", "1Gi", v1.ClaimBound))
		c.Run(Descriptor())
		synctest.Wait()
		claim, err := c.Fake.CoreV1().PersistentVolumeClaims("default").Get(t.Context(), "data", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := claim.Annotations["volume.kubernetes.io/storage-resizer"]; got != "ebs.csi.aws.com" {
			t.Errorf("the resizer is %q", got)
		}
		const want = "Normal ExternalExpanding CSI migration enabled for kubernetes.io/aws-ebs; waiting for external resizer to expand the pvc"
		if got := c.DrainEvents(); len(got) != 1 || got[0] != want {
			t.Errorf("events %q", got)
		}
	})
}
