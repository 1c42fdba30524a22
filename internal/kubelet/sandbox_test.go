package kubelet

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
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
