package containerd

import (
	"bufio"
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coracle-io/coracle/test/mark"
)

// TestOrphansOfOtherNamespacesLive ends the shims of pods whose directory was
// removed or of which runc knows nothing any more, and neither one that has both, nor
// one that is being made, nor those of other runtimes, namespaces and containerds.
func TestOrphansOfOtherNamespacesLive(t *testing.T) {
	r, err := New(Config{BundleDir: "/bundle", DataDir: t.TempDir(), RunDir: t.TempDir(), CNIConfDir: "/cni"})
	if err != nil {
		t.Fatal(err)
	}
	options := `{"binary_name":"/bundle/bin/runc","root":"` + r.config.runcRoot() + `"}`
	for name, files := range map[string]map[string]string{
		"lives":   {"options.json": options, "init.pid": "1"},
		"unknown": {"options.json": options, "init.pid": "1"},
		"begins":  {"options.json": options},
		"other":   {"options.json": `{"binary_name":"/usr/bin/crun"}`, "init.pid": "1"},
		"foreign": {"init.pid": "1"},
	} {
		dir := filepath.Join(tasks{r}.dir(), name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for file, content := range files {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.MkdirAll(filepath.Join(r.config.runcRoot(), Namespace, "lives"), 0o700); err != nil {
		t.Fatal(err)
	}
	// A shell with the command line of a shim ends with its input.
	shims := map[string]struct {
		namespace, id, address string
		ends                   bool
	}{
		"a pod that is lost":        {Namespace, "lost", r.config.socket(), true},
		"a pod that runc has lost":  {Namespace, "unknown", r.config.socket(), true},
		"a pod":                     {Namespace, "lives", r.config.socket(), false},
		"a pod that is being made":  {Namespace, "begins", r.config.socket(), false},
		"another runtime":           {Namespace, "other", r.config.socket(), false},
		"a runtime that is no runc": {Namespace, "foreign", r.config.socket(), false},
		"another namespace":         {"default", "lost", r.config.socket(), false},
		"another containerd":        {Namespace, "lost", "/run/other/containerd.sock", false},
	}
	for name, shim := range shims {
		cmd := exec.Command("sh", "-c", "read end; exit 0", "-namespace", shim.namespace, "-id", shim.id, "-address", shim.address)
		cmd.Args[0] = "containerd-shim-runc-v2"
		input, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = input.Close()
			if err := cmd.Wait(); (err != nil) != shim.ends {
				t.Errorf("the shim of %s: %v, want it to be killed: %t", name, err, shim.ends)
			}
		})
	}
	if (tasks{r}).isGone("unknown") {
		t.Error("what containerd that runs may be removing counts as gone")
	}
	if err := r.killOrphanedShims(t.Context(), (tasks{r}).isLost); err != nil {
		t.Error(err)
	}
}

// A shim of which containerd knows nothing is ended at the second look: at the first it
// may have been on its way.
func TestShimsThatStayGoneAreEnded(t *testing.T) {
	r, err := New(Config{BundleDir: "/bundle", DataDir: t.TempDir(), RunDir: t.TempDir(), CNIConfDir: "/cni"})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(tasks{r}.dir(), "lives"), 0o700); err != nil {
		t.Fatal(err)
	}
	lives := map[string]func() bool{} // whether a shim answers
	for _, id := range []string{"lives", "gone"} {
		cmd := exec.Command("sh", "-c", "while read x; do echo $x; done", "-namespace", Namespace, "-id", id, "-address", r.config.socket())
		cmd.Args[0] = "containerd-shim-runc-v2"
		input, inputErr := cmd.StdinPipe()
		output, err := cmd.StdoutPipe()
		if err = errors.Join(inputErr, err, cmd.Start()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = input.Close(); _ = cmd.Wait() })
		answers := bufio.NewScanner(output)
		lives[id] = func() bool { _, err := input.Write([]byte("x\n")); return err == nil && answers.Scan() }
	}
	var gone map[string]bool
	for look, want := range []bool{true, false} {
		if gone, err = (tasks{r}).endGone(t.Context(), gone); err != nil || !maps.Equal(gone, map[string]bool{"gone": true}) {
			t.Fatalf("gone are %v, %v", gone, err)
		}
		if got := lives["gone"](); got != want || !lives["lives"]() {
			t.Errorf("look %d: the shim that is gone lives: %t", look, got)
		}
	}
}

// The root of the pods' control groups may itself be below the group of a
// container whose name looks like the name of a pod's container.
func TestContainerGroupBelowAContainer(t *testing.T) {
	outer, own := strings.Repeat("a", 64), strings.Repeat("b", 64)
	r := &Runtime{config: Config{CgroupRoot: "/docker/" + outer + "/kubepods"}}
	pod := r.config.CgroupRoot + "/pod1/" + own
	got := r.groupsOf("1:name=systemd:" + pod + "/init.scope\n2:cpu:/docker/" + outer + "\n0::" + pod + "\n")
	if want := []string{filepath.Join(cgroupMount, "systemd", pod), filepath.Join(cgroupMount, pod)}; !slices.Equal(got, want) {
		t.Errorf("groups %q, want %q", got, want)
	}
}

// TestKillShimKillsNestedGroups ends all processes of a container whose first
// process has moved itself into a group below the container's group, as an init
// system does.
func TestKillShimKillsNestedGroups(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	root := "/" + mark.Name("orphans")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := RemoveCgroups(ctx, root); err != nil {
			t.Error(err)
		}
	})
	hierarchy := filepath.Join(cgroupMount, "pids")
	if _, err := os.Stat(hierarchy); err != nil {
		hierarchy = cgroupMount
	}
	container := filepath.Join(hierarchy, root, "besteffort", "pod1", strings.Repeat("0123456789abcdef", 4))
	for _, group := range []string{"init.scope", "system.slice/deep"} {
		if err := os.MkdirAll(filepath.Join(container, group), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	r, err := New(Config{BundleDir: "/bundle", DataDir: t.TempDir(), RunDir: t.TempDir(), CNIConfDir: "/cni", CgroupRoot: root})
	if err != nil {
		t.Fatal(err)
	}
	start := func(script, group string) (cmd *exec.Cmd, ended chan struct{}) {
		t.Helper()
		cmd, ended = exec.Command("sh", "-c", script, filepath.Join(container, group, "cgroup.procs")), make(chan struct{})
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		go func() { defer close(ended); _ = cmd.Wait() }() // it is killed
		return cmd, ended
	}
	// The shim itself is not in the group of its container.
	shim, shimEnded := start(`(echo 0 >"$0" && exec sleep 600) & wait`, "init.scope")
	_, otherEnded := start(`echo 0 >"$0" && exec sleep 600`, "system.slice/deep")
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for _, group := range []string{"init.scope", "system.slice/deep"} {
		for len(cgroupProcesses(filepath.Join(container, group))) == 0 {
			select {
			case <-poll.C:
			case <-t.Context().Done():
				t.Fatal("the processes did not start")
			}
		}
	}
	if err := r.killShim(t.Context(), shim.Process.Pid); err != nil {
		t.Fatal(err)
	}
	<-shimEnded
	select {
	case <-otherEnded:
	case <-time.After(time.Minute):
		t.Error("a process in another group of the container still runs")
	}
}
