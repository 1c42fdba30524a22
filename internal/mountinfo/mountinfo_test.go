package mountinfo

import (
	"slices"
	"testing"
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
