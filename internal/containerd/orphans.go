package containerd

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	supervision "github.com/coracle-io/coracle/internal/processes"
	"github.com/coracle-io/coracle/internal/supervise"
)

// orphanTimeout bounds the wait for the end of orphaned shims.
const orphanTimeout = 5 * time.Second

// killOrphanedShims ends the shims of lost pods, and their containers, because no
// containerd can manage them. Otherwise they would keep running next to the pods
// that the kubelet starts instead. Shims of other namespaces of this containerd,
// such as those of a user's ctr, are not pods: their directories are elsewhere.
func (r *Runtime) killOrphanedShims(ctx context.Context, lost func(id string) bool) error {
	ctx, cancel := context.WithTimeout(ctx, orphanTimeout)
	defer cancel()
	shims, err := r.shims()
	if err != nil {
		return err
	}
	for _, shim := range shims {
		args := commandLine(shim)
		id := argument(args, "-id")
		if argument(args, "-namespace") != Namespace || id == "" || id != filepath.Base(id) {
			continue
		}
		if !lost(id) {
			continue
		}
		klog.FromContext(ctx).Info("Ending the containers of a pod that containerd has lost", "sandbox", id, "shimPID", shim)
		if err := r.killShim(ctx, shim); err != nil {
			return err
		}
	}
	return nil
}

// killShim ends a shim and the processes in the control groups of its
// containers.
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
		if !supervise.Pause(ctx, 5*time.Millisecond) {
			return ctx.Err()
		}
	}
}

// taskPlugin is the name of the directories of tasks in containerd's root and
// state.
const taskPlugin = "io.containerd.runtime.v2.task"

// groups returns the control groups of the container of a process, if they
// belong to this cluster's pods. The process itself may be in a group below
// them that the container has made.
func (r *Runtime) groups(pid int) (dirs []string) {
	content, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil || r.config.CgroupRoot == "" {
		return nil
	}
	return r.groupsOf(string(content))
}

// groupsOf returns the control groups for the content of a process' cgroup file.
func (r *Runtime) groupsOf(content string) (dirs []string) {
	for line := range strings.Lines(content) {
		// hierarchy, controllers, path (cgroups(7))
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) != 3 {
			continue
		}
		below, ok := strings.CutPrefix(parts[2], r.config.CgroupRoot+"/")
		if !ok {
			continue
		}
		hierarchy := strings.TrimPrefix(parts[1], "name=")
		dirs = append(dirs, filepath.Join(cgroupMount, hierarchy, r.config.CgroupRoot, containerGroup(below)))
	}
	return dirs
}

// containerGroup returns the part of a path below the root of the pods' control
// groups that ends with the group of a container, whose name has the id of the
// container. Without one it returns the path.
func containerGroup(path string) string {
	if at := regexp.MustCompile(`[0-9a-f]{64}[^/]*`).FindStringIndex(path); at != nil {
		return path[:at[1]]
	}
	return path
}

// argument returns the value that follows a flag on a command line.
func argument(args []string, flag string) string {
	if i := slices.Index(args, flag); i >= 0 && i+1 < len(args) {
		return args[i+1]
	}
	return ""
}
