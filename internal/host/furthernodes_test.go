package host

import (
	"os"
	"path/filepath"
	"testing"
)

// Files that users have put beside the data of further nodes stay.
func TestRemoveDataKeepsFilesOfUsersBelowNodes(t *testing.T) {
	dir := t.TempDir()
	own := []string{"nodes/2/kubelet/pods/a", "nodes/2/cni/leases/10.0.0.1", "nodes/3/containerd/io/x"}
	users := []string{"nodes/2/containerd.d/runtime.toml", "nodes/notes.txt"}
	for _, name := range append(own, users...) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	left, err := RemoveData(dir)
	if err != nil || len(left) != 1 || left[0] != "nodes" {
		t.Errorf("left %q, %v", left, err)
	}
	for _, name := range users {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Errorf("a user's file: %v", err)
		}
	}
	for _, name := range []string{"nodes/2/kubelet", "nodes/2/cni", "nodes/3"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", name, err)
		}
	}
}
