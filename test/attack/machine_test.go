package attack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/coracle-io/coracle/internal/host"
)

// nobody is the uid of another user of the machine, without permissions.
const nobody = 65534

// asNobody runs a program as another user of this machine.
func asNobody(ctx context.Context, program string, arguments ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, arguments...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	return cmd
}

// TestAnotherUserOpensNoFile checks that other users of the machine can neither read
// nor write keys, objects, logs, kubeconfigs and volumes, in a data directory that
// they can enter.
func TestAnotherUserOpensNoFile(t *testing.T) {
	c := machine(t)
	for _, dir := range []string{c.dataDir, host.RunDir(c.name), host.Root()} {
		found, _ := asNobody(t.Context(), "find", dir, "-readable", "(", "-type", "f", "-o", "-type", "d", ")").Output() // find fails where it may not look
		if len(found) > 0 {
			t.Errorf("another user can read in %s:\n%s", dir, found)
		}
		found, _ = asNobody(t.Context(), "find", dir, "-writable").Output()
		if len(found) > 0 {
			t.Errorf("another user can write in %s:\n%s", dir, found)
		}
	}
	if out, err := asNobody(t.Context(), "cat", c.kubeconfig).CombinedOutput(); err == nil {
		t.Errorf("another user reads the admin's kubeconfig:\n%s", out)
	}
}

// TestAnotherUserConnectsToNoSocket checks that other users cannot connect to the
// unix sockets of etcd, containerd and its shims.
func TestAnotherUserConnectsToNoSocket(t *testing.T) {
	c := machine(t)
	raw, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		t.Fatal(err)
	}
	var sockets []string
	for line := range strings.Lines(string(raw)) {
		fields := strings.Fields(line)
		if path := fields[len(fields)-1]; strings.Contains(path, "/"+c.name+"/") || strings.Contains(path, c.dataDir) {
			sockets = append(sockets, path)
		}
	}
	if !slices.Contains(sockets, host.EtcdSocket(host.RunDir(c.name))) {
		t.Fatalf("etcd does not listen at %s but at %v", host.EtcdSocket(host.RunDir(c.name)), sockets)
	}
	for _, socket := range slices.Compact(slices.Sorted(slices.Values(sockets))) {
		// curl exits with code 7 if it cannot connect, and with another code
		// otherwise.
		err := asNobody(t.Context(), "curl", "-s", "--max-time", "60", "--unix-socket", socket, "http://localhost/").Run()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 7 {
			t.Errorf("another user connects to %s: curl exited with %v", socket, err)
		}
	}
}

// TestAnotherUserFindsNoOpenPort checks the ports that a cluster listens on,
// and the response of each to a client without credentials. It fails for a port
// that is not listed.
func TestAnotherUserFindsNoOpenPort(t *testing.T) {
	c := machine(t)
	settings, err := host.ReadSettings(c.dataDir)
	if err != nil {
		t.Fatal(err)
	}
	p := settings.Options.Ports
	type door struct {
		path string // a path that should not be readable
		code int    // 0 if the port does not speak HTTP
	}
	known := map[int]door{
		p.Secure:         {"/api/v1/secrets", http.StatusForbidden},
		p.Manager:        {"/metrics", http.StatusForbidden},
		p.Scheduler:      {"/metrics", http.StatusForbidden},
		p.Kubelet:        {"/pods", http.StatusUnauthorized},
		p.KubeletHealthz: {"/pods", http.StatusNotFound},
		p.ProxyHealthz:   {"/configz", http.StatusNotFound},
		p.ProxyMetrics:   {"/debug/pprof/heap", http.StatusNotFound},
		p.DNS:            {},
		p.DNSMetrics:     {}, // on the address of the node alone
	}
	for port, by := range listeners(t, c) {
		d, ok := known[port]
		switch {
		case ok && d.code == 0:
		case ok:
			if got := plainGet(t, port, d.path); got != d.code {
				t.Errorf("port %d (%s) answers %s with %d, want %d", port, by, d.path, got, d.code)
			}
		case by == "containerd":
			// The streams of exec and attach. Their paths are random, can be
			// used once, and are known only to the kubelet.
			if got := plainGet(t, port, "/exec/guess"); got != http.StatusNotFound {
				t.Errorf("port %d (%s) answers a guessed stream with %d", port, by, got)
			}
		default:
			t.Errorf("%s listens on port %d, which is not in the list", by, port)
		}
	}
}

// plainGet sends a GET to a port of this machine as another user, by HTTPS or HTTP.
func plainGet(t *testing.T, port int, path string) int {
	t.Helper()
	for _, scheme := range []string{"https", "http"} {
		out, err := asNobody(t.Context(), "curl", "-sk", "--max-time", "60", "-o", "/dev/null", "-w", "%{http_code}", fmt.Sprintf("%s://127.0.0.1:%d%s", scheme, port, path)).Output()
		if code, convErr := strconv.Atoi(string(out)); err == nil && convErr == nil && code != 0 {
			return code
		}
	}
	t.Errorf("port %d does not answer", port)
	return 0
}

// listeners returns the TCP ports that the cluster's processes listen on.
func listeners(t *testing.T, c *cluster) map[int]string {
	t.Helper()
	inodes := map[string]string{}
	for pid, program := range processes(t, c) {
		dir := fmt.Sprintf("/proc/%d/fd", pid)
		descriptors, err := os.ReadDir(dir)
		if err != nil {
			continue // it has ended
		}
		for _, d := range descriptors {
			if target, err := os.Readlink(filepath.Join(dir, d.Name())); err == nil {
				inodes[target] = program
			}
		}
	}
	ports := map[int]string{}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		raw, err := os.ReadFile(table)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(raw)) {
			fields := strings.Fields(line)
			const listen = "0A"
			if len(fields) < 10 || fields[3] != listen {
				continue
			}
			if by, ours := inodes["socket:["+fields[9]+"]"]; ours {
				_, hex, _ := strings.Cut(fields[1], ":")
				port, err := strconv.ParseUint(hex, 16, 16)
				if err != nil {
					t.Fatal(err)
				}
				ports[int(port)] = by
			}
		}
	}
	if len(ports) < 3 {
		t.Fatalf("found only %v, so the test proves nothing", ports)
	}
	return ports
}

// processes returns the programs of a cluster, by process id.
func processes(t *testing.T, c *cluster) map[int]string {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	found := map[int]string{}
	for _, path := range lines {
		line, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(line, []byte(c.name)) && !bytes.Contains(line, []byte(c.dataDir)) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			t.Fatal(err)
		}
		found[pid] = filepath.Base(string(bytes.SplitN(line, []byte{0}, 2)[0]))
	}
	return found
}

// TestAnotherUserLocksNothing checks that another user's locks do not block the
// start, the status or the removal of a cluster.
func TestAnotherUserLocksNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	locked := []string{filepath.Dir(host.Root()), "/run", "/tmp"}
	for _, dir := range locked {
		cmd := asNobody(ctx, "flock", "--wait", strconv.Itoa(int(waitTimeout.Seconds())), dir, "sh", "-c", "echo locked; exec cat") // another run of this test may have it
		in, out := hold(t, cmd)
		defer func() { _ = in.Close() }()
		if line := make([]byte, 6); readFull(out, line) != nil || string(line) != "locked" {
			t.Fatalf("cannot lock %s", dir)
		}
	}
	began, slowest := time.Now(), longest{}
	c := startOwn(t, "--nodes=0")
	if out, err := c.coracle("status", "--name="+c.name); err != nil {
		t.Errorf("status: %v\n%s", err, out)
	}
	slowest.note("the start", began)
	slowest.check(t)
}

// hold starts a program that runs until its input is closed.
func hold(t *testing.T, cmd *exec.Cmd) (io.WriteCloser, io.Reader) {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() })
	return in, out
}

func readFull(r io.Reader, b []byte) error {
	_, err := io.ReadFull(r, b)
	return err
}

// TestSuspendedClusterIsNotReportedReady checks that status and up report a
// suspended process, and do not wait for it: it stays suspended until they have.
func TestSuspendedClusterIsNotReportedReady(t *testing.T) {
	c := startOwn(t, "--nodes=0")
	for pid := range processes(t, c) {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = syscall.Kill(pid, syscall.SIGCONT) }()
	}
	var slowest longest
	for _, command := range []string{"status", "up"} {
		began := time.Now()
		out, err := c.coracle(command, "--name="+c.name)
		slowest.note(command, began)
		if err == nil || !strings.Contains(out, "does not answer") {
			t.Errorf("%s of a suspended cluster: %v\n%s", command, err, out)
		}
	}
	slowest.check(t)
}

// TestAnotherUserPlantsSettings checks that root does not trust a cluster's
// settings that another user created: it neither stops, removes nor runs what
// they name.
func TestAnotherUserPlantsSettings(t *testing.T) {
	c := startOwn(t, "--nodes=0")
	settings, err := host.ReadSettings(c.dataDir)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(c.dir, "planted")
	settings.Options.Name += "-p"
	settings.Options.Node.NFTable, settings.Options.Node.CgroupRoot, settings.Options.DataDir, settings.Options.Node.BundleDir = "coracle-"+settings.Options.Name, "/coracle-"+settings.Options.Name, dir, dir
	if err := errors.Join(os.Mkdir(dir, 0o700), settings.Write()); err != nil {
		t.Fatal(err)
	}
	for what, plant := range map[string]error{
		"the settings":  os.Chown(host.SettingsFile(dir), nobody, nobody),
		"the directory": nil,
	} {
		if plant != nil {
			t.Fatal(plant)
		}
		for _, command := range [][]string{{"down", "--yes", "--data-dir=" + dir}, {"up", "--name=" + settings.Options.Name, "--data-dir=" + dir}} {
			if out, err := c.coracle(command...); err == nil || !strings.Contains(out, "belongs to user 65534") {
				t.Errorf("%s: %s: %v\n%s", what, command[0], err, out)
			}
		}
		if err := errors.Join(os.Chown(host.SettingsFile(dir), 0, 0), os.Chown(dir, nobody, nobody)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Chown(dir, 0, 0), os.Chmod(dir, 0o777)); err != nil {
		t.Fatal(err)
	}
	if out, err := c.coracle("down", "--yes", "--data-dir="+dir); err == nil || !strings.Contains(out, "can be changed by other users") {
		t.Errorf("a directory that all users can write: %v\n%s", err, out)
	}
	if _, err := os.Stat(host.SettingsFile(dir)); err != nil {
		t.Errorf("the directory was removed although down was refused: %v", err)
	}
}

// TestAnotherUsersKubeconfigRunsPrograms checks that root's status and up do not run
// the credential plugin that another user's kubeconfig names.
func TestAnotherUsersKubeconfigRunsPrograms(t *testing.T) {
	c := startOwn(t, "--nodes=0")
	ran, program := filepath.Join(c.dir, "ran"), filepath.Join(c.dir, "program")
	if err := os.WriteFile(program, []byte("#!/bin/sh\ntouch "+ran+"\n"), 0o755); err != nil { //nolint:gosec // it is to be run
		t.Fatal(err)
	}
	config, err := clientcmd.LoadFromFile(c.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.AuthInfos[c.name] = &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
		APIVersion: "client.authentication.k8s.io/v1", Command: program, InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
	}}
	if err := errors.Join(clientcmd.WriteToFile(*config, c.kubeconfig), os.Chown(c.kubeconfig, nobody, nobody)); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"status", "up"} {
		if out, err := c.coracle(command, "--name="+c.name); err != nil {
			t.Errorf("%s: %v\n%s", command, err, out)
		}
	}
	if _, err := os.Stat(ran); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("root ran the program of another user (%v)", err)
	}
}

// TestAnotherUserReplacesTheKubeconfigDirectory replaces the directory of a
// kubeconfig by a symbolic link while root writes the kubeconfig. Root must not
// write into the target of the link.
func TestAnotherUserReplacesTheKubeconfigDirectory(t *testing.T) {
	c := startOwn(t, "--nodes=0")
	home, secret := filepath.Join(c.dir, "home"), filepath.Join(c.dir, "secret")
	kube, link := filepath.Join(home, ".kube"), filepath.Join(home, "link")
	file := filepath.Join(kube, "config")
	if err := errors.Join(
		os.MkdirAll(kube, 0o755), os.Mkdir(secret, 0o700), os.Symlink(secret, link),
		os.Chown(kube, nobody, nobody), os.Lchown(link, nobody, nobody), os.Chown(home, nobody, nobody),
	); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{{"stop", "--name=" + c.name}, {"up", "--name=" + c.name, "--kubeconfig=" + file}} {
		if out, err := c.coracle(command...); err != nil {
			t.Fatalf("%s: %v\n%s", command[0], err, out)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var swapping sync.WaitGroup
	swapping.Go(func() {
		for ctx.Err() == nil {
			_ = unix.Renameat2(unix.AT_FDCWD, kube, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE)
		}
	})
	const attempts = 20
	for range attempts {
		for _, dir := range []string{kube, link} { // without the context, up writes it again
			if info, err := os.Lstat(dir); err == nil && info.IsDir() {
				_ = os.Remove(filepath.Join(dir, "config"))
			}
		}
		_, _ = c.coracle("up", "--name="+c.name) // it may be refused
	}
	cancel()
	swapping.Wait()
	if info, err := os.Lstat(kube); err == nil && !info.IsDir() { // otherwise the cleanup finds a link
		if err := unix.Renameat2(unix.AT_FDCWD, kube, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := os.ReadDir(secret); err != nil || len(left) > 0 {
		t.Errorf("root wrote %v where only root may write, %v", left, err)
	}
	for _, dir := range []string{kube, link} {
		if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
			continue
		}
		if left, err := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(left) > 0 {
			t.Errorf("files left beside the kubeconfig: %v, %v", left, err)
		}
	}
}

// machine returns the cluster with a node, in a data directory that other users can
// enter.
func machine(t *testing.T) *cluster {
	t.Helper()
	c := node(t)
	if err := os.Chmod(c.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return c
}
