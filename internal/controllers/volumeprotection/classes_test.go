package volumeprotection

import (
	"fmt"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
)

func TestClassInUseIsProtected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := metav1.Now()
		class := func(name string, deleted *metav1.Time, finalizers ...string) *storagev1.VolumeAttributesClass {
			return &storagev1.VolumeAttributesClass{ObjectMeta: metav1.ObjectMeta{Name: name, DeletionTimestamp: deleted, Finalizers: finalizers}}
		}
		claimed, held := "claimed", "held"
		claim := &v1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c"},
			Status:     v1.PersistentVolumeClaimStatus{CurrentVolumeAttributesClassName: &claimed},
		}
		volume := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}, Spec: v1.PersistentVolumeSpec{VolumeAttributesClassName: &held}}
		c := controllertest.New(t, claim, volume, class("claimed", &now, classFinalizer), class("fresh", nil),
			class("held", &now, classFinalizer), class("unused", &now, classFinalizer, "other"))
		c.Run(Classes())
		finalizers := func() string {
			list, err := c.Fake.StorageV1().VolumeAttributesClasses().List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			out := ""
			for _, class := range list.Items {
				out += fmt.Sprint(class.Name, class.Finalizers, " ")
			}
			return out
		}
		const protected = "[kubernetes.io/vac-protection] "
		controllertest.Eventually(t, finalizers, "claimed"+protected+"fresh"+protected+"held"+protected+"unused[other] ")
		if err := c.Fake.CoreV1().PersistentVolumeClaims("default").Delete(t.Context(), "c", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := c.Fake.CoreV1().PersistentVolumes().Delete(t.Context(), "v", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, finalizers, "claimed[] fresh"+protected+"held[] unused[other] ")
	})
}
