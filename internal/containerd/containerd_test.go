package containerd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/mountinfo"
	"github.com/coracle-io/coracle/internal/sharedfile"
	"github.com/coracle-io/coracle/test/mark"
)

func TestMain(m *testing.M) { os.Exit(mark.Main(m)) }

func TestInvalidConfig(t *testing.T) {
	good := Config{BundleDir: "/b", DataDir: "/d", RunDir: "/r", CNIConfDir: "/c"}
	for name, change := range map[string]func(*Config){
		"relative path":  func(c *Config) { c.DataDir = "data" },
		"root":           func(c *Config) { c.RunDir = "/" },
		"missing":        func(c *Config) { c.BundleDir = "" },
		"too long":       func(c *Config) { c.RunDir = "/" + strings.Repeat("x", 100) },
		"same directory": func(c *Config) { c.RunDir = c.DataDir },
	} {
		config := good
		change(&config)
		if _, err := New(config); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := New(good); err != nil {
		t.Error(err)
	}
}

func TestShimSocketDirLength(t *testing.T) {
	for _, run := range []string{"/run/coracle/a", "/run/" + strings.Repeat("x", 70)} {
		r, err := New(Config{BundleDir: "/b", DataDir: "/d", RunDir: run, CNIConfDir: "/c"})
		if err != nil {
			t.Fatal(err)
		}
		if dir := r.config.shimSocketDir(); len(dir) > 42 {
			t.Errorf("%s is %d bytes", dir, len(dir))
		}
	}
}

// testRuntime returns a runtime with the built bundle and its own directories,
// or skips the test. Everything is removed after the test.
func testRuntime(t *testing.T) *Runtime {
	t.Helper()
	bundle, err := filepath.Abs("../../bin/bundle")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(bundle, "bin/containerd")); err != nil || os.Getuid() != 0 {
		t.Skip("needs root and the bundle (make bundle)")
	}
	run, err := os.MkdirTemp("/run", mark.Name("*"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := New(Config{
		BundleDir: bundle, DataDir: filepath.Join(t.TempDir(), "containerd"), RunDir: run,
		CNIConfDir: filepath.Join(t.TempDir(), "cni"), CgroupRoot: "/" + filepath.Base(run),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		if err := r.Purge(ctx); err != nil {
			t.Error("purge:", err)
		}
		if leftovers := r.leftovers(t); leftovers != "" {
			t.Error("left behind:", leftovers)
		}
	})
	return r
}

// leftovers returns what is left of the runtime on the machine.
func (r *Runtime) leftovers(t *testing.T) string {
	t.Helper()
	var found []string
	if points, _ := mountinfo.Points(); len(mountinfo.Below(points, r.config.RunDir))+len(mountinfo.Below(points, r.config.DataDir)) > 0 {
		found = append(found, "mounts")
	}
	if shims, _ := r.shims(); len(shims) > 0 {
		found = append(found, "shims")
	}
	if dirs, _ := filepath.Glob(cgroupMount + "/*" + r.config.CgroupRoot); len(dirs) > 0 {
		found = append(found, dirs...)
	}
	if _, err := os.Stat(r.config.RunDir); err == nil {
		found = append(found, r.config.RunDir)
	}
	return strings.Join(found, " ")
}

// runUntilReady starts r.Run, waits until it is ready, and returns a function
// that stops it.
func runUntilReady(t *testing.T, r *Runtime) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	select {
	case <-r.Ready():
	case err := <-done:
		cancel()
		t.Fatal("Run:", err)
	case <-time.After(2 * time.Minute):
		cancel()
		log, _ := os.ReadFile(r.LogFile())
		t.Fatalf("not ready; log:\n%s", log)
	}
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error("Run:", err)
		}
	}
}

// startPod runs a pod on the host's network with one container that waits, and
// returns the container's id.
func startPod(t *testing.T, r *Runtime) string {
	t.Helper()
	ctx := context.Background()
	conn, err := r.dial(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	cri := runtimeapi.NewRuntimeServiceClient(conn)
	host := &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE}
	sandbox := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: "p", Namespace: "default", Uid: "u"},
		LogDirectory: t.TempDir(),
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent:    r.config.CgroupRoot + "/podu",
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: host},
		},
	}
	pod, err := cri.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: sandbox})
	if err != nil {
		t.Fatal(err)
	}
	container, err := cri.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: pod.PodSandboxId, SandboxConfig: sandbox,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "c"},
			Image:    &runtimeapi.ImageSpec{Image: "coracle.internal/frontend:1.0"},
			Command:  []string{"/bin/sh", "-c", "sleep 3600"},
			LogPath:  "c.log",
			Linux: &runtimeapi.LinuxContainerConfig{
				Resources:       &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 64 << 20, CpuShares: 100, OomScoreAdj: -997},
				SecurityContext: &runtimeapi.LinuxContainerSecurityContext{NamespaceOptions: host},
			},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cri.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: container.ContainerId}); err != nil {
		t.Fatal(err)
	}
	return container.ContainerId
}

// containerRuns reports whether the container is running.
func containerRuns(t *testing.T, r *Runtime, id string) bool {
	t.Helper()
	conn, err := r.dial(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	answer, err := runtimeapi.NewRuntimeServiceClient(conn).ContainerStatus(context.Background(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
	return err == nil && answer.Status.State == runtimeapi.ContainerState_CONTAINER_RUNNING
}

func TestContainersOutliveContainerd(t *testing.T) {
	r := testRuntime(t)
	stop := runUntilReady(t, r)
	id := startPod(t, r)
	limit, err := filepath.Glob(cgroupMount + "/memory" + r.config.CgroupRoot + "/podu/*/memory.limit_in_bytes")
	if _, v2 := os.Stat(cgroupMount + "/cgroup.controllers"); v2 != nil && (err != nil || len(limit) == 0) {
		t.Errorf("no memory limit file in the version 1 hierarchy: %v", err)
	}
	stop()

	again, err := New(r.config)
	if err != nil {
		t.Fatal(err)
	}
	stop = runUntilReady(t, again)
	if !containerRuns(t, again, id) {
		t.Error("the container ended with containerd")
	}
	// containerd is restarted after a crash.
	kill(t, again)
	if !containerRuns(t, again, id) {
		t.Error("the container ended with the crash")
	}
	stop()
}

// kill kills the containerd that runs, and waits until it has ended.
func kill(t *testing.T, r *Runtime) {
	t.Helper()
	p, err := r.find()
	if err != nil || p == nil {
		t.Fatal("containerd was not found:", err)
	}
	if err := unix.Kill(p.pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-p.gone
	p.close()
}

func TestAdoptContainerd(t *testing.T) {
	r := testRuntime(t)
	if _, err := r.prepare(); err != nil {
		t.Fatal(err)
	}
	orphan := exec.Command(r.config.program("containerd"), "--config", r.config.configFile())
	orphan.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := orphan.Start(); err != nil {
		t.Fatal(err)
	}
	stop := runUntilReady(t, r)
	if p, err := r.find(); err != nil || p == nil || p.pid != orphan.Process.Pid {
		t.Errorf("another containerd was started: %v", err)
	} else {
		p.close()
	}
	go func() { _ = orphan.Wait() }()
	stop()
}

// TestLostRunDirectory removes the run directory, with the socket and the state
// of all containers. containerd must restart by itself, and the containers that
// it has lost must end.
func TestLostRunDirectory(t *testing.T) {
	r := testRuntime(t)
	stop := runUntilReady(t, r)
	startPod(t, r)
	if err := unmountBelow(r.config.RunDir); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(r.config.RunDir); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(3 * time.Minute)
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for ctx := t.Context(); ; {
		conn, err := net.Dial("unix", r.config.socket())
		if err == nil {
			_ = conn.Close()
			shims, err := r.shims()
			if err == nil && len(shims) == 0 && r.ask(ctx) == nil && len(containerProcesses(t, r)) == 0 {
				break
			}
		}
		if time.Now().After(deadline) {
			log, _ := os.ReadFile(r.LogFile())
			t.Fatalf("containerd was not restarted: %v; processes %v of lost containers run; log:\n%s", err, containerProcesses(t, r), log)
		}
		<-again.C
	}
	stop()
}

// containerProcesses returns the processes in the control groups of the test's pods.
func containerProcesses(t *testing.T, r *Runtime) (pids []int) {
	t.Helper()
	for _, dir := range cgroupsBelow(t, r.config.CgroupRoot) {
		pids = append(pids, cgroupProcesses(dir)...)
	}
	return pids
}

// cgroupsBelow returns the control groups of the test's pods.
func cgroupsBelow(t *testing.T, root string) (dirs []string) {
	t.Helper()
	for _, pattern := range []string{"/*" + root + "/podu/*", root + "/podu/*"} {
		found, err := filepath.Glob(cgroupMount + pattern)
		if err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, found...)
	}
	return dirs
}

// TestLost checks which sandboxes count as lost by the runtime.
func TestLost(t *testing.T) {
	r := testRuntime(t)
	defer runUntilReady(t, r)()
	startPod(t, r)
	conn, err := r.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	pods, err := runtimeapi.NewRuntimeServiceClient(conn).ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})
	if err != nil || len(pods.GetItems()) != 1 {
		t.Fatal(pods, err)
	}
	// A sandbox that is being made has only a lease.
	const lost, made = "lost", "made"
	if out, err := exec.Command(r.config.program("ctr"), "--address", r.config.socket(), "--namespace", Namespace, "leases", "create", "--id", made).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got, err := r.Lost(t.Context(), []string{pods.GetItems()[0].GetId(), lost, made})
	if err != nil || !slices.Equal(got, []string{lost}) {
		t.Errorf("lost are %v, %v", got, err)
	}
}

// containerd lowers its OOM score where processes may do that. Otherwise those of
// containers are no lower than its own.
func TestOOMScore(t *testing.T) {
	r := testRuntime(t)
	for restrict, want := range map[bool]int{false: 1, true: 0} {
		text := r.render(restrict, nil)
		if got := strings.Count(text, "oom_score = -999\n"); got != want || !strings.Contains(text, fmt.Sprintf("restrict_oom_score_adj = %t\n", restrict)) {
			t.Errorf("restricted: %v\n%s", restrict, text)
		}
	}
}

// Files in the directory of drop-ins are imported in the order of their names. A
// change of one changes the configuration, so that containerd is restarted.
func TestDropIns(t *testing.T) {
	r := testRuntime(t)
	r.config.DropInDir = t.TempDir()
	write := func(name, text string, mode os.FileMode) {
		t.Helper()
		path := filepath.Join(r.config.DropInDir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	render := func() string {
		t.Helper()
		found, err := r.dropIns()
		if err != nil {
			t.Fatal(err)
		}
		return r.render(false, found)
	}
	if !strings.Contains(render(), "imports = []\n") {
		t.Error("something is imported from an empty directory")
	}
	write("20-kata.toml", "version = 3\n", 0o600)
	write("10-gvisor.toml", "version = 3\n", 0o600)
	write("notes", "", 0o600)
	first := render()
	if want := fmt.Sprintf("imports = [%q, %q]\n", filepath.Join(r.config.DropInDir, "10-gvisor.toml"), filepath.Join(r.config.DropInDir, "20-kata.toml")); !strings.Contains(first, want) {
		t.Errorf("the configuration lacks %s:\n%s", want, first)
	}
	write("20-kata.toml", "version = 3\n[plugins]\n", 0o600)
	if render() == first {
		t.Error("a changed file does not change the configuration")
	}
	write("30-open.toml", "version = 3\n", 0o666)
	var owner *sharedfile.OwnershipError
	if _, err := r.dropIns(); !errors.As(err, &owner) {
		t.Errorf("a file that all users can write is imported (%v)", err)
	}
}
