package containerd

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coracle-io/coracle/internal/host/tree"
	"github.com/coracle-io/coracle/internal/mountinfo"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Purge ends this cluster's containers, shims and containerd, and removes their
// mounts, network namespaces, cgroups and files. It works if some of them are
// damaged or missing, and may be called again. It does not touch other
// clusters. Run must have returned.
func (r *Runtime) Purge(ctx context.Context) error {
	for {
		p, err := r.find()
		if err != nil {
			return err
		}
		if p == nil {
			break
		}
		p.stop(stopTimeout)
		p.close()
	}
	if err := r.killShims(ctx); err != nil {
		return err
	}
	if err := RemoveCgroups(ctx, r.config.CgroupRoot); err != nil {
		return err
	}
	dirs := []string{r.config.RunDir, r.config.shimSocketDir(), r.config.DataDir}
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

// killShims ends each shim of this containerd and the processes of its
// containers. It returns when they are gone.
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
		// Kill shims first, so that they neither report nor restart anything.
		for _, pid := range append(shims, containers...) {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		if !supervise.Pause(ctx, 5*time.Millisecond) {
			return fmt.Errorf("waiting for %d shims and %d container processes to end: %w", len(shims), len(containers), ctx.Err())
		}
	}
}

// shims returns the processes of this containerd's shims, of all namespaces.
// They are identified by the socket that they report to.
func (r *Runtime) shims() ([]int, error) {
	return processes(func(pid int) bool {
		args := commandLine(pid)
		return len(args) > 0 && filepath.Base(args[0]) == "containerd-shim-runc-v2" && argument(args, "-address") == r.config.socket() && r.mayBeOwn(pid)
	})
}

// containerProcesses returns the live processes in the cgroups that runc has
// recorded for its containers.
func (r *Runtime) containerProcesses() ([]int, error) {
	states, err := filepath.Glob(filepath.Join(r.config.runcRoot(), Namespace, "*", "state.json"))
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

// processes returns the ids of the live processes that match.
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

// rootName and stateName are the names of containerd's root in the data
// directory and its state in the run directory.
const rootName, stateName = "root", "state"

// unmountBelow unmounts everything at or below dir, the deepest first. If dir
// is behind a symbolic link, it unmounts only what containerd mounts at the
// target, because other file systems there belong to the user.
func unmountBelow(dir string) error {
	all, err := mountinfo.Points()
	if err != nil {
		return err
	}
	points := mountinfo.Below(all, dir)
	if info, err := os.Lstat(dir); err == nil && info.Mode()&fs.ModeSymlink != 0 {
		points = nil
		for _, own := range []string{rootName, stateName} {
			if real, err := filepath.EvalSymlinks(filepath.Join(dir, own)); err == nil {
				points = append(points, slices.DeleteFunc(mountinfo.Below(all, real), func(p string) bool { return p == real })...)
			}
		}
		slices.Sort(points)
	} else if real, err := filepath.EvalSymlinks(dir); err == nil && real != dir { // a symbolic link in its path
		points = mountinfo.Below(all, real)
	}
	for _, point := range slices.Backward(points) {
		if err := mountinfo.Detach(point); err != nil {
			return err
		}
	}
	return nil
}
