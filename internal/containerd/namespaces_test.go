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
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	p := newNetworked(ctx, t)
	answer, err := p.cri().RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: sandboxOf(p.r, 0, t.TempDir())})
	if err != nil {
		t.Fatal(err)
	}
	held, err := (namespaces{p.r}).list()
	if err != nil || len(held) != 1 {
		t.Fatalf("network namespaces %v, %v; want one", held, err)
	}
	lost := filepath.Join(filepath.Dir(held[0]), "cni-lost")
	if err := errors.Join(os.WriteFile(lost, nil, 0o600), unix.Mount("/proc/self/ns/net", lost, "", unix.MS_BIND, "")); err != nil {
		t.Fatal(err)
	}
	kill(t, p.r)
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		left, err := (namespaces{p.r}).list()
		if err == nil && slices.Equal(left, held) {
			break
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			t.Fatalf("network namespaces %v, %v; want %v", left, err, held)
		}
	}
	p.redial(ctx)
	status, err := p.cri().PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: answer.GetPodSandboxId()})
	if err != nil || status.GetStatus().GetState() != runtimeapi.PodSandboxState_SANDBOX_READY {
		t.Errorf("the pod's sandbox: %v, %v", status.GetStatus().GetState(), err)
	}
	p.removesAll(ctx)
}
