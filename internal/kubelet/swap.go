package kubelet

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/coracle-io/coracle/internal/kubelet/files"
)

// swapCapacity returns the size of the machine's swap space in bytes, 0 if swap is
// off.
func (c *Config) swapCapacity() int64 {
	table, err := c.Files.ReadFile("/proc/swaps", files.MaxHostFile)
	if err != nil {
		return 0
	}
	total := int64(0)
	for line := range strings.Lines(string(table)) {
		// name, type, size in KiB, used, priority (proc_swaps(5))
		if fields := strings.Fields(line); len(fields) > 2 {
			size, _ := strconv.ParseInt(fields[2], 10, 53) // the header has no size
			total += size << 10
		}
	}
	return total
}

// limitableSwap returns the size of the swap space of a machine whose kernel can
// limit its use, 0 if swap is off: it may be turned on later. It returns nil for
// other machines: those without control groups of version 2, or booted with
// swapaccount=0.
func (c *Config) limitableSwap() *int64 {
	if !c.unified() {
		return nil
	}
	const root = "/sys/fs/cgroup"
	names, err := c.Files.ReadDir(root) // the root of all groups has no such control, the groups below it have
	if err != nil || !slices.ContainsFunc(append(names, "."), func(name string) bool {
		_, err := c.Files.Stat(filepath.Join(root, name, "memory.swap.max"))
		return err == nil
	}) {
		return nil
	}
	capacity := c.swapCapacity()
	return &capacity
}
