package volume

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	_ "github.com/coracle-io/coracle/internal/bubble"
	"github.com/coracle-io/coracle/internal/kubelet/csi"
	"github.com/coracle-io/coracle/internal/kubelet/files"
)

// api is an API server that may be away, and then answers with err or, if
// that is nil, not at all.
type api struct {
	away bool
	err  error
	path string // of the persistent volume
	// deleting makes claims be deleted; owner is the pod that they were made for.
	deleting bool
	owner    types.UID
}

func (a *api) ask(ctx context.Context) error {
	if !a.away {
		return nil
	}
	if a.err == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	return a.err
}

func (a *api) ConfigMap(ctx context.Context, _, _ string) (*v1.ConfigMap, error) {
	return &v1.ConfigMap{Data: map[string]string{"key": "value"}}, a.ask(ctx)
}

func (a *api) Secret(ctx context.Context, _, _ string) (*v1.Secret, error) {
	return &v1.Secret{Data: map[string][]byte{"key": []byte("hidden")}}, a.ask(ctx)
}

func (a *api) Claim(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error) {
	controls := true
	claim := &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: "claim",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", UID: a.owner, Controller: &controls}},
		},
		Spec: v1.PersistentVolumeClaimSpec{VolumeName: "pv"}, Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound},
	}
	if a.deleting {
		now := metav1.Now()
		claim.DeletionTimestamp = &now
	}
	return claim, a.ask(ctx)
}

func (a *api) PersistentVolume(ctx context.Context, name string) (*v1.PersistentVolume, error) {
	return &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PersistentVolumeSpec{
		ClaimRef:               &v1.ObjectReference{UID: "claim"},
		PersistentVolumeSource: v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: a.path}},
	}}, a.ask(ctx)
}

// everyKind is one volume of each kind that the node mounts.
func everyKind() []v1.Volume {
	socket := v1.HostPathSocket
	return []v1.Volume{
		{Name: "work", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
		{Name: "host", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/run/daemon.sock", Type: &socket}}},
		{Name: "cm", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}},
		{Name: "secret", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{}}},
		{Name: "claim", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}},
		{Name: "own", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}},
	}
}

// socketDisk is a disk on which the sockets are.
type socketDisk struct {
	files.Memory
	gone bool
}

func (d *socketDisk) Stat(path string) (fs.FileMode, error) {
	if path == "/run/daemon.sock" && !d.gone {
		return fs.ModeSocket, nil
	}
	return d.Memory.Stat(path)
}

// A volume that was set up stays usable when its source changes or is gone,
// also for a restarted kubelet.
func TestVolumesOutliveTheirSources(t *testing.T) {
	notFound := apierrors.NewNotFound(schema.GroupResource{Resource: "secret"}, "s")
	for name, failure := range map[string]error{"gone": notFound, "refused": errors.New("connection refused"), "silent": nil} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk, server := &socketDisk{}, &api{err: failure, path: "/mnt/disk", owner: "uid"}
				if err := disk.MkdirAll(server.path, 0o755); err != nil {
					t.Fatal(err)
				}
				v := &Manager{Root: "/k", FS: disk, Mounter: disk, Objects: server, Claims: server}
				pod := podWith(nil, everyKind()...)
				before, outdated, err := v.SetUp(t.Context(), pod, Facts{})
				if err != nil || len(outdated) > 0 {
					t.Fatal(err, outdated)
				}
				server.away, disk.gone = true, true
				for _, v := range []*Manager{v, {Root: "/k", FS: disk, Mounter: disk, Objects: server, Claims: server}} {
					began := time.Now()
					paths, outdated, err := v.SetUp(t.Context(), pod, Facts{})
					if err != nil {
						t.Fatal(err)
					}
					if len(outdated) != 3 { // the socket, the config map and the secret
						t.Errorf("outdated are %v", outdated)
					}
					if took := time.Since(began); took > maxRefresh {
						t.Errorf("containers had to wait %v", took)
					}
					for name, path := range before {
						if paths[name] != path {
							t.Errorf("volume %s was at %q and is at %q", name, path, paths[name])
						}
					}
				}
				disk.gone = false
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				if _, _, err := v.SetUp(ctx, withUID(pod, "other"), Facts{}); err == nil {
					t.Error("a pod began without its volumes")
				}
			})
		})
	}
}

// TestClaimBeingDeletedIsNotMounted checks that a pod does not get a claim that
// is being deleted, and that a pod that has it keeps it. The protection of claims
// relies on that: it releases a claim once no pod on a node refers to it, and a
// pod may be bound right after it has looked.
func TestClaimBeingDeletedIsNotMounted(t *testing.T) {
	disk, server := &files.Memory{}, &api{path: "/mnt/disk"}
	if err := disk.MkdirAll(server.path, 0o755); err != nil {
		t.Fatal(err)
	}
	restart := func() *Manager { return &Manager{Root: "/k", FS: disk, Mounter: disk, Claims: server} }
	pod := podWith(nil, v1.Volume{Name: "d", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}})
	if _, _, err := restart().SetUp(t.Context(), pod, Facts{}); err != nil {
		t.Fatal(err)
	}
	server.deleting = true
	if paths, outdated, err := restart().SetUp(t.Context(), pod, Facts{}); err != nil || paths["d"] != server.path || len(outdated) > 0 {
		t.Errorf("the pod that has the claim: %q, %v, %v", paths, outdated, err)
	}
	if paths, _, err := restart().SetUp(t.Context(), withUID(pod, "other"), Facts{}); err == nil || !strings.Contains(err.Error(), "PVC default/c is being deleted") {
		t.Errorf("a pod that does not: %q, %v", paths, err)
	}
}

// TestEphemeralVolumeBelongsToItsPod checks that a pod does not get a claim that
// has the name of its ephemeral volume's and was made for another.
func TestEphemeralVolumeBelongsToItsPod(t *testing.T) {
	disk, server := &files.Memory{}, &api{path: "/mnt/disk", owner: "uid"}
	if err := disk.MkdirAll(server.path, 0o755); err != nil {
		t.Fatal(err)
	}
	v := &Manager{Root: "/k", FS: disk, Mounter: disk, Claims: server}
	pod := podWith(nil, v1.Volume{Name: "own", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}})
	if paths, _, err := v.SetUp(t.Context(), withUID(pod, "other"), Facts{}); err == nil || !strings.Contains(err.Error(), "was not created for pod") {
		t.Errorf("a pod that does not own the claim: %q, %v", paths, err)
	}
	if paths, _, err := v.SetUp(t.Context(), pod, Facts{}); err != nil || paths["own"] != server.path {
		t.Errorf("the owner: %q, %v", paths, err)
	}
}

func withUID(pod *v1.Pod, uid string) *v1.Pod {
	pod = pod.DeepCopy()
	pod.UID = types.UID(uid)
	return pod
}

// broken is a disk on which handing over to a group fails at first.
type broken struct {
	files.Memory
	fails  bool
	shared []string
}

func (b *broken) Share(root string, gid int, readOnly bool, visited func()) error {
	if b.fails {
		return errors.New("input/output error")
	}
	b.shared = append(b.shared, root)
	return b.Memory.Share(root, gid, readOnly, visited)
}

// An emptyDir counts as set up when all of it is done: not after a kill half
// way, and not after a reboot that took its mount.
func TestEmptyDirIsCompleted(t *testing.T) {
	huge := v1.ResourceRequirements{Requests: v1.ResourceList{"hugepages-2Mi": resource.MustParse("4Mi")}}
	for medium, fstype := range map[v1.StorageMedium]string{
		v1.StorageMediumDefault: "", v1.StorageMediumMemory: "tmpfs", v1.StorageMediumHugePages: "nodev", "HugePages-2Mi": "nodev",
	} {
		t.Run(string(medium), func(t *testing.T) {
			disk := &broken{fails: true}
			group := int64(7)
			pod := podWith(nil, v1.Volume{Name: "m", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: medium}}})
			pod.Spec.SecurityContext.FSGroup, pod.Spec.Containers[0].Resources = &group, huge
			v := &Manager{Root: "/k", FS: disk, Mounter: disk}
			if _, _, err := v.SetUp(t.Context(), pod, Facts{}); err == nil {
				t.Fatal("the group does not own the volume, and no error says so")
			}
			disk.fails = false
			for _, when := range []string{"after the error", "again", "after a reboot"} {
				paths, _, err := v.SetUp(t.Context(), pod, Facts{})
				if err != nil {
					t.Fatal(when, err)
				}
				mounts, err := disk.Below(paths["m"])
				if err != nil || slices.Contains(mounts, paths["m"]) != (fstype != "") {
					t.Errorf("%s: mounts are %v (%v), want %q", when, mounts, err, fstype)
				}
				if want := when == "after a reboot" && fstype != ""; len(disk.shared) != 1 && !want || len(disk.shared) != 2 && want {
					t.Errorf("%s: handed over %d times", when, len(disk.shared))
				}
				if when == "again" {
					for _, m := range mounts {
						if err := disk.Unmount(m); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
		})
	}
}

// A process that was killed between the rename and what comes after it leaves
// nothing behind permanently.
func TestWriteIsCompleted(t *testing.T) {
	disk := &files.Memory{}
	v := &Manager{FS: disk, Mounter: disk}
	payload := map[string]file{"a": {data: []byte("1"), mode: 0o644}}
	if _, err := v.write("/v", payload, nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := disk.Remove("/v/a"); err != nil {
		t.Fatal(err)
	}
	if err := disk.MkdirAll("/v/..2001_01_01_00_00_00.0", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := disk.WriteFile("/v/..2001_01_01_00_00_00.0/a", []byte("0"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := v.write("/v", payload, nil, nil); err != nil {
		t.Fatal(err)
	}
	names, err := disk.ReadDir("/v")
	if err != nil || len(names) != 3 || !slices.Contains(names, "a") {
		t.Errorf("the volume has %v (%v)", names, err)
	}
}

// The same on the machine's own disk and mounts.
func TestMemoryIsMountedAgain(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	v := &Manager{Root: t.TempDir(), FS: files.OS{}, Mounter: files.OS{}, Objects: objects{}}
	v.CSI = csi.New(csi.Config{Root: v.Root, FS: v.FS, Mounter: v.Mounter})
	size := resource.MustParse("1Mi")
	pod := podWith(nil,
		v1.Volume{Name: "m", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory, SizeLimit: &size}}},
		v1.Volume{Name: "s", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{}}},
	)
	defer func() {
		if err := v.TearDown(t.Context(), pod.UID); err != nil {
			t.Error(err)
		}
	}()
	for _, when := range []string{"first", "again", "after a reboot"} {
		paths, outdated, err := v.SetUp(t.Context(), pod, Facts{})
		if err != nil || len(outdated) > 0 {
			t.Fatal(when, err, outdated)
		}
		for name, path := range paths {
			mounts, err := v.Mounter.Below(path)
			if err != nil || !slices.Equal(mounts, []string{path}) {
				t.Errorf("%s: volume %s has the mounts %v (%v)", when, name, mounts, err)
			}
			if when == "again" {
				if err := v.Mounter.Unmount(path); err != nil {
					t.Fatal(err)
				}
			}
		}
		if raw, err := v.FS.ReadFile(paths["s"]+"/key", 10); when != "again" && string(raw) != "hidden" {
			t.Errorf("%s: the secret is %q (%v)", when, raw, err)
		}
		var disk unix.Statfs_t
		if err := unix.Statfs(paths["m"], &disk); when != "again" && (err != nil || int64(disk.Blocks)*disk.Bsize != size.Value()) {
			t.Errorf("%s: the volume has %d bytes (%v)", when, int64(disk.Blocks)*disk.Bsize, err)
		}
	}
}

// The record of a volume of a driver is readable however much the driver's
// attributes say.
func TestRecordOfVolumeWithManyAttributes(t *testing.T) {
	v := &Manager{Root: "/k", FS: &files.Memory{}}
	vol := &v1.Volume{Name: "d", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv1"}}
	pv.Spec.CSI = &v1.CSIPersistentVolumeSource{
		Driver: "dir.csi.test", VolumeHandle: "vol-1", VolumeAttributes: map[string]string{"long": strings.Repeat("x", maxReady)},
	}
	if err := v.setReady("uid", vol, pv); err != nil {
		t.Fatal(err)
	}
	if got := v.resolved("uid", vol); got == nil || got.Name != "pv1" || got.Spec.CSI.Driver != "dir.csi.test" || got.Spec.CSI.VolumeHandle != "vol-1" {
		t.Errorf("the record has %v", got)
	}
}
