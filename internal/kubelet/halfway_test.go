package kubelet

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/kubelet/cri/inmemory/inmemorytest"
)

// busyRuntime takes ten seconds for one kind of call. A call that is canceled
// during that time leaves the runtime in a state that cannot be repaired.
type busyRuntime struct {
	*inmemorytest.Runtime
	busy            string
	begun, canceled atomic.Bool
}

func (r *busyRuntime) work(ctx context.Context, call string) error {
	if call != r.busy {
		return nil
	}
	r.begun.Store(true)
	select {
	case <-time.After(10 * time.Second):
		return nil
	case <-ctx.Done():
		r.canceled.Store(true)
		return ctx.Err()
	}
}

func (r *busyRuntime) RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	if err := r.work(ctx, "RunPodSandbox"); err != nil {
		return "", err
	}
	return r.Runtime.RunPodSandbox(ctx, config, handler)
}

func (r *busyRuntime) CreateContainer(ctx context.Context, sandbox string, config *runtimeapi.ContainerConfig, sandboxConfig *runtimeapi.PodSandboxConfig) (string, error) {
	if err := r.work(ctx, "CreateContainer"); err != nil {
		return "", err
	}
	return r.Runtime.CreateContainer(ctx, sandbox, config, sandboxConfig)
}

func (r *busyRuntime) StartContainer(ctx context.Context, id string) error {
	if err := r.work(ctx, "StartContainer"); err != nil {
		return err
	}
	return r.Runtime.StartContainer(ctx, id)
}

func (r *busyRuntime) StopPodSandbox(ctx context.Context, id string) error {
	if err := r.work(ctx, "StopPodSandbox"); err != nil {
		return err
	}
	return r.Runtime.StopPodSandbox(ctx, id)
}

// A pod that is deleted, or left less time, while the runtime works on it does
// not interrupt the runtime. Nothing of the pod is left.
func TestCallsAreNotCanceledHalfWay(t *testing.T) {
	for _, call := range []string{"RunPodSandbox", "CreateContainer", "StartContainer", "StopPodSandbox"} {
		t.Run(call, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				r := &busyRuntime{Runtime: b.runtime, busy: call}
				b.configure = func(c *Config) { c.Runtime = r }
				b.start()
				defer func() { b.stop() }()
				b.create(pod("web"))
				b.after(5 * time.Second)
				b.delete("web", 30)
				b.after(time.Second)
				if !r.begun.Load() || r.canceled.Load() {
					t.Fatalf("the runtime was asked: %v, the call was canceled: %v", r.begun.Load(), r.canceled.Load())
				}
				b.delete("web", 1)
				b.after(time.Minute)
				if r.canceled.Load() {
					t.Error("the call was canceled")
				}
				if p := b.get("web"); p != nil || len(b.containers()) > 0 {
					t.Errorf("left are containers %v and %+v", b.containers(), p)
				}
			})
		})
	}
}
