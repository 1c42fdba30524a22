package volumebinder

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
	"github.com/coracle-io/coracle/internal/defaultclass"
)

func volumeOf(name, size string, change func(v *v1.PersistentVolume)) *v1.PersistentVolume {
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
	gold := func(v *v1.PersistentVolume) { v.Spec.VolumeAttributesClassName = new("gold") }
	shared := func(v *v1.PersistentVolume) {
		v.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadOnlyMany}
	}
	for _, c := range []struct {
		name    string
		volumes []*v1.PersistentVolume
		delayed bool
		want    string
	}{
		{"the smallest that is large enough", []*v1.PersistentVolume{volumeOf("s", "1Gi", nil), volumeOf("l", "9Gi", nil), volumeOf("m", "5Gi", nil)}, false, "m"},
		{"a reserved volume is preferred", []*v1.PersistentVolume{volumeOf("m", "5Gi", nil), volumeOf("l", "9Gi", reserved)}, false, "l"},
		{"bound, of another class, or of another mode", []*v1.PersistentVolume{volumeOf("a", "5Gi", taken), volumeOf("b", "5Gi", classy), volumeOf("c", "5Gi", block)}, false, ""},
		{"of another attributes class", []*v1.PersistentVolume{volumeOf("m", "5Gi", gold)}, false, ""},
		{"access modes", []*v1.PersistentVolume{volumeOf("m", "5Gi", shared)}, false, ""},
		{"waits for a consumer", []*v1.PersistentVolume{volumeOf("m", "5Gi", nil)}, true, ""},
		{"waits for a consumer, but one is reserved", []*v1.PersistentVolume{volumeOf("m", "5Gi", reserved)}, true, "m"},
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
	synctest.Test(t, func(t *testing.T) {
		c := controllertest.New(t, claim("c", "2Gi"))
		c.Run(Descriptor())
		synctest.Wait()
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
		if _, err := core.PersistentVolumes().Create(t.Context(), volumeOf("v", "5Gi", func(v *v1.PersistentVolume) { v.Status.Phase = "" }), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, state, "Bound v 5Gi, Bound")
		if err := core.PersistentVolumeClaims("default").Delete(t.Context(), "c", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, state, "gone, Released")
	})
}

// A claim without a class gets a default class that is created later. A claim
// with the class "" does not.
func TestDefaultClassCreatedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		none := ""
		without := claim("without", "2Gi")
		without.Spec.StorageClassName = &none
		c := controllertest.New(t, claim("c", "2Gi"), without)
		c.Run(Descriptor())
		synctest.Wait()
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
					Name: fmt.Sprint("class-", i), Annotations: map[string]string{defaultclass.StorageAnnotation: marked},
					CreationTimestamp: metav1.Unix(int64(100-i), 0),
				},
				Provisioner: "kubernetes.io/no-provisioner",
			}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
		}
		controllertest.Eventually(t, both, `Pending "class-0", Pending ""`)
	})
}

// A claim whose first consumer has no node yet is left to the scheduler. With a
// node, a volume is requested for it, unless the node is gone. Other volumes may not be
// reachable from that node: the scheduler would have chosen them.
func TestFirstConsumer(t *testing.T) {
	for _, test := range []struct{ name, node, want string }{
		{"no node", "", "Pending; node: , provisioner: "},
		{"a node", "there", "Pending; node: there, provisioner: example.com/made"},
		{"a node that is gone", "gone", "Pending; node: , provisioner: "},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				waiting := claim("c", "2Gi")
				waiting.Spec.StorageClassName = new("made")
				if test.node != "" {
					waiting.Annotations = map[string]string{"volume.kubernetes.io/selected-node": test.node}
				}
				c := controllertest.New(t, waiting, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "there"}}, &storage.StorageClass{
					ObjectMeta: metav1.ObjectMeta{Name: "made"}, Provisioner: "example.com/made", VolumeBindingMode: new(storage.VolumeBindingWaitForFirstConsumer),
				}, volumeOf("free", "5Gi", func(v *v1.PersistentVolume) { v.Spec.StorageClassName = "made" }))
				c.Run(Descriptor())
				synctest.Wait()
				controllertest.Eventually(t, func() string {
					claim, err := c.Fake.CoreV1().PersistentVolumeClaims("default").Get(t.Context(), "c", metav1.GetOptions{})
					if err != nil {
						t.Fatal(err)
					}
					return fmt.Sprintf("%s; node: %s, provisioner: %s", claim.Status.Phase, claim.Annotations["volume.kubernetes.io/selected-node"], claim.Annotations["volume.kubernetes.io/storage-provisioner"])
				}, test.want)
			})
		})
	}
}

// A claim that is bound for its first consumer names the pod that it waits for.
func TestWaitForConsumerEvents(t *testing.T) {
	consumer := func(name string) *v1.Pod {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}}
		return p
	}
	placed, done := consumer("placed"), consumer("done")
	placed.Spec.NodeName = "n"
	done.Status.Phase = v1.PodSucceeded
	waiting := claim("c", "2Gi")
	waiting.Spec.StorageClassName = new("made")
	synctest.Test(t, func(t *testing.T) {
		c := controllertest.New(t, waiting, placed, done, &storage.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: "made"}, Provisioner: "example.com/made", VolumeBindingMode: new(storage.VolumeBindingWaitForFirstConsumer),
		})
		c.Run(Descriptor())
		for i, want := range []string{
			"Normal WaitForFirstConsumer waiting for first consumer to be created before binding",
			"Normal WaitForPodScheduled waiting for pod p1 to be scheduled",
			"Normal WaitForPodScheduled waiting for pods p1,p2 to be scheduled",
		} {
			if i > 0 {
				if _, err := c.Fake.CoreV1().Pods("default").Create(t.Context(), consumer(fmt.Sprintf("p%d", i)), metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
			if got := c.DrainEvents(); len(got) == 0 || got[len(got)-1] != want {
				t.Errorf("with %d pods: %q, want %q", i, got, want)
			}
		}
	})
}

// The message of an event has at most 1,024 bytes, however many pods wait.
func TestNamesInAnEventAreBounded(t *testing.T) {
	var names []string
	for i := range 1000 {
		names = append(names, fmt.Sprintf("p%03d", i))
	}
	if got := listed(names[:180]); got != strings.Join(names[:180], ",") {
		t.Errorf("names that have room are left out: %s", got)
	}
	got := listed(names)
	if !strings.HasPrefix(got, "p000,p001,") || !strings.HasSuffix(got, ",p179,... (820 more)") || len(got) > 950 {
		t.Errorf("%d bytes: %s", len(got), got)
	}
	if got := listed([]string{strings.Repeat("a", 253), strings.Repeat("b", 253), strings.Repeat("c", 253), strings.Repeat("d", 253)}); !strings.HasSuffix(got, "c,... (1 more)") {
		t.Errorf("long names: %s", got)
	}
}

// A new volume and a new class concern the claims of that class alone.
func TestChangesConcernClaimsOfTheClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		waiting := claim("c", "2Gi")
		waiting.Spec.StorageClassName = new("absent")
		c := controllertest.New(t, waiting)
		c.Run(Descriptor())
		synctest.Wait()
		const told = `Warning ProvisioningFailed storageclass.storage.k8s.io "absent" not found`
		if got := c.DrainEvents(); !slices.Contains(got, told) {
			t.Fatalf("events %q, want %q", got, told)
		}
		other := volumeOf("other", "5Gi", func(v *v1.PersistentVolume) { v.Spec.StorageClassName = "other" })
		if _, err := c.Fake.CoreV1().PersistentVolumes().Create(t.Context(), other, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		class := &storage.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Provisioner: "example.com/made"}
		if _, err := c.Fake.StorageV1().StorageClasses().Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := c.DrainEvents(); len(got) > 0 {
			t.Errorf("events after changes of another class: %q", got)
		}
		fitting := volumeOf("fitting", "5Gi", func(v *v1.PersistentVolume) { v.Spec.StorageClassName = "absent" })
		if _, err := c.Fake.CoreV1().PersistentVolumes().Create(t.Context(), fitting, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, func() string {
			claim, err := c.Fake.CoreV1().PersistentVolumeClaims("default").Get(t.Context(), "c", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return claim.Spec.VolumeName
		}, "fitting")
	})
}
