package cluster

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/coracle-io/coracle/internal/mountinfo"
)

// A removed node leaves no mounts in the directory of its kubelet, wherever that is. A
// disk of the user stays, and what it is mounted on.
func TestPurgeUnmountsTheKubelet(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	for name, test := range map[string]struct {
		elsewhere, disk bool
	}{"inside": {}, "elsewhere": {elsewhere: true}, "disk": {elsewhere: true, disk: true}} {
		t.Run(name, func(t *testing.T) {
			o := withNodes(t, 1)
			o.Name, o.Node.RunDir, o.Node.BundleDir = "test-purge-root", t.TempDir(), t.TempDir()
			root := filepath.Join(o.DataDir, "kubelet")
			if test.elsewhere {
				root = t.TempDir()
				o.KubeletArgs = []string{"max-pods=10", "--root-dir=" + root}
			}
			mount := func(source, point, kind string, flags uintptr) string {
				if err := os.MkdirAll(point, 0o700); err != nil {
					t.Fatal(err)
				}
				if err := unix.Mount(source, point, kind, flags, ""); err != nil {
					t.Skipf("cannot mount here: %v", err)
				}
				t.Cleanup(func() { _ = mountinfo.Detach(point) })
				return point
			}
			mount(root, root, "", unix.MS_BIND)
			mount("none", root, "", unix.MS_PRIVATE) // what is mounted below is not on the machine's mount, too
			mount("none", filepath.Join(root, "pods/u/volumes/kubernetes.io~empty-dir/m"), "tmpfs", 0)
			mount("none", filepath.Join(root, "plugins/kubernetes.io/csi/d/h/globalmount"), "tmpfs", 0)
			var want []string
			if test.disk {
				want = []string{root, mount("none", filepath.Join(root, "disk"), "tmpfs", 0)}
			}
			for range 2 {
				if err := purgeAside(t, o); err != nil {
					t.Error(err)
				}
			}
			points, err := mountinfo.Points()
			if left := mountinfo.Below(points, root); err != nil || !slices.Equal(left, want) {
				t.Errorf("mounted are %q (%v), want %q", left, err, want)
			}
		})
	}
}

// The kubelet has the root directory of its arguments.
func TestRootOfKubelet(t *testing.T) {
	for want, arguments := range map[string][]string{
		"/data/kubelet": {"max-pods=10"},
		"/x":            {"max-pods=10", "root-dir=/x"},
		"/y":            {"root-dir=/x", "--root-dir=/y"},
	} {
		s := &settings{Options: Options{DataDir: "/data", KubeletArgs: arguments, Node: &NodeOptions{Number: 1}}}
		if got := rootOfKubelet(s); got != want {
			t.Errorf("%q: the root directory is %s, want %s", arguments, got, want)
		}
	}
}
