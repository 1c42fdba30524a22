package containerd

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A network namespace of which a containerd that was killed had not recorded whose it
// is goes when the next one starts, and those of sandboxes stay.
func TestLostNetworkNamespace(t *testing.T) {
	r := testRuntime(t)
	n := withHeldNetwork(t, r)
	defer runUntilReady(t, r)()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	conn, err := r.dial(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	p := &networked{t: t, r: r, n: n, conn: conn}
	answer, err := p.cri().RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: sandboxOf(r, 0, t.TempDir())})
	if err != nil {
		t.Fatal(err)
	}
	held, err := (namespaces{r}).list()
	if err != nil || len(held) != 1 {
		t.Fatalf("network namespaces %v, %v; want one", held, err)
	}
	lost := filepath.Join(filepath.Dir(held[0]), "cni-lost")
	if err := errors.Join(os.WriteFile(lost, nil, 0o600), unix.Mount("/proc/self/ns/net", lost, "", unix.MS_BIND, "")); err != nil {
		t.Fatal(err)
	}
	running, err := r.find()
	if err != nil || running == nil {
		t.Fatal("containerd was not found:", err)
	}
	if err := unix.Kill(running.pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-running.gone
	running.close()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		left, err := (namespaces{r}).list()
		if err == nil && slices.Equal(left, held) {
			break
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			t.Fatalf("network namespaces %v, %v; want %v", left, err, held)
		}
	}
	if p.conn, err = r.dial(ctx); err != nil {
		t.Fatal(err)
	}
	status, err := p.cri().PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: answer.GetPodSandboxId()})
	if err != nil || status.GetStatus().GetState() != runtimeapi.PodSandboxState_SANDBOX_READY {
		t.Errorf("the pod's sandbox: %v, %v", status.GetStatus().GetState(), err)
	}
	p.removesAll(ctx)
	_ = p.conn.Close()
}
