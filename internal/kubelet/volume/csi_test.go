package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientfake "k8s.io/client-go/kubernetes/fake"
	events "k8s.io/client-go/tools/record"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/kubelet/csi"
	"github.com/coracle-io/coracle/internal/kubelet/csi/csitest"
	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/pluginwatcher"
)

// bound is a claim and its volume, unless the API server is away.
type bound struct{ away bool }

func (b *bound) Claim(context.Context, string, string) (*v1.PersistentVolumeClaim, error) {
	if b.away {
		return nil, errors.New("away")
	}
	return &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "default", UID: "claim"},
		Spec:       v1.PersistentVolumeClaimSpec{VolumeName: "pv1"}, Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound},
	}, nil
}

func (b *bound) PersistentVolume(context.Context, string) (*v1.PersistentVolume, error) {
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv1"}}
	pv.Spec.ClaimRef = &v1.ObjectReference{UID: "claim"}
	pv.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: "dir.csi.test", VolumeHandle: "vol-1"}
	return pv, nil
}

// TestClaimOfDriver mounts a claim and a subPath of it, restarts the kubelet
// while the API server is away, and ends the pod.
func TestClaimOfDriver(t *testing.T) {
	dir, err := os.MkdirTemp("", "csi") // the path of a socket has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	disk, no := &files.Memory{}, false
	driver := &csitest.Driver{
		Name: "dir.csi.test", NodeID: "n", Dir: "/data", FS: disk, Mounter: disk,
		Capabilities: []csipb.NodeServiceCapability_RPC_Type{csipb.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME},
	}
	stop, err := driver.Serve(filepath.Join(dir, "s"), filepath.Join(dir, "r"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(); _ = os.RemoveAll(dir) })
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "alpha", UID: "n"}}
	api := clientfake.NewSimpleClientset(node, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "dir.csi.test"}, Spec: storagev1.CSIDriverSpec{AttachRequired: &no}})
	server := &bound{}
	restart := func() *Manager {
		ctx, cancel := context.WithCancel(t.Context())
		shared := client.NewInformers(api)
		v := &Manager{Root: "/k", FS: disk, Mounter: disk, Claims: server}
		v.CSI = csi.New(csi.Config{
			Root: v.Root, NodeName: "alpha", FS: disk, Mounter: disk, Client: &client.Client{Kubernetes: api, Informers: shared}, Recorder: events.NewFakeRecorder(10),
			Node: func() *v1.Node { return node }, Report: func() {}, Wake: func(types.UID) {},
		})
		var wg sync.WaitGroup
		wg.Go(func() { _ = shared.Run(ctx) })
		t.Cleanup(func() { cancel(); wg.Wait() })
		shared.WaitForCacheSync(ctx.Done())
		if err := v.CSI.Drivers().Register(ctx, pluginwatcher.Plugin{Name: "dir.csi.test", Endpoint: filepath.Join(dir, "s"), Versions: []string{"1.0"}}); err != nil {
			t.Fatal(err)
		}
		return v
	}
	v := restart()
	pod := podWith(nil, v1.Volume{Name: "d", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}})
	pod.UID = "11111111-1111-1111-1111-111111111111"
	paths, _, err := v.SetUp(t.Context(), pod, Facts{})
	if err != nil {
		t.Fatal(err)
	}
	container := &v1.Container{Name: "main", VolumeMounts: []v1.VolumeMount{{Name: "d", MountPath: "/d", SubPath: "sub"}}}
	if _, err := v.Mounts(pod, container, paths, nil); err != nil {
		t.Fatal(err)
	}
	server.away = true
	v = restart()
	again, outdated, err := v.SetUp(t.Context(), pod, Facts{})
	if err != nil || again["d"] != paths["d"] || len(outdated) != 1 {
		t.Errorf("while the API server is away: %q, %v, %v", again, outdated, err)
	}
	if driver.Mounts() != 2 {
		t.Errorf("%d mounts, want one to stage and one to publish", driver.Mounts())
	}
	driver.Before = func(_ context.Context, method string, _ any) error {
		if left, _ := disk.Below("/k/pods"); method == "NodeUnpublishVolume" && !slices.Equal(left, []string{paths["d"]}) {
			t.Errorf("mounted when the driver unmounts: %q", left)
		}
		return nil
	}
	if err := v.TearDown(t.Context(), pod.UID); err != nil {
		t.Fatal(err)
	}
	if left, _ := disk.Below("/k/pods"); len(left) > 0 {
		t.Errorf("still mounted: %q", left)
	}
	if names, _ := disk.ReadDir("/k/pods"); len(names) > 0 {
		t.Errorf("left: %q", names)
	}
}

// TestTearDownKeepsWhatItsDriverMustUnmount checks that no volume of a driver is
// unmounted or removed without the driver.
func TestTearDownKeepsWhatItsDriverMustUnmount(t *testing.T) {
	disk := &files.Memory{}
	v := &Manager{Root: "/k", FS: disk, Mounter: disk}
	v.CSI = csi.New(csi.Config{Root: v.Root, FS: disk, Mounter: disk})
	const dir = "/k/pods/11111111-1111-1111-1111-111111111111/volumes/kubernetes.io~csi/pv1"
	if err := disk.MkdirAll(dir+"/mount", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := disk.Mount("/data", dir+"/mount", "", nil); err != nil {
		t.Fatal(err)
	}
	for record, want := range map[string]string{
		"": "vol_data.json is missing or damaged", "{": "vol_data.json is missing or damaged",
		`{"volumeHandle":"h","driverName":"d"}`: "driver name d not found in the list of registered CSI drivers",
	} {
		if record != "" {
			if err := disk.WriteFile(dir+"/vol_data.json", []byte(record), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := v.TearDown(t.Context(), "11111111-1111-1111-1111-111111111111"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("record %q: %v, want %q", record, err, want)
		}
		if left, _ := disk.Below("/k"); len(left) != 1 {
			t.Fatalf("record %q: mounted %q", record, left)
		}
		_ = disk.Remove(dir + "/vol_data.json")
	}
}

// A volume that is not mounted any more, and what was written for it since.
func TestDataWithoutAMount(t *testing.T) {
	const uid = "11111111-1111-1111-1111-111111111111"
	for path, stays := range map[string]bool{
		"not/a/volume": false,
		"volumes/":     false,
		"volumes/kubernetes.io~empty-dir/work/file": false,
		"volumes/kubernetes.io~secret/s/..data":     false,
		"volumes/kubernetes.io~nfs/work/":           false,
		"volumes/kubernetes.io~nfs/work/file":       true,
		"volumes/vendor~driver/work/dir/file":       true,
		"volume-subpaths/":                          false,
		"volume-subpaths/work/main/0/":              false,
		"volume-subpaths/work/main/0":               false, // the mount point of a file
		"volume-subpaths/work/main/0/file":          true,
	} {
		disk := &files.Memory{}
		v := &Manager{Root: "/k", FS: disk, Mounter: disk}
		v.CSI = csi.New(csi.Config{Root: v.Root, FS: disk, Mounter: disk})
		path, isDir := strings.CutSuffix(v.PodDir(uid)+"/"+path, "/")
		dir := path
		if !isDir {
			dir = filepath.Dir(path)
		}
		if err := disk.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if !isDir {
			if err := disk.WriteFile(path, []byte("data"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		err := v.TearDown(t.Context(), uid)
		if _, left := disk.Lstat(path); (left == nil) != stays || (err != nil) != stays {
			t.Errorf("%s: stays %t, want %t: %v", path, left == nil, stays, err)
		}
		if _, err := disk.Lstat(v.PodDir(uid)); (err == nil) != stays {
			t.Errorf("%s: the directory of the pod: %v", path, err)
		}
	}
}

// What ends with the pod is removed, although data of another volume stays.
func TestScratchBesideDataWithoutAMount(t *testing.T) {
	const uid = "11111111-1111-1111-1111-111111111111"
	disk := &files.Memory{}
	v := &Manager{Root: "/k", FS: disk, Mounter: disk}
	v.CSI = csi.New(csi.Config{Root: v.Root, FS: disk, Mounter: disk})
	data, scratch := v.PodDir(uid)+"/volumes/kubernetes.io~nfs/work", v.dir(uid, "empty-dir", "cache")
	for _, dir := range []string{data, scratch} {
		if err := disk.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := disk.WriteFile(dir+"/file", []byte("data"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := v.TearDown(t.Context(), uid); err == nil || !strings.Contains(err.Error(), data) {
		t.Errorf("with data that stays: %v", err)
	}
	if _, err := disk.Lstat(scratch); err == nil {
		t.Error("the volume that ends with the pod stays")
	}
	if err := disk.Remove(data + "/file"); err != nil {
		t.Fatal(err)
	}
	if err := v.TearDown(t.Context(), uid); err != nil {
		t.Errorf("without data: %v", err)
	}
	if _, err := disk.Lstat(v.PodDir(uid)); err == nil {
		t.Error("the directory of the pod stays")
	}
}
