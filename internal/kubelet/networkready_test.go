package kubelet

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// networkless is a runtime without a network for pods until ready is set.
type networkless struct {
	internalapi.RuntimeService
	ready atomic.Bool
}

func (r *networkless) Status(ctx context.Context, verbose bool) (*runtimeapi.StatusResponse, error) {
	answer, err := r.RuntimeService.Status(ctx, verbose)
	for _, c := range answer.GetStatus().GetConditions() {
		if c.GetType() == runtimeapi.NetworkReady && !r.ready.Load() {
			c.Status, c.Reason, c.Message = false, "NetworkPluginNotReady", "cni plugin not initialized"
		}
	}
	return answer, err
}

// Pods wait for the runtime's network, and say so. Those on the host's network do not.
func TestPodsWaitForTheNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		network := &networkless{RuntimeService: b.runtime}
		b.configure = func(c *Config) { c.Runtime = network }
		b.start()
		defer func() { b.stop() }()
		b.after(time.Second)
		b.create(pod("web"))
		b.create(pod("host", func(p *v1.Pod) { p.Spec.HostNetwork = true }))
		b.after(time.Minute)
		if web, host := b.get("web").Status.Phase, b.get("host").Status.Phase; web != v1.PodPending || host != v1.PodRunning {
			t.Errorf("without a network the pods are %s and, on the host's, %s", web, host)
		}
		if sandboxes, err := b.runtime.ListPodSandbox(t.Context(), nil); err != nil || len(sandboxes) != 1 {
			t.Errorf("without a network there are %d sandboxes (%v)", len(sandboxes), err)
		}
		events, err := b.api.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		const want = "network is not ready: container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:cni plugin not initialized"
		if !slices.ContainsFunc(events.Items, func(e v1.Event) bool { return e.Reason == "NetworkNotReady" && e.Message == want }) {
			t.Errorf("no event says why the pod waits: %v", events.Items)
		}
		network.ready.Store(true)
		b.after(3 * time.Second)
		if got := b.get("web").Status.Phase; got != v1.PodRunning {
			t.Errorf("with a network the pod is %s", got)
		}
	})
}
