package kubelet

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// admitter answers Admit with what arrives on its channel, or gives up after
// 10 s.
type admitter struct {
	answers chan error
	asked   []string // names, addresses and whether the pod is static
}

func (a *admitter) Admit(ctx context.Context, p *v1.Pod, static bool, ips []string) error {
	a.asked = append(a.asked, p.Name+" "+strings.Join(ips, ","))
	timeout := time.NewTimer(10 * time.Second)
	defer timeout.Stop()
	select {
	case err := <-a.answers:
		return err
	case <-timeout.C:
		return errors.New("late")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TestContainersWaitForNetworkPolicies checks that no container runs before the
// policies of its pod are enforced.
func TestContainersWaitForNetworkPolicies(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		b.stop()
		isolation := &admitter{answers: make(chan error)}
		b.configure = func(c *Config) { c.NetworkPolicies = isolation }
		b.start()
		b.create(pod("one"))
		b.after(9 * time.Second)
		if got := b.containers(); len(got) > 0 || len(isolation.asked) != 1 {
			t.Fatalf("containers %v before the pod was isolated; asked for %v", got, isolation.asked)
		}
		if _, ip, _ := strings.Cut(isolation.asked[0], " "); ip == "" {
			t.Error("the policies are applied to no address")
		}
		b.after(2 * time.Second)
		events, err := b.api.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
		if err != nil || !slices.ContainsFunc(events.Items, func(e v1.Event) bool { return e.Reason == "NetworkNotReady" }) {
			t.Errorf("no event says why the pod waits: %v", err)
		}
		if got := b.containers(); len(got) > 0 {
			t.Fatalf("containers %v of a pod that is not isolated", got)
		}
		isolation.answers <- nil
		b.after(time.Second)
		if got := b.containers(); len(got) != 1 {
			t.Errorf("containers %v after the pod was isolated", got)
		}
		sandboxes, err := b.runtime.ListPodSandbox(t.Context(), nil)
		if err != nil || len(sandboxes) != 1 {
			t.Errorf("%d sandboxes, %v: waiting must not replace it", len(sandboxes), err)
		}

		// A pod in the host's network does not wait.
		b.create(pod("host", func(p *v1.Pod) { p.Spec.HostNetwork = true }))
		b.after(time.Second)
		if got := b.containers(); len(got) != 2 {
			t.Errorf("containers %v with one of a pod in the node's network", got)
		}
	})
}
