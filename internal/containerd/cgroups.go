package containerd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const cgroupMount = "/sys/fs/cgroup"

// stateProcesses lists the live processes of the container whose runc state
// file this is. A file that vanishes meanwhile has none.
func stateProcesses(path string) ([]int, error) {
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var state struct {
		CgroupPaths map[string]string `json:"cgroup_paths"`
	}
	if err := json.Unmarshal(content, &state); err != nil {
		return nil, nil // cut short by a crash: the shim's death ended its container
	}
	var pids []int
	for _, dir := range state.CgroupPaths {
		pids = append(pids, cgroupProcesses(dir)...)
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}

// cgroupProcesses lists the processes of one cgroup, none if there is no such.
func cgroupProcesses(dir string) []int {
	content, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return nil
	}
	var pids []int
	for field := range strings.FieldsSeq(string(content)) {
		if pid, err := strconv.Atoi(field); err == nil && pid > 1 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// RemoveCgroups kills what runs in the cgroup root (such as
// /kubepods-coracle) and below and removes it, in the unified hierarchy and
// in every version 1 one.
func RemoveCgroups(ctx context.Context, root string) error {
	if root = filepath.Clean("/" + root); root == "/" {
		return nil
	}
	dirs := []string{filepath.Join(cgroupMount, root)}
	hierarchies, err := os.ReadDir(cgroupMount)
	if err != nil {
		return err
	}
	for _, h := range hierarchies {
		if h.IsDir() {
			dirs = append(dirs, filepath.Join(cgroupMount, h.Name(), root))
		}
	}
	for _, dir := range dirs {
		if err := removeCgroup(ctx, dir); err != nil {
			return err
		}
	}
	return nil
}

// removeCgroup empties and removes one cgroup, its children first.
func removeCgroup(ctx context.Context, dir string) error {
	children, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, child := range children {
		if child.IsDir() {
			if err := removeCgroup(ctx, filepath.Join(dir, child.Name())); err != nil {
				return err
			}
		}
	}
	for {
		for _, pid := range cgroupProcesses(dir) {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		err := unix.Rmdir(dir)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("removing cgroup %s: %w", dir, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("removing cgroup %s: processes in it do not end: %w", dir, ctx.Err())
		case <-time.After(2 * time.Millisecond):
		}
	}
}
