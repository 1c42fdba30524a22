package volumebinder

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/controllertest"
)

// The volume of a claim that is gone is reclaimed as its policy says.
func TestReclaim(t *testing.T) {
	hostPath := func(v *v1.PersistentVolume) { v.Spec.HostPath = &v1.HostPathVolumeSource{Path: "/tmp/v"} }
	provisioned := func(by string) func(v *v1.PersistentVolume) {
		return func(v *v1.PersistentVolume) {
			hostPath(v)
			v.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": by}
		}
	}
	for _, test := range []struct {
		name   string
		policy v1.PersistentVolumeReclaimPolicy
		change func(v *v1.PersistentVolume)
		fails  error
		want   string
	}{
		{"kept", v1.PersistentVolumeReclaimRetain, hostPath, nil, "Released, removed []"},
		{"deleted", v1.PersistentVolumeReclaimDelete, hostPath, nil, "gone, removed [/tmp/v]"},
		{"cannot be deleted", v1.PersistentVolumeReclaimDelete, hostPath, errors.New("the disk is broken"), "Failed: the disk is broken, removed [/tmp/v]"},
		{"of a provisioner", v1.PersistentVolumeReclaimDelete, provisioned("example.com/made"), nil, "Released, removed []"},
		{"of a migrated plugin", v1.PersistentVolumeReclaimDelete, provisioned("kubernetes.io/aws-ebs"), nil, "Released, removed []"},
		{"of a driver", v1.PersistentVolumeReclaimDelete, func(v *v1.PersistentVolume) { v.Spec.CSI = &v1.CSIPersistentVolumeSource{} }, nil, "Released, removed []"},
		{"of a type without deleter", v1.PersistentVolumeReclaimDelete, func(v *v1.PersistentVolume) { v.Spec.Local = &v1.LocalVolumeSource{Path: "/tmp/v"} }, nil,
			`Failed: error getting deleter volume plugin for volume "v": no deletable volume plugin matched, removed []`},
		{"of a type without recycler", v1.PersistentVolumeReclaimRecycle, func(v *v1.PersistentVolume) { v.Spec.Local = &v1.LocalVolumeSource{Path: "/tmp/v"} }, nil,
			"Failed: No recycler plugin found for the volume!, removed []"},
		{"being recycled", v1.PersistentVolumeReclaimRecycle, hostPath, nil, "Released, removed []"},
		{"of an unknown policy", "Burn", hostPath, nil, "Failed: Volume has unrecognized PersistentVolumeReclaimPolicy, removed []"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := controllertest.New(t, volumeOf("v", "5Gi", func(v *v1.PersistentVolume) {
					test.change(v)
					v.Spec.PersistentVolumeReclaimPolicy = test.policy
					v.Spec.ClaimRef = &v1.ObjectReference{Namespace: "default", Name: "gone", UID: "gone"}
					v.Status.Phase = v1.VolumeBound
				}))
				var removed []string
				d := Descriptor()
				build := d.New
				d.New = func(env *controller.Env) (controller.Controller, error) {
					k, err := build(env)
					if err == nil {
						k.(*binder).removeAll = func(path string) error { removed = append(removed, path); return test.fails }
					}
					return k, err
				}
				c.Run(d)
				synctest.Wait()
				got := "gone"
				if v, err := c.Fake.CoreV1().PersistentVolumes().Get(t.Context(), "v", metav1.GetOptions{}); err == nil {
					got = string(v.Status.Phase)
					if v.Status.Message != "" {
						got += ": " + v.Status.Message
					}
				}
				if got += fmt.Sprint(", removed ", removed); got != test.want {
					t.Errorf("got %s\nwant %s", got, test.want)
				}
			})
		})
	}
}

// releasedVolume is a volume in a directory of the host, whose claim is gone.
func releasedVolume(name string) *v1.PersistentVolume {
	return volumeOf(name, "5Gi", func(v *v1.PersistentVolume) {
		v.Spec.HostPath = &v1.HostPathVolumeSource{Path: "/tmp/v"}
		v.Spec.PersistentVolumeReclaimPolicy = v1.PersistentVolumeReclaimDelete
		v.Spec.ClaimRef = &v1.ObjectReference{Namespace: "default", Name: "gone", UID: "gone"}
		v.Status.Phase = v1.VolumeBound
	})
}

// busyTwice returns a controller that fails twice to remove a directory. tries is how
// often it has tried.
func busyTwice() (d controller.Descriptor, tries *int) {
	d, tries = Descriptor(), new(int)
	build := d.New
	d.New = func(env *controller.Env) (controller.Controller, error) {
		k, err := build(env)
		if err == nil {
			k.(*binder).removeAll = func(string) error {
				if *tries++; *tries < 3 {
					return errors.New("the directory is in use")
				}
				return nil
			}
		}
		return k, err
	}
	return d, tries
}

// A volume that could not be reclaimed is tried again, and deleted once that succeeds.
func TestReclaimIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := controllertest.New(t, releasedVolume("v"))
		d, tries := busyTwice()
		c.Run(d)
		for i, want := range []string{"Failed, 1 tries", "Failed, 2 tries", "gone, 3 tries", "gone, 3 tries"} {
			synctest.Wait()
			got := "gone"
			if v, err := c.Fake.CoreV1().PersistentVolumes().Get(t.Context(), "v", metav1.GetOptions{}); err == nil {
				got = string(v.Status.Phase)
			}
			if got += fmt.Sprintf(", %d tries", *tries); got != want {
				t.Errorf("after %v: %s, want %s", time.Duration(i)*retryAfter, got, want)
			}
			time.Sleep(retryAfter + time.Millisecond)
		}
	})
}

// A volume whose reclaiming has failed in the future, because the clock was set back since, is
// reclaimed as soon as any other.
func TestReclaimAfterTheClockIsSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := releasedVolume("v")
		v.Status.Phase, v.Status.LastPhaseTransitionTime = v1.VolumeFailed, &metav1.Time{Time: time.Now().Add(time.Hour)}
		c := controllertest.New(t, v)
		d, tries := busyTwice()
		c.Run(d)
		time.Sleep(4 * retryAfter)
		synctest.Wait()
		if _, err := c.Fake.CoreV1().PersistentVolumes().Get(t.Context(), "v", metav1.GetOptions{}); err == nil || *tries != 3 {
			t.Errorf("after %v and %d tries: %v", 4*retryAfter, *tries, err)
		}
	})
}

// Only what is below /tmp is removed, and no symbolic link leads elsewhere.
func TestRemoveTemporary(t *testing.T) {
	dir, err := os.MkdirTemp(temporary, "volume")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	kept := t.TempDir()
	data := filepath.Join(dir, "v", "data")
	if err := os.MkdirAll(data, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(kept, filepath.Join(data, "link")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/tmp", "/tmp/", "/tmp/..", "/tmp/../etc/none", "/etc/none", "tmp/none", ""} {
		if err := removeTemporary(path); err == nil {
			t.Errorf("%q can be removed", path)
		}
	}
	if err := removeTemporary(filepath.Join(dir, "link", "no-such-file-of-a-test")); err == nil {
		t.Error("a link leads out of /tmp")
	}
	if err := removeTemporary(filepath.Join(dir, "v")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(data); !os.IsNotExist(err) {
		t.Errorf("the data remains: %v", err)
	}
	if _, err := os.Stat(kept); err != nil {
		t.Errorf("the target of a link is gone: %v", err)
	}
}

// A class of an in-tree plugin is served by the driver that took its place, or by nobody.
func TestInTreeProvisioners(t *testing.T) {
	for provisioner, want := range map[string]string{
		"example.com/made":        "example.com/made, Normal ExternalProvisioning",
		"kubernetes.io/aws-ebs":   "ebs.csi.aws.com, Normal ExternalProvisioning",
		"kubernetes.io/glusterfs": ", Warning ProvisioningFailed no volume plugin matched name: kubernetes.io/glusterfs",
	} {
		synctest.Test(t, func(t *testing.T) {
			waiting := claim("c", "2Gi")
			waiting.Spec.StorageClassName = new("made")
			c := controllertest.New(t, waiting, &storage.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "made"}, Provisioner: provisioner})
			c.Run(Descriptor())
			synctest.Wait()
			claim, err := c.Fake.CoreV1().PersistentVolumeClaims("default").Get(t.Context(), "c", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			asked, event, _ := strings.Cut(want, ", ")
			if got := claim.Annotations["volume.kubernetes.io/storage-provisioner"]; got != asked {
				t.Errorf("%s: asks %q, want %q", provisioner, got, asked)
			}
			if events := c.DrainEvents(); !slices.ContainsFunc(events, func(e string) bool { return strings.HasPrefix(e, event) }) {
				t.Errorf("%s: events %q, want %q", provisioner, events, event)
			}
		})
	}
}

// Claims and volumes of an in-tree plugin name the CSI driver that took its place, because the driver's
// provisioner deletes only those. The plugin's finalizer is removed, because nothing else does it.
func TestMigratedPlugins(t *testing.T) {
	const plugin, driver = "kubernetes.io/gce-pd", "pd.csi.storage.gke.io"
	const plugins, external = "kubernetes.io/pv-controller", "external-provisioner.volume.kubernetes.io/finalizer"
	for _, test := range []struct {
		name, provisioner, had, want string
		finalizers                   []string
	}{
		{"of a migrated plugin", plugin, "", driver, []string{external}},
		{"named already", plugin, driver, driver, []string{external}},
		{"named another driver", plugin, "example.com/old", driver, []string{external}},
		{"of a plugin without a driver", "kubernetes.io/rbd", "rbd.csi.ceph.com", "", []string{external}},
		{"of an external provisioner", "example.com/made", "", "", []string{external}},
		{"made by hand", "", "", "", []string{plugins, external}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				annotations := func(key string) map[string]string {
					out := map[string]string{}
					if test.provisioner != "" {
						out[key] = test.provisioner
					}
					if test.had != "" {
						out["pv.kubernetes.io/migrated-to"] = test.had
					}
					return out
				}
				asking, old := claim("c", "2Gi"), claim("old", "2Gi")
				asking.Annotations = annotations("volume.kubernetes.io/storage-provisioner")
				old.Annotations = annotations("volume.beta.kubernetes.io/storage-provisioner")
				c := controllertest.New(t, asking, old, volumeOf("v", "5Gi", func(v *v1.PersistentVolume) {
					v.Spec.StorageClassName = "other"
					v.Annotations = annotations("pv.kubernetes.io/provisioned-by")
					v.Finalizers = []string{plugins, external}
				}))
				c.Run(Descriptor())
				synctest.Wait()
				for _, name := range []string{"c", "old"} {
					claim, err := c.Fake.CoreV1().PersistentVolumeClaims("default").Get(t.Context(), name, metav1.GetOptions{})
					if err != nil {
						t.Fatal(err)
					}
					if got := claim.Annotations["pv.kubernetes.io/migrated-to"]; got != test.want {
						t.Errorf("the claim %s names %q, want %q", name, got, test.want)
					}
				}
				v, err := c.Fake.CoreV1().PersistentVolumes().Get(t.Context(), "v", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if got := v.Annotations["pv.kubernetes.io/migrated-to"]; got != test.want {
					t.Errorf("the volume names %q, want %q", got, test.want)
				}
				if !slices.Equal(v.Finalizers, test.finalizers) {
					t.Errorf("the volume has the finalizers %q, want %q", v.Finalizers, test.finalizers)
				}
			})
		})
	}
}

// A volume with the policy Recycle is available again once a pod has deleted its data.
func TestRecycle(t *testing.T) {
	type uses struct{ UID, ClaimUID types.UID }
	for _, test := range []struct {
		former   uses // whose pod was left over
		phase    v1.PodPhase
		reserved bool // by a user
		want     string
	}{
		{uses{"former", "gone"}, v1.PodSucceeded, false, "Available, for <nil>, 0 pods, Normal VolumeRecycled Volume recycled"},
		{uses{"former", "gone"}, v1.PodSucceeded, true, "Available, for gone , 0 pods, Normal VolumeRecycled Volume recycled"},
		{uses{"uid", "former"}, v1.PodFailed, false, "Failed, for gone gone, 0 pods, Warning VolumeFailedRecycle Recycle failed: pod failed, pod.Status.Message: no disk"},
		{uses{"uid", "former"}, v1.PodRunning, false, "Released, for gone gone, 1 pods, "},
	} {
		t.Run(fmt.Sprint(test.phase, test.reserved), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stale, err := defaultRecyclers().podFor(volumeOf("v", "5Gi", func(v *v1.PersistentVolume) {
					v.UID, v.Spec.HostPath = test.former.UID, &v1.HostPathVolumeSource{Path: "/tmp/former"}
					v.Spec.ClaimRef = &v1.ObjectReference{UID: test.former.ClaimUID}
				}))
				if err != nil {
					t.Fatal(err)
				}
				stale.Status.Phase = v1.PodSucceeded
				c := controllertest.New(t, stale, volumeOf("v", "5Gi", func(v *v1.PersistentVolume) {
					v.UID, v.Spec.HostPath = "uid", &v1.HostPathVolumeSource{Path: "/tmp/v"}
					v.Spec.PersistentVolumeReclaimPolicy = v1.PersistentVolumeReclaimRecycle
					v.Spec.ClaimRef = &v1.ObjectReference{Namespace: "default", Name: "gone", UID: "gone"}
					if !test.reserved {
						v.Annotations = map[string]string{"pv.kubernetes.io/bound-by-controller": "yes"}
					}
					v.Status.Phase = v1.VolumeBound
				}))
				c.Run(Descriptor())
				synctest.Wait()
				pods := c.Pods("default")
				if len(pods) != 1 || pods[0].Name != "recycler-for-v" || pods[0].Spec.Volumes[0].HostPath.Path != "/tmp/v" || *pods[0].Spec.ActiveDeadlineSeconds != 150 {
					t.Fatalf("pods %v", pods)
				}
				pods[0].Status.Phase, pods[0].Status.Message = test.phase, "no disk"
				if _, err := c.Fake.CoreV1().Pods("default").UpdateStatus(t.Context(), &pods[0], metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				v, err := c.Fake.CoreV1().PersistentVolumes().Get(t.Context(), "v", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				bound := "<nil>"
				if ref := v.Spec.ClaimRef; ref != nil {
					bound = fmt.Sprint(ref.Name, " ", ref.UID)
				}
				got := fmt.Sprintf("%s, for %s, %d pods, %s", v.Status.Phase, bound, len(c.Pods("default")), strings.Join(c.DrainEvents(), "; "))
				if got != test.want {
					t.Errorf("got  %s\nwant %s", got, test.want)
				}
			})
		})
	}
}

// A volume is not recycled while a pod uses it. A pod that uses another claim with the same name does not
// count.
func TestRecycleWaitsForPods(t *testing.T) {
	for _, test := range []struct {
		name  string
		phase v1.PodPhase
		again bool // there is a new claim with the name
		event string
	}{
		{"running", v1.PodRunning, false, "Normal VolumeFailedRecycle Volume is used by pods: shop/user"},
		{"pending", v1.PodPending, false, "Normal VolumeFailedRecycle Volume is used by pods: shop/user"},
		{"finished", v1.PodSucceeded, false, ""},
		{"of a new claim", v1.PodRunning, true, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				user := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "user"}, Status: v1.PodStatus{Phase: test.phase}}
				user.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "gone"}}}}
				c := controllertest.New(t, user, volumeOf("v", "5Gi", func(v *v1.PersistentVolume) {
					v.UID, v.Spec.HostPath = "uid", &v1.HostPathVolumeSource{Path: "/tmp/v"}
					v.Spec.PersistentVolumeReclaimPolicy = v1.PersistentVolumeReclaimRecycle
					v.Spec.ClaimRef = &v1.ObjectReference{Namespace: "shop", Name: "gone", UID: "gone"}
					v.Status.Phase = v1.VolumeBound
				}))
				if test.again {
					again := claim("gone", "9Gi")
					again.Namespace, again.Spec.VolumeName = "shop", "other"
					if err := c.Fake.Tracker().Add(again); err != nil {
						t.Fatal(err)
					}
				}
				c.Run(Descriptor())
				synctest.Wait()
				pods, events := c.Pods("default"), c.DrainEvents()
				if (len(pods) == 0) != (test.event != "") || test.event != "" && !slices.Contains(events, test.event) {
					t.Errorf("%d recyclers, events %q, want %q", len(pods), events, test.event)
				}
				if test.event == "" {
					return
				}
				if err := c.Fake.CoreV1().Pods("shop").Delete(t.Context(), "user", metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(retryAfter)
				synctest.Wait()
				if pods := c.Pods("default"); len(pods) != 1 {
					t.Errorf("%d recyclers when the pod is gone", len(pods))
				}
			})
		})
	}
}

// The flags of the recyclers set the pods and how long they may take.
func TestRecyclerFlags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pod.yaml")
	write := func(content string) {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("kind: Pod\nmetadata: {name: mine, labels: {app: scrub}}\nspec: {containers: [{name: c, image: scrub}], volumes: [{name: data, emptyDir: {}}]}\n")
	o := defaultRecyclers()
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.addFlags(fs)
	err := fs.Parse([]string{
		"--pv-recycler-minimum-timeout-hostpath=20", "--pv-recycler-timeout-increment-hostpath=7", "--pv-recycler-pod-template-filepath-hostpath=" + file,
		"--pv-recycler-minimum-timeout-nfs=100", "--pv-recycler-increment-timeout-nfs=9",
	})
	if err != nil {
		t.Fatal(err)
	}
	for size, want := range map[string][2]int64{"1Gi": {20, 100}, "20Gi": {140, 180}} {
		hostPath, err := o.podFor(volumeOf("v", size, func(v *v1.PersistentVolume) { v.Spec.HostPath = &v1.HostPathVolumeSource{Path: "/tmp/v"} }))
		if err != nil {
			t.Fatal(err)
		}
		if *hostPath.Spec.ActiveDeadlineSeconds != want[0] || hostPath.Name != "recycler-for-v" || hostPath.Labels["app"] != "scrub" ||
			hostPath.Spec.Containers[0].Image != "scrub" || hostPath.Spec.Volumes[0].EmptyDir != nil || hostPath.Spec.Volumes[0].HostPath.Path != "/tmp/v" {
			t.Errorf("%s of hostPath: %+v", size, hostPath)
		}
		nfs, err := o.podFor(volumeOf("v", size, func(v *v1.PersistentVolume) { v.Spec.NFS = &v1.NFSVolumeSource{Server: "s", Path: "/"} }))
		if err != nil {
			t.Fatal(err)
		}
		if *nfs.Spec.ActiveDeadlineSeconds != want[1] || nfs.Spec.Volumes[0].NFS == nil {
			t.Errorf("%s of NFS: %+v", size, nfs)
		}
	}
	for _, content := range []string{"kind: Node\n", "spec: {containers: [{name: c}]}\n", "spec: {volumes: [{name: c}]}\n", "spec: {image: x}\n", "["} {
		write(content)
		if err := o.validate(); err == nil || !strings.Contains(err.Error(), "--pv-recycler-pod-template-filepath-hostpath") {
			t.Errorf("%q: %v", content, err)
		}
	}
}
