package containerd

import (
	"context"
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

	"github.com/coracle-io/coracle/internal/host/tree"
)

// Purge ends this cluster's containers, shims and containerd and removes
// their mounts, network namespaces, cgroups and files. It needs nothing of
// them to be intact or running, may be repeated, and touches nothing of
// another cluster. Run must have returned.
func (r *Runtime) Purge(ctx context.Context) error {
	for {
		p, err := r.find()
		if err != nil {
			return err
		}
		if p == nil {
			break
		}
		p.stop(stopPatience)
		p.close()
	}
	if err := r.killShims(ctx); err != nil {
		return err
	}
	if err := RemoveCgroups(ctx, r.config.CgroupRoot); err != nil {
		return err
	}
	dirs := []string{r.config.RunDir, r.shimSocketDir(), r.config.DataDir}
	for _, dir := range dirs {
		if err := unmountBelow(dir); err != nil {
			return err
		}
	}
	for _, dir := range dirs {
		if err := tree.Remove(dir); err != nil {
			return fmt.Errorf("removing %s: %w", dir, err)
		}
	}
	return nil
}

// killShims ends every shim of this containerd and every process of its
// containers, and returns when they are gone.
func (r *Runtime) killShims(ctx context.Context) error {
	for {
		shims, err := r.shims()
		if err != nil {
			return err
		}
		containers, err := r.containerProcesses()
		if err != nil {
			return err
		}
		if len(shims)+len(containers) == 0 {
			return nil
		}
		// Shims first, so that none of them reports, logs or restarts.
		for _, pid := range append(shims, containers...) {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %d shims and %d container processes to end: %w", len(shims), len(containers), ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// shims lists the processes of this containerd's shims, known by the socket
// that they report to or by their socket folder.
func (r *Runtime) shims() ([]int, error) {
	return processes(func(pid int) bool {
		args := commandLine(pid)
		return len(args) > 0 && filepath.Base(args[0]) == "containerd-shim-runc-v2" && slices.Contains(args, r.socket()) && r.mayBeOurs(pid)
	})
}

// containerProcesses lists the live processes in the cgroups that runc noted
// for its containers.
func (r *Runtime) containerProcesses() ([]int, error) {
	states, err := filepath.Glob(filepath.Join(r.runcRoot(), Namespace, "*", "state.json"))
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, path := range states {
		found, err := stateProcesses(path)
		if err != nil {
			return nil, err
		}
		pids = append(pids, found...)
	}
	return pids, nil
}

// processes lists the ids of the live processes that match.
func processes(match func(pid int) bool) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err == nil && pid > 1 && match(pid) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// rootName and stateName are what containerd calls root and state, in the data
// and in the run directory.
const rootName, stateName = "root", "state"

// unmountBelow detaches every mount at or below dir, the deepest first. Where a
// link is in its place, it detaches what containerd mounts where that leads: the
// file system there, and others below it, are the user's.
func unmountBelow(dir string) error {
	content, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	points := mountPoints(string(content), dir)
	if info, err := os.Lstat(dir); err == nil && info.Mode()&fs.ModeSymlink != 0 {
		points = nil
		for _, own := range []string{rootName, stateName} {
			if real, err := filepath.EvalSymlinks(filepath.Join(dir, own)); err == nil {
				points = append(points, slices.DeleteFunc(mountPoints(string(content), real), func(p string) bool { return p == real })...)
			}
		}
		slices.Sort(points)
	} else if real, err := filepath.EvalSymlinks(dir); err == nil && real != dir { // a link above it
		points = mountPoints(string(content), real)
	}
	for _, point := range slices.Backward(points) {
		err := unix.Unmount(point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("unmounting %s: %w", point, err)
		}
	}
	return nil
}

// mountPoints lists the mount points at or below dir, parents first, out of
// the text of /proc/self/mountinfo (proc_pid_mountinfo(5)).
func mountPoints(mountinfo, dir string) []string {
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var points []string
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		point := unescape.Replace(fields[4])
		if point == dir || strings.HasPrefix(point, dir+"/") {
			points = append(points, point)
		}
	}
	slices.Sort(points)
	return points
}
