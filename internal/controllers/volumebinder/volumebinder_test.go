package volumebinder

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
)

func volume(name, size string, change func(v *v1.PersistentVolume)) *v1.PersistentVolume {
	v := &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PersistentVolumeSpec{
			Capacity:                      v1.ResourceList{v1.ResourceStorage: resource.MustParse(size)},
			AccessModes:                   []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimRetain,
		},
		Status: v1.PersistentVolumeStatus{Phase: v1.VolumeAvailable},
	}
	if change != nil {
		change(v)
	}
	return v
}

func claim(name, size string) *v1.PersistentVolumeClaim {
	return &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "claim-uid"},
		Spec: v1.PersistentVolumeClaimSpec{
			AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			Resources:   v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse(size)}},
		},
	}
}

func TestMatch(t *testing.T) {
	taken := func(v *v1.PersistentVolume) {
		v.Spec.ClaimRef = &v1.ObjectReference{Namespace: "x", Name: "y", UID: "z"}
	}
	reserved := func(v *v1.PersistentVolume) { v.Spec.ClaimRef = &v1.ObjectReference{Namespace: "default", Name: "c"} }
	classy := func(v *v1.PersistentVolume) { v.Spec.StorageClassName = "fast" }
	block := func(v *v1.PersistentVolume) { v.Spec.VolumeMode = new(v1.PersistentVolumeBlock) }
	for _, c := range []struct {
		name    string
		volumes []*v1.PersistentVolume
		delayed bool
		want    string
	}{
		{"the smallest that is large enough", []*v1.PersistentVolume{volume("s", "1Gi", nil), volume("l", "9Gi", nil), volume("m", "5Gi", nil)}, false, "m"},
		{"one that is reserved goes first", []*v1.PersistentVolume{volume("m", "5Gi", nil), volume("l", "9Gi", reserved)}, false, "l"},
		{"taken, of a class, or a device", []*v1.PersistentVolume{volume("a", "5Gi", taken), volume("b", "5Gi", classy), volume("c", "5Gi", block)}, false, ""},
		{"waits for a consumer", []*v1.PersistentVolume{volume("m", "5Gi", nil)}, true, ""},
		{"waits, but one is reserved", []*v1.PersistentVolume{volume("m", "5Gi", reserved)}, true, "m"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := ""
			if v := match(claim("c", "2Gi"), c.volumes, c.delayed); v != nil {
				got = v.Name
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestBindsAndReleases(t *testing.T) {
	c := controllertest.New(t, claim("c", "2Gi"))
	c.Run(Descriptor())
	core := c.Fake.CoreV1()
	state := func() string {
		claim, err := core.PersistentVolumeClaims("default").Get(t.Context(), "c", metav1.GetOptions{})
		out := "gone"
		if err == nil {
			out = fmt.Sprint(claim.Status.Phase, " ", claim.Spec.VolumeName, " ", claim.Status.Capacity.Storage())
		}
		if v, err := core.PersistentVolumes().Get(t.Context(), "v", metav1.GetOptions{}); err == nil {
			out += fmt.Sprint(", ", v.Status.Phase)
		}
		return out
	}
	controllertest.Eventually(t, state, "Pending  0")
	if _, err := core.PersistentVolumes().Create(t.Context(), volume("v", "5Gi", func(v *v1.PersistentVolume) { v.Status.Phase = "" }), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, state, "Bound v 5Gi, Bound")
	if err := core.PersistentVolumeClaims("default").Delete(t.Context(), "c", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, state, "gone, Released")
}

// A claim without a class gets the default one that comes later; one that
// wants no class keeps that.
func TestDefaultClassThatComesLater(t *testing.T) {
	none := ""
	without := claim("without", "2Gi")
	without.Spec.StorageClassName = &none
	c := controllertest.New(t, claim("c", "2Gi"), without)
	c.Run(Descriptor())
	core := c.Fake.CoreV1()
	class := func(name string) string {
		claim, err := core.PersistentVolumeClaims("default").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if claim.Spec.StorageClassName == nil {
			return string(claim.Status.Phase) + " unset"
		}
		return fmt.Sprintf("%s %q", claim.Status.Phase, *claim.Spec.StorageClassName)
	}
	both := func() string { return class("c") + ", " + class("without") }
	controllertest.Eventually(t, both, `Pending unset, Pending ""`)
	for i, marked := range []string{"true", "false", "true"} {
		_, err := c.Fake.StorageV1().StorageClasses().Create(t.Context(), &storage.StorageClass{
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprint("class-", i), Annotations: map[string]string{isDefaultClass: marked},
				CreationTimestamp: metav1.Unix(int64(100-i), 0),
			},
			Provisioner: noProvisioner,
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	controllertest.Eventually(t, both, `Pending "class-0", Pending ""`)
}
