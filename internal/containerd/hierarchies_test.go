package containerd

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestHierarchies checks that only hierarchies are searched for the cgroups of a
// cluster, and no cgroup that is in one: a container with a cluster of the same
// name may have the same cgroups below it.
func TestHierarchies(t *testing.T) {
	got, err := hierarchies(cgroupMount)
	if err != nil || len(got) == 0 {
		t.Fatalf("hierarchies = %v, %v", got, err)
	}
	for _, dir := range got {
		var at unix.Statfs_t
		if err := unix.Statfs(dir, &at); err != nil || at.Type != unix.CGROUP_SUPER_MAGIC && at.Type != unix.CGROUP2_SUPER_MAGIC {
			t.Errorf("%s is no hierarchy: type %x, %v", dir, at.Type, err)
		}
	}
	unified := unifiedMount(t, got)
	if below, err := hierarchies(unified); err != nil || !slices.Equal(below, []string{unified}) {
		t.Errorf("hierarchies(%s) = %v, %v; want itself alone", unified, below, err)
	}
	plain := t.TempDir()
	if err := os.Mkdir(filepath.Join(plain, "memory"), 0o700); err != nil {
		t.Fatal(err)
	}
	if below, err := hierarchies(plain); err != nil || len(below) > 0 {
		t.Errorf("hierarchies in a plain directory = %v, %v; want none", below, err)
	}
}

// unifiedMount returns the unified hierarchy among the given ones.
func unifiedMount(t *testing.T, all []string) string {
	t.Helper()
	for _, dir := range all {
		var at unix.Statfs_t
		if err := unix.Statfs(dir, &at); err == nil && at.Type == unix.CGROUP2_SUPER_MAGIC {
			return dir
		}
	}
	t.Skip("this machine has no unified hierarchy")
	return ""
}
