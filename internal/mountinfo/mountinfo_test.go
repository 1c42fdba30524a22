package mountinfo

import (
	"slices"
	"testing"
)

func TestBelow(t *testing.T) {
	points := parse(`22 1 254:0 / / rw - ext4 /dev/vda rw
30 22 0:40 / /run/c/state/rootfs rw - overlay overlay rw
31 22 0:41 / /run/cc rw - tmpfs tmpfs rw
32 22 0:42 / /run/c rw - tmpfs tmpfs rw
33 22 0:43 / /run/c/a\040b rw - tmpfs tmpfs rw
damaged
`)
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
