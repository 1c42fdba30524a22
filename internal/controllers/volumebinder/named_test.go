package volumebinder

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-helpers/storage/volume"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
)

// A claim that names a volume is bound to it if that has the class, size and modes that the
// claim asks for. Otherwise an event says what does not fit.
func TestNamedVolume(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(v *v1.PersistentVolume)
		event  string // "": it is bound
	}{
		{"fits", nil, ""},
		{"of another class", func(v *v1.PersistentVolume) { v.Spec.StorageClassName = "slow" }, "storageClassName does not match"},
		{"of another attributes class", func(v *v1.PersistentVolume) { v.Spec.VolumeAttributesClassName = new("gold") }, "volumeAttributesClassName does not match"},
		{"too small", func(v *v1.PersistentVolume) { v.Spec.Capacity = volumeOf("v", "1Gi", nil).Spec.Capacity }, "requested PV is too small"},
		{"of another mode", func(v *v1.PersistentVolume) { v.Spec.VolumeMode = new(v1.PersistentVolumeBlock) }, "incompatible volumeMode"},
		{"of other access", func(v *v1.PersistentVolume) {
			v.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadOnlyMany}
		}, "incompatible accessMode"},
		{"being deleted", func(v *v1.PersistentVolume) {
			v.DeletionTimestamp, v.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{"example.com/held"}
		}, `the volume is marked for deletion "v"`},
		{"reserved for the claim", func(v *v1.PersistentVolume) {
			v.Spec.StorageClassName, v.Spec.ClaimRef = "slow", &v1.ObjectReference{Namespace: "default", Name: "c"}
		}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asking := claim("c", "2Gi")
				asking.Spec.StorageClassName, asking.Spec.VolumeName = new("fast"), "v"
				c := controllertest.New(t, asking, volumeOf("v", "5Gi", func(v *v1.PersistentVolume) {
					v.Spec.StorageClassName = "fast"
					if test.change != nil {
						test.change(v)
					}
				}))
				c.Run(Descriptor())
				synctest.Wait()
				got, err := c.Fake.CoreV1().PersistentVolumeClaims("default").Get(t.Context(), "c", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				want, events := v1.ClaimBound, c.DrainEvents()
				if test.event != "" {
					want = v1.ClaimPending
					if event := `Warning VolumeMismatch Cannot bind to requested volume "v": ` + test.event; !slices.Contains(events, event) {
						t.Errorf("events %q, want %q", events, event)
					}
				}
				if got.Status.Phase != want {
					t.Errorf("the claim is %s, want %s", got.Status.Phase, want)
				}
			})
		})
	}
}

// A claim that names a volume is bound when the volume is created, and when one that did not
// fit does.
func TestNamedVolumeComesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asking := claim("c", "2Gi")
		asking.Spec.StorageClassName, asking.Spec.VolumeName = new("fast"), "v"
		c := controllertest.New(t, asking)
		c.Run(Descriptor())
		synctest.Wait()
		phase := func() v1.PersistentVolumeClaimPhase {
			got, err := c.Fake.CoreV1().PersistentVolumeClaims("default").Get(t.Context(), "c", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return got.Status.Phase
		}
		volumes := c.Fake.CoreV1().PersistentVolumes()
		if _, err := volumes.Create(t.Context(), volumeOf("v", "1Gi", func(v *v1.PersistentVolume) { v.Spec.StorageClassName = "fast" }), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := phase(); got != v1.ClaimPending {
			t.Errorf("the claim is %s with a volume that is too small", got)
		}
		v, err := volumes.Get(t.Context(), "v", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		v.Spec.Capacity = volumeOf("v", "5Gi", nil).Spec.Capacity
		if _, err := volumes.Update(t.Context(), v, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, phase, v1.ClaimBound)
	})
}

// A claim that has lost its volume is bound to it again when an administrator restores the
// volume, with or without its reference to the claim.
func TestLostVolumeComesBack(t *testing.T) {
	for name, ref := range map[string]*v1.ObjectReference{"alone": nil, "with the claim": {Namespace: "default", Name: "c", UID: "claim-uid"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lost := claim("c", "2Gi")
				lost.Spec.VolumeName, lost.Status.Phase = "v", v1.ClaimBound
				lost.Annotations = map[string]string{"pv.kubernetes.io/bind-completed": "yes"}
				c := controllertest.New(t, lost)
				c.Run(Descriptor())
				phase := func() v1.PersistentVolumeClaimPhase {
					got, err := c.Fake.CoreV1().PersistentVolumeClaims("default").Get(t.Context(), "c", metav1.GetOptions{})
					if err != nil {
						t.Fatal(err)
					}
					return got.Status.Phase
				}
				controllertest.Eventually(t, phase, v1.ClaimLost)
				synctest.Wait()
				restored := volumeOf("v", "5Gi", func(v *v1.PersistentVolume) { v.Spec.ClaimRef = ref })
				if _, err := c.Fake.CoreV1().PersistentVolumes().Create(t.Context(), restored, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				controllertest.Eventually(t, phase, v1.ClaimBound)
			})
		})
	}
}

// A volume that is reserved for a claim with another volume mode, and the claim, say that they do not fit.
func TestReservedForAnotherMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := controllertest.New(t, claim("c", "2Gi"), volumeOf("v", "5Gi", func(v *v1.PersistentVolume) {
			v.Spec.VolumeMode, v.Spec.ClaimRef = new(v1.PersistentVolumeBlock), &v1.ObjectReference{Namespace: "default", Name: "c", UID: "claim-uid"}
		}))
		c.Run(Descriptor())
		synctest.Wait()
		events := c.DrainEvents()
		for _, want := range []string{
			`Warning VolumeMismatch Cannot bind PersistentVolume to requested PersistentVolumeClaim "c" due to incompatible volumeMode.`,
			`Warning VolumeMismatch Cannot bind PersistentVolume "v" to requested PersistentVolumeClaim "c" due to incompatible volumeMode.`,
		} {
			if !slices.Contains(events, want) {
				t.Errorf("events %q, want %q", events, want)
			}
		}
	})
}

// A volume that was made for a claim which is bound to another one is reclaimed. Others are
// available again, and stay reserved if a user has reserved them.
func TestClaimBoundElsewhere(t *testing.T) {
	for _, test := range []struct {
		name        string
		policy      v1.PersistentVolumeReclaimPolicy
		annotations map[string]string
		want        string
	}{
		{"made for the claim", v1.PersistentVolumeReclaimDelete, map[string]string{"pv.kubernetes.io/provisioned-by": "example.com/made"}, "Released, for c claim-uid"},
		{"made, and to be kept", v1.PersistentVolumeReclaimRetain, map[string]string{"pv.kubernetes.io/provisioned-by": "example.com/made"}, "Available, for c "},
		{"reserved", v1.PersistentVolumeReclaimDelete, nil, "Available, for c "},
		{"chosen by the controller", v1.PersistentVolumeReclaimDelete, map[string]string{"pv.kubernetes.io/bound-by-controller": "yes"}, "Available"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bound := claim("c", "2Gi")
				bound.Spec.VolumeName, bound.Status.Phase = "other", v1.ClaimBound
				bound.Annotations = map[string]string{"pv.kubernetes.io/bind-completed": "yes"}
				ref := &v1.ObjectReference{Namespace: "default", Name: "c", UID: "claim-uid"}
				c := controllertest.New(t, bound,
					volumeOf("other", "5Gi", func(v *v1.PersistentVolume) { v.Spec.ClaimRef = ref }),
					volumeOf("v", "5Gi", func(v *v1.PersistentVolume) {
						v.Spec.ClaimRef, v.Annotations, v.Spec.PersistentVolumeReclaimPolicy = ref, test.annotations, test.policy
					}))
				c.Run(Descriptor())
				synctest.Wait()
				v, err := c.Fake.CoreV1().PersistentVolumes().Get(t.Context(), "v", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				got := string(v.Status.Phase)
				if ref := v.Spec.ClaimRef; ref != nil {
					got += fmt.Sprintf(", for %s %s", ref.Name, ref.UID)
				}
				if got != test.want {
					t.Errorf("got %s, want %s", got, test.want)
				}
			})
		})
	}
}

// The status of a claim has the attributes class of the volume to which it is bound.
func TestAttributesClassOfBoundClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asking := claim("c", "2Gi")
		asking.Spec.VolumeAttributesClassName = new("gold")
		c := controllertest.New(t, asking, volumeOf("v", "5Gi", func(v *v1.PersistentVolume) { v.Spec.VolumeAttributesClassName = new("gold") }))
		c.Run(Descriptor())
		synctest.Wait()
		got, err := c.Fake.CoreV1().PersistentVolumeClaims("default").Get(t.Context(), "c", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if class := got.Status.CurrentVolumeAttributesClassName; got.Status.Phase != v1.ClaimBound || class == nil || *class != "gold" {
			t.Errorf("status %+v", got.Status)
		}
	})
}

// A claim has the size of the file system of its volume if only the volume has grown before.
func TestSizeOfGrownVolume(t *testing.T) {
	for before, want := range map[string]string{"": "5Gi", "3Gi": "3Gi", "much": "5Gi"} {
		synctest.Test(t, func(t *testing.T) {
			c := controllertest.New(t, claim("c", "2Gi"), volumeOf("v", "5Gi", func(v *v1.PersistentVolume) {
				if before != "" {
					v.Annotations = map[string]string{"volume.alpha.kubernetes.io/pre-resize-capacity": before}
				}
			}))
			c.Run(Descriptor())
			synctest.Wait()
			got, err := c.Fake.CoreV1().PersistentVolumeClaims("default").Get(t.Context(), "c", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if size := got.Status.Capacity.Storage().String(); got.Status.Phase != v1.ClaimBound || size != want {
				t.Errorf("annotation %q: %s with %s, want %s", before, got.Status.Phase, size, want)
			}
		})
	}
}

// A claim of a class without provisioner says why no volume is made for it.
func TestClassWithoutProvisioner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asking := claim("c", "2Gi")
		asking.Spec.StorageClassName = new("manual")
		c := controllertest.New(t, asking, &storage.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "manual"}, Provisioner: "kubernetes.io/no-provisioner"})
		c.Run(Descriptor())
		synctest.Wait()
		if events, want := c.DrainEvents(), "Warning ProvisioningFailed no volume plugin matched name: kubernetes.io/no-provisioner"; !slices.Contains(events, want) {
			t.Errorf("events %q, want %q", events, want)
		}
	})
}

// A bound claim is not lost because the cache does not show its volume yet, as when both are restored.
func TestVolumeThatTheCacheLacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bound := claim("c", "2Gi")
		bound.Spec.VolumeName = "v"
		bound.Annotations = map[string]string{volume.AnnBindCompleted: "yes"}
		bound.Status.Phase = v1.ClaimBound
		c := controllertest.New(t, bound)
		c.Fake.PrependReactor("get", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, volumeOf("v", "5Gi", nil), nil
		})
		c.Run(Descriptor())
		synctest.Wait()
		got, err := c.Fake.CoreV1().PersistentVolumeClaims("default").Get(t.Context(), "c", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if events := c.DrainEvents(); got.Status.Phase != v1.ClaimBound || len(events) != 0 {
			t.Errorf("the claim is %s, events %q", got.Status.Phase, events)
		}
	})
}

// Nothing asks for the volume of a claim that is already marked as lost.
func TestClaimThatIsMarkedAsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := claim("c", "2Gi")
		lost.Spec.VolumeName = "v"
		lost.Annotations = map[string]string{volume.AnnBindCompleted: "yes"}
		lost.Status.Phase = v1.ClaimLost
		c := controllertest.New(t, lost)
		c.Run(Descriptor())
		synctest.Wait()
		for _, a := range c.Fake.Actions() {
			if a.Matches("get", "persistentvolumes") {
				t.Errorf("%s %s", a.GetVerb(), a.GetResource().Resource)
			}
		}
	})
}
