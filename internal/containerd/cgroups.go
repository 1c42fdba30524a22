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

	"github.com/coracle-io/coracle/internal/supervise"
)

const cgroupMount = "/sys/fs/cgroup"

// stateProcesses returns the live processes of the container with a runc state
// file. It returns none if the file no longer exists.
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
		return nil, nil // truncated by a crash; the container ended with its shim
	}
	var pids []int
	for _, dir := range state.CgroupPaths {
		pids = append(pids, cgroupProcesses(dir)...)
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}

// cgroupProcesses returns the processes of a cgroup and of those below it, none
// if it does not exist. A container may have cgroups of its own, such as those
// of an init system.
func cgroupProcesses(dir string) []int {
	var pids []int
	_ = filepath.WalkDir(dir, func(at string, entry fs.DirEntry, err error) error { // what is gone has no processes
		if err != nil || !entry.IsDir() {
			return nil
		}
		content, err := os.ReadFile(filepath.Join(at, "cgroup.procs"))
		if err != nil {
			return nil
		}
		for field := range strings.FieldsSeq(string(content)) {
			if pid, err := strconv.Atoi(field); err == nil && pid > 1 {
				pids = append(pids, pid)
			}
		}
		return nil
	})
	return pids
}

// RemoveCgroups kills the processes in a cgroup, such as /kubepods-coracle, and
// below it, and removes the cgroup. It does so in the unified hierarchy and in
// each hierarchy of version 1.
func RemoveCgroups(ctx context.Context, root string) error {
	if root = filepath.Clean("/" + root); root == "/" {
		return nil
	}
	mounted, err := hierarchies(cgroupMount)
	if err != nil {
		return err
	}
	for _, hierarchy := range mounted {
		if err := removeCgroup(ctx, filepath.Join(hierarchy, root)); err != nil {
			return err
		}
	}
	return nil
}

// hierarchies returns the directories at or in mount at which hierarchies of
// cgroups are mounted. The other directories in a unified hierarchy are cgroups
// of others: a container with a cluster of the same name may have the same
// cgroups below one of them.
func hierarchies(mount string) ([]string, error) {
	version, err := cgroupVersion(mount)
	if err != nil {
		return nil, err
	}
	if version == 2 {
		return []string{mount}, nil
	}
	entries, err := os.ReadDir(mount)
	if err != nil {
		return nil, err
	}
	candidates := []string{mount}
	for _, e := range entries {
		if e.IsDir() { // not the links to hierarchies with several controllers
			candidates = append(candidates, filepath.Join(mount, e.Name()))
		}
	}
	return slices.DeleteFunc(candidates, func(dir string) bool {
		version, err := cgroupVersion(dir)
		return err != nil || version == 0
	}), nil
}

// cgroupVersion returns the version of the hierarchy of cgroups that a directory
// is in, 0 if it is in none.
func cgroupVersion(dir string) (int, error) {
	var at unix.Statfs_t
	if err := unix.Statfs(dir, &at); err != nil {
		return 0, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	switch at.Type {
	case unix.CGROUP2_SUPER_MAGIC:
		return 2, nil
	case unix.CGROUP_SUPER_MAGIC:
		return 1, nil
	}
	return 0, nil
}

// removeCgroup kills the processes of a cgroup and removes it, its children
// first.
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
		if !supervise.Pause(ctx, 2*time.Millisecond) {
			return fmt.Errorf("removing cgroup %s: processes in it do not end: %w", dir, ctx.Err())
		}
	}
}
