package kubelet

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/kubelet/cri/inmemory/inmemorytest"
)

// The kubelet removes the logs of a pod that was deleted while no kubelet ran
// and that the runtime no longer has.
func TestLogsOfLostPodsAreRemoved(t *testing.T) {
	const lost, stays = "/var/log/pods/default_lost_" + gone, "/var/log/pods/somebody_else"
	const theirs, unmarked = "/var/log/pods/other_lost_" + gone, "/var/log/pods/third_lost_" + gone
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		for _, path := range []string{lost + "/main", stays, theirs, unmarked} {
			if err := b.files.MkdirAll(path, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.files.WriteFile(lost+"/main/0.log", []byte("text"), 0o640); err != nil {
			t.Fatal(err)
		}
		for path, root := range map[string]string{lost: "/var/lib/kubelet", theirs: "/data/kubelet"} {
			if err := b.files.WriteFile(path+"/.kubelet-root", []byte(root), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		b.start()
		defer func() { b.stop() }()
		b.create(pod("web"))
		b.after(5 * time.Minute)
		if _, err := b.files.Stat(lost); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the logs of a pod that is gone: %v", err)
		}
		for _, path := range []string{stays, theirs, unmarked, "/var/log/pods/default_web_uid-web/.kubelet-root"} {
			if _, err := b.files.Stat(path); err != nil {
				t.Error(err)
			}
		}
	})
}

// forgetful is a runtime whose ended sandboxes report no address, as after their
// state was lost.
type forgetful struct {
	*inmemorytest.Runtime
	mu      sync.Mutex // guards stopped
	stopped []string
}

func (r *forgetful) PodSandboxStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	response, err := r.Runtime.PodSandboxStatus(ctx, id, verbose)
	if err != nil || response.GetStatus().GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
		return response, err
	}
	response = proto.Clone(response).(*runtimeapi.PodSandboxStatusResponse)
	response.Status.Network = nil
	return response, nil
}

func (r *forgetful) StopPodSandbox(ctx context.Context, id string) error {
	r.mu.Lock()
	r.stopped = append(r.stopped, id)
	r.mu.Unlock()
	return r.Runtime.StopPodSandbox(ctx, id)
}

// A sandbox that the runtime has lost is stopped before the pod gets another
// one. Otherwise its address would stay in use.
func TestLostSandboxesAreStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		runtime := &forgetful{Runtime: b.runtime}
		b.configure = func(c *Config) { c.Runtime = runtime }
		b.start()
		defer func() { b.stop() }()
		b.create(pod("web"))
		b.after(time.Minute)
		sandboxes, err := b.runtime.ListPodSandbox(t.Context(), nil)
		if err != nil || len(sandboxes) != 1 {
			t.Fatal(sandboxes, err)
		}
		lost, id := sandboxes[0].GetId(), b.live("main")
		if err := b.runtime.StopPodSandbox(t.Context(), lost); err != nil { // not by the kubelet
			t.Fatal(err)
		}
		b.after(time.Minute)
		if now := b.live("main"); now == "" || now == id {
			t.Errorf("the container was %q and is %q", id, now)
		}
		runtime.mu.Lock()
		defer runtime.mu.Unlock()
		if !slices.Contains(runtime.stopped, lost) {
			t.Errorf("stopped were %v, not the lost sandbox %s", runtime.stopped, lost)
		}
	})
}

// A pod that loses its sandbox again and again keeps no more than the one with
// the last instance of its container.
func TestEarlierSandboxesAreRemoved(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		b.create(pod("web"))
		b.after(time.Second)
		for range 4 {
			sandboxes, err := b.runtime.ListPodSandbox(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range sandboxes {
				if err := b.runtime.StopPodSandbox(t.Context(), s.GetId()); err != nil { // not by the kubelet
					t.Fatal(err)
				}
			}
			for began := time.Now(); b.live("main") == "" && time.Since(began) < time.Hour; {
				b.after(time.Second)
			}
			b.after(time.Second)
			if sandboxes, err = b.runtime.ListPodSandbox(t.Context(), nil); err != nil || len(sandboxes) > 2 {
				t.Errorf("%d sandboxes, %v; want the running one and the last one", len(sandboxes), err)
			}
		}
	})
}

// Each instance of a container gets a file for its termination message, into
// which it may write as much as it likes. The messages of former instances are
// removed.
func TestTerminationMessagesOfFormerInstancesAreRemoved(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		b.create(pod("web"))
		const restarts = 6
		for range restarts {
			b.after(6 * time.Minute)
			b.runtime.Exit(b.live("main"), 1)
		}
		b.after(6 * time.Minute)
		if c := b.get("web").Status.ContainerStatuses[0]; c.RestartCount != restarts || c.State.Running == nil {
			t.Fatalf("the container has the status %+v", c)
		}
		names, err := b.files.ReadDir("/var/lib/kubelet/pods/uid-web/containers/main")
		if err != nil || len(names) < 2 || len(names) > 3 {
			t.Errorf("the files %q are left (%v), want those of the last instances", names, err)
		}
	})
}
