package kubelet

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/kubelet/node"
	"github.com/coracle-io/coracle/internal/nodeaddress"
)

// TestTheMachineGetsAnotherAddress checks that the kubelet reports at once what the address
// of its node is now, and that of pods in the node's network, which run on.
func TestTheMachineGetsAnotherAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := nodeaddress.NewList("198.51.100.7")
		b := newBench(t)
		b.configure = func(c *Config) { c.Machine.(*node.Fixed).IPs = list }
		b.start()
		defer func() { b.stop() }()
		b.create(pod("host", func(p *v1.Pod) { p.Spec.HostNetwork = true }))
		b.after(10 * time.Second)
		container := b.get("host").Status.ContainerStatuses[0].ContainerID
		wants := func(when, address string) {
			t.Helper()
			n, err := b.api.CoreV1().Nodes().Get(t.Context(), nodeName, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if a := n.Status.Addresses; len(a) != 2 || a[0] != (v1.NodeAddress{Type: v1.NodeInternalIP, Address: address}) {
				t.Errorf("%s: the addresses of the node are %v, want %s", when, a, address)
			}
			if s := b.get("host").Status; s.HostIP != address || s.PodIP != address || s.ContainerStatuses[0].ContainerID != container {
				t.Errorf("%s: the pod is at %s on %s, want %s, in the container %s", when, s.PodIP, s.HostIP, address, s.ContainerStatuses[0].ContainerID)
			}
		}
		wants("at the start", "198.51.100.7")
		list.Set([]string{"203.0.113.5"})
		b.after(time.Second) // much less than the time between two reports
		wants("afterwards", "203.0.113.5")
	})
}
