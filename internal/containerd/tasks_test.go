package containerd

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestRemoveLostTasks removes the directories that a killed containerd was
// removing and the directories of tasks whose state is gone, and no others.
func TestRemoveLostTasks(t *testing.T) {
	r, err := New(Config{BundleDir: "/bundle", DataDir: t.TempDir(), RunDir: t.TempDir(), CNIConfDir: "/cni"})
	if err != nil {
		t.Fatal(err)
	}
	if err := (tasks{r}).removeLost(); err != nil {
		t.Fatalf("before the first start: %v", err)
	}
	for dir, tasks := range map[string][]string{r.config.stateDir(): {"lives", ".deleted"}, filepath.Join(r.config.DataDir, "root"): {"lives", ".deleted", "lost"}} {
		for _, name := range tasks {
			if err := os.MkdirAll(filepath.Join(dir, "io.containerd.runtime.v2.task", "k8s.io", name, "rootfs"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := (tasks{r}).removeHalfRemoved(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Join(r.config.DataDir, "root", taskPlugin, Namespace)); err != nil || len(left) != 2 {
		t.Errorf("while containerd runs, %v are left, %v; want lives and lost", left, err)
	}
	if err := (tasks{r}).removeLost(); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{r.config.stateDir(), filepath.Join(r.config.DataDir, "root")} {
		tasks := filepath.Join(dir, "io.containerd.runtime.v2.task", "k8s.io")
		for _, name := range []string{".deleted", "lost"} {
			if _, err := os.Stat(filepath.Join(tasks, name)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s in %s: %v", name, tasks, err)
			}
		}
		if _, err := os.Stat(filepath.Join(tasks, "lives", "rootfs")); err != nil {
			t.Error(err)
		}
	}
}
