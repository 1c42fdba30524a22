package mountinfo

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func TestBelow(t *testing.T) {
	points := points(parse(`22 1 254:0 / / rw - ext4 /dev/vda rw
30 22 0:40 / /run/c/state/rootfs rw - overlay overlay rw
31 22 0:41 / /run/cc rw - tmpfs tmpfs rw
32 22 0:42 / /run/c rw - tmpfs tmpfs rw
33 22 0:43 / /run/c/a\040b rw - tmpfs tmpfs rw
damaged
`))
	if got, want := Below(points, "/run/c"), []string{"/run/c", "/run/c/a b", "/run/c/state/rootfs"}; !slices.Equal(got, want) {
		t.Errorf("below /run/c are %q, want %q", got, want)
	}
	if got := Below(points, "/"); len(got) != 5 {
		t.Errorf("below / are %q", got)
	}
}

func TestPoints(t *testing.T) {
	if points, err := Points(); err != nil || !slices.Contains(points, "/") || !slices.IsSorted(points) {
		t.Errorf("points %q, error %v", points, err)
	}
}

func TestShared(t *testing.T) {
	all := parse(`22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 254:0 /data/kubelet /data/kubelet rw,relatime shared:7 - ext4 /dev/vda rw
31 30 0:41 / /data/kubelet/private rw - tmpfs shared:8 rw
32 22 0:42 / /twice rw shared:9 master:1 - tmpfs tmpfs rw
33 32 0:43 / /twice rw master:1 - tmpfs tmpfs rw
`)
	for path, want := range map[string]bool{
		"/": false, "/data": false, "/data/kubelet": true, "/data/kubelet/pods": true, "/data/kubelets": false, "/data/kubelet/private/x": false, "/twice": false,
	} {
		if got := at(all, path).shared; got != want {
			t.Errorf("%s is on a shared mount: %t", path, got)
		}
	}
}

// A directory of another place, a file system and a device are not a directory on itself.
func TestOnItself(t *testing.T) {
	all := parse(`1 1 0:2 / / rw - rootfs rootfs rw
22 1 254:0 /sub / rw - ext4 /dev/vda rw
30 22 254:0 /sub/data/kubelet /data/kubelet rw shared:7 - ext4 /dev/vda rw
31 30 0:41 / /data/kubelet/pods/a rw - tmpfs tmpfs rw
32 22 254:0 /sub/other /data/other/kubelet rw - ext4 /dev/vda rw
33 22 0:50 / /disk rw - ext4 /dev/vdb rw
34 33 0:50 / /disk rw - ext4 /dev/vdb rw
35 22 0:51 /sub/data/x /data/x rw - ext4 /dev/vdc rw
`)
	if got, want := onItself(all), []string{"/data/kubelet", "/disk"}; !slices.Equal(got, want) {
		t.Errorf("on themselves are %q, want %q", got, want)
	}
	for dir, want := range map[string]bool{"/data/kubelet": true, "/disk": false, "/data/x": false, "/data": false} { // a disk is below /disk
		if got := isOnItself(all, dir); got != want {
			t.Errorf("%s is on itself: %t", dir, got)
		}
	}
}

// What was propagated to below a directory is unmounted there, and not where it comes from.
func TestDetachAll(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	dir := t.TempDir()
	t.Cleanup(func() { _ = Detach(dir) })
	source, own := filepath.Join(dir, "source"), filepath.Join(dir, "own")
	mount := func(from, point, kind string, flags uintptr) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(point, 0o700), unix.Mount(from, point, kind, flags, "")); err != nil {
			t.Skipf("cannot mount here: %v", err)
		}
	}
	expect := func(at string, want ...string) {
		t.Helper()
		points, err := Points()
		if got := Below(points, at); err != nil || !slices.Equal(got, want) {
			t.Errorf("mounted are %q (%v), want %q", got, err, want)
		}
	}
	mount("none", dir, "tmpfs", 0)
	mount("none", dir, "", unix.MS_SHARED)
	if err := os.Mkdir(source, 0o700); err != nil {
		t.Fatal(err)
	}
	mount(source, filepath.Join(own, "bind"), "", unix.MS_BIND)
	mount("none", filepath.Join(source, "disk"), "tmpfs", 0)
	expect(own, filepath.Join(own, "bind"), filepath.Join(own, "bind/disk"))
	points, err := Points()
	if err := errors.Join(err, DetachAll(Below(points, own))); err != nil {
		t.Error(err)
	}
	expect(own)
	expect(source, filepath.Join(source, "disk"))
}
