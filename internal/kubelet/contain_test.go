package kubelet

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	_ "github.com/coracle-io/coracle/internal/bubble"
	"github.com/coracle-io/coracle/internal/kubelet/cri/inmemory/inmemorytest"
)

// faulty is a runtime in which what concerns the pod "bad" panics, at one call.
type faulty struct {
	*inmemorytest.Runtime
	at atomic.Value // string, "" for nowhere
}

func (f *faulty) fault(call, pod string) {
	if pod == "bad" && f.at.Load() == call {
		panic("a bug in " + call)
	}
}

func (f *faulty) RunPodSandbox(ctx context.Context, c *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	f.fault("RunPodSandbox", c.GetMetadata().GetName())
	return f.Runtime.RunPodSandbox(ctx, c, handler)
}

func (f *faulty) CreateContainer(ctx context.Context, sandbox string, c *runtimeapi.ContainerConfig, s *runtimeapi.PodSandboxConfig) (string, error) {
	f.fault("CreateContainer", s.GetMetadata().GetName())
	return f.Runtime.CreateContainer(ctx, sandbox, c, s)
}

func (f *faulty) ContainerStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error) {
	answer, err := f.Runtime.ContainerStatus(ctx, id, verbose)
	f.fault("ContainerStatus", answer.GetStatus().GetLabels()["io.kubernetes.pod.name"])
	return answer, err
}

func (f *faulty) StopContainer(ctx context.Context, id string, timeout int64) error {
	answer, _ := f.Runtime.ContainerStatus(ctx, id, false)
	f.fault("StopContainer", answer.GetStatus().GetLabels()["io.kubernetes.pod.name"])
	return f.Runtime.StopContainer(ctx, id, timeout)
}

func (f *faulty) ExecSync(ctx context.Context, id string, command []string, timeout time.Duration) ([]byte, []byte, error) {
	answer, _ := f.Runtime.ContainerStatus(ctx, id, false)
	f.fault("ExecSync", answer.GetStatus().GetLabels()["io.kubernetes.pod.name"])
	return f.Runtime.ExecSync(ctx, id, command, timeout)
}

func (f *faulty) RemoveContainer(ctx context.Context, id string) error {
	answer, _ := f.Runtime.ContainerStatus(ctx, id, false)
	f.fault("RemoveContainer", answer.GetStatus().GetLabels()["io.kubernetes.pod.name"])
	return f.Runtime.RemoveContainer(ctx, id)
}

// A bug that one pod meets is met by no other, and by itself no longer than it
// is there.
func TestPanicsOverOnePod(t *testing.T) {
	for _, at := range []string{"RunPodSandbox", "CreateContainer", "ContainerStatus", "ExecSync", "StopContainer", "RemoveContainer"} {
		t.Run(at, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				runtime := &faulty{Runtime: b.runtime}
				runtime.at.Store(at)
				b.configure = func(c *Config) { c.Runtime = runtime }
				b.start()
				defer func() { b.stop() }()
				probed := func(p *v1.Pod) {
					p.Spec.Containers[0].ReadinessProbe = &v1.Probe{PeriodSeconds: 1, FailureThreshold: 1, SuccessThreshold: 1,
						ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"true"}}}}
				}
				b.create(pod("bad", probed))
				b.create(pod("good", probed))
				b.after(time.Minute)
				if late := strings.HasPrefix(at, "Stop") || strings.HasPrefix(at, "Remove"); late {
					b.delete("bad", 1)
					b.after(time.Minute)
				}
				if p := b.get("good"); conditionOf(p, v1.PodReady) != v1.ConditionTrue {
					t.Errorf("another pod: %+v", p.Status)
				}
				status, _ := b.group.Status()
				if k := status.Components[0]; k.Panics < 1 || k.Panics > 200 || k.Restarts > 0 {
					t.Errorf("%d panics are counted, and %d restarts", k.Panics, k.Restarts)
				}
				runtime.at.Store("")
				b.after(time.Minute)
				switch p := b.get("bad"); {
				case p == nil:
				case p.DeletionTimestamp != nil:
					t.Errorf("the pod was not deleted once the bug was gone: %+v", p.Status)
				case conditionOf(p, v1.PodReady) != v1.ConditionTrue:
					t.Errorf("the pod does not run once the bug is gone: %+v", p.Status)
				}
				if p := b.get("good"); p.Status.ContainerStatuses[0].RestartCount > 0 {
					t.Errorf("another pod was restarted: %+v", p.Status)
				}
			})
		})
	}
}
