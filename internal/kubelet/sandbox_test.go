package kubelet

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// resolving records the DNS configuration of the last sandbox.
type resolving struct {
	internalapi.RuntimeService
	mu   sync.Mutex // guards last
	last *runtimeapi.DNSConfig
}

func (r *resolving) RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	r.mu.Lock()
	r.last = config.GetDnsConfig()
	r.mu.Unlock()
	return r.RuntimeService.RunPodSandbox(ctx, config, handler)
}

// A machine may get its resolvers, or others, after the kubelet has started.
func TestResolversOfTheMachineChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		seen := &resolving{RuntimeService: b.runtime}
		b.configure = func(c *Config) { c.Runtime = seen }
		b.start()
		defer func() { b.stop() }()
		if err := b.files.MkdirAll("/etc", 0o755); err != nil {
			t.Fatal(err)
		}
		for _, server := range []string{"192.0.2.53", "192.0.2.54"} {
			if err := b.files.WriteFile("/etc/resolv.conf", []byte("nameserver "+server+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			b.create(pod("pod-" + server))
			b.after(time.Second)
			seen.mu.Lock()
			if got := seen.last.GetServers(); !slices.Equal(got, []string{server}) {
				t.Errorf("a pod has the resolvers %v, want %s", got, server)
			}
			seen.mu.Unlock()
		}
	})
}

// A pod that gets no user namespace says why.
func TestUserNamespaceFails(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		const dir = "/var/lib/kubelet/pods/uid-web"
		if err := b.files.MkdirAll(dir, 0o750); err != nil {
			t.Fatal(err)
		}
		if err := b.files.WriteFile(dir+"/userns", []byte("damaged"), 0o644); err != nil {
			t.Fatal(err)
		}
		b.create(pod("web", func(p *v1.Pod) { p.Spec.HostUsers = new(bool) }))
		b.after(time.Second)
		if got := b.events("FailedCreatePodSandBox"); len(got) == 0 || !strings.Contains(got[0], "range of user ids") {
			t.Errorf("events %q", got)
		}
	})
}

// limited is a runtime that can do no more than features.
type limited struct {
	internalapi.RuntimeService
	features *runtimeapi.RuntimeHandlerFeatures
}

func (l *limited) Status(ctx context.Context, verbose bool) (*runtimeapi.StatusResponse, error) {
	response, err := l.RuntimeService.Status(ctx, verbose)
	if err == nil {
		response.RuntimeHandlers = []*runtimeapi.RuntimeHandler{{Features: l.features}}
	}
	return response, err
}

// A pod does not run without what it asks for because the runtime ignores that.
func TestFeaturesOfTheRuntime(t *testing.T) {
	readOnly := func(mode v1.RecursiveReadOnlyMode) func(p *v1.Pod) {
		return func(p *v1.Pod) {
			withVolume(v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}})(p)
			m := &p.Spec.Containers[0].VolumeMounts[0]
			m.ReadOnly, m.RecursiveReadOnly = true, &mode
		}
	}
	for _, able := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			features := &runtimeapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: able, UserNamespaces: able}
			b.configure = func(c *Config) { c.Runtime = &limited{RuntimeService: b.runtime, features: features} }
			events := b.record()
			b.start()
			defer func() { b.stop() }()
			b.create(pod("users", func(p *v1.Pod) { p.Spec.HostUsers = new(bool) }))
			b.create(pod("must", readOnly(v1.RecursiveReadOnlyEnabled)))
			b.create(pod("may", readOnly(v1.RecursiveReadOnlyIfPossible)))
			b.after(time.Minute)
			for name, want := range map[string]bool{"users": able, "must": able, "may": true} {
				if got := b.get(name).Status.Phase == v1.PodRunning; got != want {
					t.Errorf("able %t: %s runs: %t", able, name, got)
				}
			}
			mode := v1.RecursiveReadOnlyDisabled
			if able {
				mode = v1.RecursiveReadOnlyEnabled
			} else if got := events("FailedCreatePodSandBox"); len(got) == 0 || !strings.Contains(got[0], "runtime does not support user namespaces") {
				t.Errorf("events %q", got)
			}
			if mounts := b.get("may").Status.ContainerStatuses[0].VolumeMounts; len(mounts) != 1 || *mounts[0].RecursiveReadOnly != mode {
				t.Errorf("able %t: mounts %+v", able, mounts)
			}
		})
	}
}

// sandboxless is a runtime that runs no sandboxes.
type sandboxless struct{ internalapi.RuntimeService }

func (sandboxless) RunPodSandbox(context.Context, *runtimeapi.PodSandboxConfig, string) (string, error) {
	return "", errors.New("no room")
}

// How long the runtime takes for sandboxes is measured, and how often it fails.
func TestSandboxesAreMeasured(t *testing.T) {
	for _, fails := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			if fails {
				b.configure = func(c *Config) { c.Runtime = sandboxless{b.runtime} }
			}
			b.start()
			defer func() { b.stop() }()
			b.create(pod("web"))
			b.after(time.Second)
			m := b.metrics()
			all, failed := m["kubelet_run_podsandbox_duration_seconds,"], m["kubelet_run_podsandbox_errors_total,"]
			if !fails && (all != 1 || failed != 0) || fails && (all == 0 || failed != all) {
				t.Errorf("fails %t: %v sandboxes are measured, %v have failed", fails, all, failed)
			}
		})
	}
}

// A pod whose sandbox has ended gets another one, and an event tells of that.
func TestSandboxThatEnded(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		b.create(pod("web"))
		told := func() (n int) {
			events, err := b.api.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range events.Items {
				if e.Reason == "SandboxChanged" && e.Message == "Pod sandbox changed, it will be killed and re-created." && e.Type == v1.EventTypeNormal {
					n++
				}
			}
			return n
		}
		b.after(time.Second)
		if n := told(); n != 0 {
			t.Errorf("%d events tell that the first sandbox has changed", n)
		}
		sandboxes, err := b.runtime.ListPodSandbox(t.Context(), nil)
		if err != nil || len(sandboxes) != 1 {
			t.Fatalf("sandboxes %v, %v", sandboxes, err)
		}
		if err := b.runtime.StopPodSandbox(t.Context(), sandboxes[0].GetId()); err != nil {
			t.Fatal(err)
		}
		b.after(30 * time.Second)
		if got := b.get("web").Status; got.Phase != v1.PodRunning || got.ContainerStatuses[0].RestartCount != 1 || told() != 1 {
			t.Errorf("afterwards the pod is %s with %d restarts, and %d events", got.Phase, got.ContainerStatuses[0].RestartCount, told())
		}
	})
}
