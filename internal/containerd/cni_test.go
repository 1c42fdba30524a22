package containerd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/mountinfo"
	"github.com/coracle-io/coracle/internal/podnet"
)

// heldNetwork is a pod network whose CNI plugin can be held before and after its work.
type heldNetwork struct {
	*podnet.Network
	bridge string
	dir    string // of the plugin: the files MOMENT-COMMAND hold it, until the fifo is closed
}

// withHeldNetwork gives a runtime a pod network.
func withHeldNetwork(t *testing.T, r *Runtime) *heldNetwork {
	t.Helper()
	name := "t" + strconv.Itoa(os.Getpid())
	n := &heldNetwork{bridge: "cor-" + name, dir: t.TempDir()}
	n.Network = podnet.New(podnet.Config{Name: name, LeaseDir: filepath.Join(n.dir, "leases")})
	bundle := filepath.Join(n.dir, "bundle")
	plugins := filepath.Join(bundle, "cni")
	original := r.config.BundleDir
	list := fmt.Sprintf(`{"cniVersion": "1.0.0", "name": %q, "plugins": [{"type": "bridge", "bridge": %q, "isGateway": true,
		"ipam": {"type": "host-local", "ranges": [[{"subnet": "10.213.0.0/24"}]], "dataDir": %q}}]}`, name, n.bridge, filepath.Join(n.dir, "leases"))
	plugin := fmt.Sprintf(`#!/bin/sh
hold() {
	rm %[1]s/$1-$CNI_COMMAND 2>/dev/null && read _ <%[1]s/fifo
}
hold before
output=$(%[2]s/cni/bridge)
code=$?
hold after
printf '%%s' "$output"
exit $code
`, n.dir, original)
	err := errors.Join(
		os.MkdirAll(plugins, 0o755), os.MkdirAll(r.config.CNIConfDir, 0o755), unix.Mkfifo(filepath.Join(n.dir, "fifo"), 0o600),
		os.Symlink(filepath.Join(original, "bin"), filepath.Join(bundle, "bin")),
		os.Symlink(filepath.Join(original, "images"), filepath.Join(bundle, "images")),
		os.Symlink(filepath.Join(original, "cni", "host-local"), filepath.Join(plugins, "host-local")),
		os.WriteFile(filepath.Join(plugins, "bridge"), []byte(plugin), 0o755),
		os.WriteFile(filepath.Join(r.config.CNIConfDir, "10-t.conflist"), []byte(list), 0o644),
	)
	if err != nil {
		t.Fatal(err)
	}
	r.config.BundleDir = bundle
	t.Cleanup(func() {
		if bridge, err := netlink.LinkByName(n.bridge); err == nil {
			if err := netlink.LinkDel(bridge); err != nil {
				t.Error(err)
			}
		}
	})
	return n
}

// hold makes the plugin wait at a moment of a command. The returned function waits
// until it does, calls kill, and lets the plugin go on.
func (n *heldNetwork) hold(t *testing.T, moment, command string) (whileHeld func(kill func())) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(n.dir, moment+"-"+command), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return func(kill func()) {
		t.Helper()
		fifo, err := os.OpenFile(filepath.Join(n.dir, "fifo"), os.O_WRONLY, 0) // returns when the plugin reads
		if err != nil {
			t.Fatal(err)
		}
		kill()
		if err := fifo.Close(); err != nil {
			t.Error(err)
		}
	}
}

// left returns what the network still has of pods: holders of addresses, interfaces
// and network namespaces.
func (n *heldNetwork) left(t *testing.T, r *Runtime) []string {
	t.Helper()
	all, err := n.Sandboxes()
	if err != nil {
		t.Fatal(err)
	}
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if master, err := os.Readlink("/sys/class/net/" + link.Name + "/master"); err == nil && filepath.Base(master) == n.bridge {
			all = append(all, link.Name)
		}
	}
	points, err := mountinfo.Points()
	if err != nil {
		t.Fatal(err)
	}
	return append(all, slices.DeleteFunc(mountinfo.Below(points, r.config.stateDir()), func(p string) bool { return !strings.Contains(p, "/netns/") })...)
}

// sandboxOf returns the configuration of a pod with an address.
func sandboxOf(r *Runtime, attempt uint32, logs string) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: "p", Namespace: "default", Uid: "u", Attempt: attempt},
		LogDirectory: logs,
		Linux:        &runtimeapi.LinuxPodSandboxConfig{CgroupParent: r.config.CgroupRoot + "/podu"},
	}
}

// A plugin of others connects pods once its configuration is there. Before, the network
// is not ready, with upstream's reason.
func TestPluginOfOthers(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	r := testRuntime(t)
	dir := t.TempDir()
	r.config.CNIBinDirs = []string{filepath.Join(dir, "missing"), dir}
	// It gives each pod one address, and no interface.
	plugin := fmt.Sprintf(`#!/bin/sh
test $CNI_COMMAND = DEL || printf '{"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": "%%s"}], "ips": [{"address": "198.18.7.7/32", "interface": 0}]}' "$CNI_NETNS"
echo $CNI_COMMAND >>%s/calls
`, dir)
	if err := os.WriteFile(filepath.Join(dir, "others"), []byte(plugin), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(runUntilReady(t, r))
	conn, err := r.dial(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	cri := runtimeapi.NewRuntimeServiceClient(conn)
	network := func() *runtimeapi.RuntimeCondition {
		t.Helper()
		answer, err := cri.Status(ctx, &runtimeapi.StatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range answer.GetStatus().GetConditions() {
			if c.GetType() == runtimeapi.NetworkReady {
				return c
			}
		}
		t.Fatal("the runtime says nothing of its network")
		return nil
	}
	if c := network(); c.GetStatus() || c.GetReason() != "NetworkPluginNotReady" || c.GetMessage() != "Network plugin returns error: cni plugin not initialized" {
		t.Errorf("without a configuration: %v", c)
	}
	const list = `{"cniVersion": "1.0.0", "name": "others", "plugins": [{"type": "others"}]}`
	if err := errors.Join(os.MkdirAll(r.config.CNIConfDir, 0o755), os.WriteFile(filepath.Join(r.config.CNIConfDir, "10-others.conflist"), []byte(list), 0o644)); err != nil {
		t.Fatal(err)
	}
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for !network().GetStatus() {
		select {
		case <-again.C:
		case <-ctx.Done():
			t.Fatalf("with a configuration: %v", network())
		}
	}
	made, err := cri.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: sandboxOf(r, 0, t.TempDir())})
	if err != nil {
		t.Fatal(err)
	}
	status, err := cri.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: made.GetPodSandboxId()})
	if err != nil || status.GetStatus().GetNetwork().GetIp() != "198.18.7.7" {
		t.Errorf("the pod has %v, %v", status.GetStatus().GetNetwork(), err)
	}
	if _, err := cri.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: made.GetPodSandboxId()}); err != nil {
		t.Error(err)
	}
	if calls, err := os.ReadFile(filepath.Join(dir, "calls")); err != nil || !strings.HasPrefix(string(calls), "ADD\n") || !strings.Contains(string(calls), "DEL\n") {
		t.Errorf("the plugin was called with %q, %v", calls, err)
	}
}

// A containerd that is killed at a call of the CNI, before the plugin has done its work
// or after it, leaves nothing that keeps a pod from starting again, and nothing that the
// node does not remove.
func TestKilledAtACallOfTheCNI(t *testing.T) {
	for _, command := range []string{"ADD", "DEL"} {
		for _, moment := range []string{"before", "after"} {
			t.Run(moment+" "+command, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				p := newNetworked(ctx, t)
				p.killAt(ctx, moment, command)
				p.startsAgain(ctx)
				p.removesAll(ctx)
			})
		}
	}
}

// networked is a pod with an address, as a kubelet treats it.
type networked struct {
	t    *testing.T
	r    *Runtime
	n    *heldNetwork
	conn *grpc.ClientConn
}

// newNetworked returns such a pod, which is not started yet, of a containerd that runs
// until the test ends.
func newNetworked(ctx context.Context, t *testing.T) *networked {
	t.Helper()
	p := &networked{t: t, r: testRuntime(t)}
	p.n = withHeldNetwork(t, p.r)
	t.Cleanup(runUntilReady(t, p.r))
	var err error
	if p.conn, err = p.r.dial(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.conn.Close() })
	return p
}

func (p *networked) cri() runtimeapi.RuntimeServiceClient {
	return runtimeapi.NewRuntimeServiceClient(p.conn)
}

// killAt kills containerd while a plugin is held, and waits until the next one answers.
func (p *networked) killAt(ctx context.Context, moment, command string) {
	p.t.Helper()
	logs := p.t.TempDir()
	first := ""
	if command == "DEL" {
		answer, err := p.cri().RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: sandboxOf(p.r, 0, logs)})
		if err != nil {
			p.t.Fatal(err)
		}
		first = answer.GetPodSandboxId()
	}
	whileHeld := p.n.hold(p.t, moment, command)
	called := make(chan struct{})
	go func() {
		defer close(called)
		if first == "" {
			_, _ = p.cri().RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: sandboxOf(p.r, 0, logs)}) // containerd is killed meanwhile
			return
		}
		_, _ = p.cri().StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: first})
	}()
	whileHeld(func() { kill(p.t, p.r) })
	<-called
	p.redial(ctx)
}

// redial waits until the next containerd answers.
func (p *networked) redial(ctx context.Context) {
	p.t.Helper()
	conn, err := p.r.dial(ctx)
	if err != nil {
		p.t.Fatal(err)
	}
	_ = p.conn.Close()
	p.conn = conn
}

// startsAgain starts the pod again until it runs, as a kubelet does: the plugin of the
// killed containerd may still work on the same bridge, and make another one fail.
func (p *networked) startsAgain(ctx context.Context) {
	p.t.Helper()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		err := p.start(ctx)
		if err == nil {
			return
		}
		p.t.Logf("start the pod again: %v", err)
		select {
		case <-again.C:
		case <-ctx.Done():
			p.t.Fatalf("the pod does not start again: %v", err)
		}
	}
}

// start starts the pod as the attempt after those that are listed.
func (p *networked) start(ctx context.Context) error {
	p.t.Helper()
	attempt := uint32(0)
	for _, s := range p.list(ctx) {
		attempt = max(attempt, s.GetMetadata().GetAttempt()+1)
		if _, err := p.cri().StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: s.GetId()}); err != nil {
			p.t.Errorf("stop the former sandbox: %v", err)
		}
	}
	_, err := p.cri().RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: sandboxOf(p.r, attempt, p.t.TempDir())})
	return err
}

func (p *networked) list(ctx context.Context) []*runtimeapi.PodSandbox {
	p.t.Helper()
	answer, err := p.cri().ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		p.t.Fatal(err)
	}
	return answer.GetItems()
}

// removesAll removes the pod, and then what the node removes from time to time, until
// nothing is left. The plugin of the killed containerd may still work at first.
func (p *networked) removesAll(ctx context.Context) {
	p.t.Helper()
	for _, s := range p.list(ctx) {
		_, err := p.cri().StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: s.GetId()})
		if err == nil {
			_, err = p.cri().RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: s.GetId()})
		}
		if err != nil {
			p.t.Errorf("remove sandbox %s: %v", s.GetId(), err)
		}
	}
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		holders, err := p.n.Sandboxes()
		var lost []string
		if err == nil {
			lost, err = p.r.Lost(ctx, holders)
		}
		for _, sandbox := range lost {
			err = errors.Join(err, p.n.Release(sandbox))
		}
		left := p.n.left(p.t, p.r)
		if err == nil && len(left) == 0 {
			return
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			p.t.Fatalf("left are %v, %v", left, err)
		}
	}
}
