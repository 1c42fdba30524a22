package volume

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/kubelet/csi"
	"github.com/coracle-io/coracle/internal/kubelet/files"
)

// What is mounted on the machine below a path that a container has by a subPath is
// propagated there. It stays on the machine when the container restarts, and when the pod
// ends.
func TestMountsOfTheMachineBelowASubPath(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	dir := t.TempDir()
	mount := func(point, kind string, flags uintptr) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(point, 0o700), unix.Mount("none", point, kind, flags, "")); err != nil {
			t.Skipf("cannot mount here: %v", err)
		}
	}
	mount(dir, "tmpfs", 0)
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	mount(dir, "", unix.MS_SHARED)
	host := files.OS{}
	v := &Manager{Root: filepath.Join(dir, "kubelet"), FS: host, Mounter: host}
	v.CSI = csi.New(csi.Config{Root: v.Root, FS: host, Mounter: host})
	pod := podWith(nil, v1.Volume{Name: "d", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: dir}}})
	start := func() {
		t.Helper()
		c := &v1.Container{Name: "c", VolumeMounts: []v1.VolumeMount{{Name: "d", MountPath: "/at", SubPath: "machine"}}}
		if _, err := v.Mounts(pod, c, map[string]string{"d": dir}, nil); err != nil {
			t.Fatal(err)
		}
	}
	check := func(point string, want bool) {
		t.Helper()
		if is, err := host.IsMountPoint(point); err != nil || is != want {
			t.Errorf("%s is mounted: %t (%v)", point, is, err)
		}
	}
	path := filepath.Join(v.PodDir(pod.UID), "volume-subpaths/d/c/0")
	start()
	mount(filepath.Join(dir, "machine/first"), "tmpfs", 0)
	check(filepath.Join(path, "first"), true)
	start()
	check(filepath.Join(path, "first"), false)
	mount(filepath.Join(dir, "machine/second"), "tmpfs", 0)
	check(filepath.Join(path, "second"), true)
	if err := v.TearDown(t.Context(), pod.UID); err != nil {
		t.Error(err)
	}
	check(path, false)
	check(filepath.Join(dir, "machine/first"), true)
	check(filepath.Join(dir, "machine/second"), true)
}
