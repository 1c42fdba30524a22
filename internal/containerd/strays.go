package containerd

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	supervision "github.com/coracle-io/coracle/internal/processes"
)

// strayPatience is how long the end of all strays is waited for.
const strayPatience = 5 * time.Second

// killStrays ends the shims that no containerd can know again, since their
// folder in its state is gone, with the containers that they hold. The kubelet
// starts those pods anew; the old ones would run on beside them.
func (r *Runtime) killStrays(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, strayPatience)
	defer cancel()
	shims, err := r.shims()
	if err != nil {
		return err
	}
	for _, shim := range shims {
		id := argument(commandLine(shim), "-id")
		if id == "" || id != filepath.Base(id) {
			continue
		}
		if _, err := os.Lstat(filepath.Join(r.stateDir(), "io.containerd.runtime.v2.task", Namespace, id)); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		klog.FromContext(ctx).Info("Ending the containers of a pod that containerd has lost", "sandbox", id, "shimPID", shim)
		if err := r.killShim(ctx, shim); err != nil {
			return err
		}
	}
	return nil
}

// killShim ends a shim and what runs in the control groups of its containers.
func (r *Runtime) killShim(ctx context.Context, shim int) error {
	held, err := processes(func(pid int) bool {
		s, ok := supervision.ReadStat(pid)
		return ok && s.Parent == shim
	})
	if err != nil {
		return err
	}
	var groups []string
	for _, pid := range held {
		groups = append(groups, r.groups(pid)...)
	}
	_ = unix.Kill(shim, unix.SIGKILL)
	for {
		left := slices.DeleteFunc(held, func(pid int) bool {
			_, lives := supervision.ReadStat(pid)
			return !lives || unix.Kill(pid, unix.SIGKILL) != nil
		})
		for _, group := range groups {
			for _, pid := range cgroupProcesses(group) {
				_ = unix.Kill(pid, unix.SIGKILL)
				left = append(left, pid)
			}
		}
		if len(left) == 0 {
			return nil
		}
		held = left
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// groups are the control groups of a process, as far as they are of this
// cluster's pods.
func (r *Runtime) groups(pid int) (dirs []string) {
	content, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil || r.config.CgroupRoot == "" {
		return nil
	}
	for line := range strings.Lines(string(content)) {
		// hierarchy number, controllers, path (cgroups(7))
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) != 3 || !strings.HasPrefix(parts[2], r.config.CgroupRoot+"/") {
			continue
		}
		hierarchy := strings.TrimPrefix(parts[1], "name=")
		dirs = append(dirs, filepath.Join(cgroupMount, hierarchy, parts[2]))
	}
	return dirs
}

// argument is what follows a flag on a command line.
func argument(args []string, flag string) string {
	if i := slices.Index(args, flag); i >= 0 && i+1 < len(args) {
		return args[i+1]
	}
	return ""
}
