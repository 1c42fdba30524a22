package kubelet

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/coracle-io/coracle/internal/kubelet/files"
)

// Containers are kept from swapping where the kernel can do so.
func TestSwapOfTheMachine(t *testing.T) {
	const header = "Filename\tType\tSize\tUsed\tPriority\n"
	const on = header + "/dev/sdb1 partition 1024 0 -2\n/swap file 2048 0 -3\n"
	const version2, controls = "/sys/fs/cgroup/cgroup.controllers", "/sys/fs/cgroup/system.slice/memory.swap.max"
	for name, test := range map[string]struct {
		swaps string
		files []string
		want  *int64
	}{
		"off":           {header, []string{version2, controls}, new(int64)}, // it may be turned on later
		"on":            {on, []string{version2, controls}, new(int64(3 << 20))},
		"version 1":     {on, []string{controls}, nil},
		"not accounted": {on, []string{version2}, nil},
	} {
		disk := &files.Memory{}
		for _, path := range append(test.files, "/proc/swaps") {
			if err := disk.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := disk.WriteFile(path, []byte(test.swaps), 0o444); err != nil {
				t.Fatal(err)
			}
		}
		c := Config{Files: disk}
		if diff := cmp.Diff(test.want, c.limitableSwap()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
