package cluster

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/component"
	"github.com/coracle-io/coracle/internal/podnet"
	"github.com/coracle-io/coracle/internal/supervise"
)

// A node that starts says what it waits for, until this node's kubelet has reported
// that it is Ready. The report of a former kubelet does not count.
func TestANodeSaysWhatItWaitsFor(t *testing.T) {
	n := &Node{kubelet: component.NewKubelet(), network: podnet.New(podnet.Config{})}
	n.kubelet.Config.NodeName = "n1"
	began := time.Unix(1_800_000_000, 0)
	node := func(podCIDR string, ready v1.ConditionStatus, heartbeat time.Time) *v1.Node {
		nd := &v1.Node{}
		if podCIDR != "" {
			nd.Spec.PodCIDRs = []string{podCIDR}
		}
		nd.Status.Conditions = []v1.NodeCondition{
			{Type: v1.NodeReady, Status: ready, Reason: "KubeletNotReady", Message: "no CNI configuration", LastHeartbeatTime: metav1.NewTime(heartbeat)},
		}
		return nd
	}
	for _, test := range []struct {
		what string
		node *v1.Node
		want string // "": nothing
	}{
		{"no object", nil, "for the API server, and for the kubelet to register node n1"},
		{"registered", node("", v1.ConditionFalse, began), "for the pod CIDRs of node n1"},
		{"not Ready", node("10.244.0.0/24", v1.ConditionFalse, began), "for the kubelet to report that node n1 is Ready; it reports KubeletNotReady: no CNI configuration"},
		{"a former report", node("10.244.0.0/24", v1.ConditionTrue, began.Add(-time.Second)), "for the kubelet to report that node n1 is Ready"},
		{"Ready", node("10.244.0.0/24", v1.ConditionTrue, began), ""},
	} {
		got := ""
		if err := n.awaited(test.node, began); err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, test.want) || (got == "") != (test.want == "") {
			t.Errorf("%s: %q, want %q", test.what, got, test.want)
		}
	}
}

// A node whose pods another CNI plugin connects has started once it lacks nothing but
// that plugin's configuration.
func TestANodeWithAnotherNetwork(t *testing.T) {
	o := withNodes(t, 1)
	o.AdvertiseAddress = net.IPv4(192, 0, 2, 1)
	plain := o
	plain.Node = new(*o.Node)
	o.Node.Network = noNetwork
	n, err := NewNode(o)
	if err != nil {
		t.Fatal(err)
	}
	if n.network != nil || n.policies != nil || n.runtime == nil {
		t.Errorf("the pod network is %v, and the network policies are %v", n.network, n.policies)
	}
	if c := runtimeConfig(n.settings); c.CNIConfDir != "/etc/cni/net.d" || !slices.Equal(c.CNIBinDirs, []string{"/opt/cni/bin"}) {
		t.Errorf("the runtime reads %s and runs what is in %q", c.CNIConfDir, c.CNIBinDirs)
	}
	if c := networkConfig(n.settings); !strings.HasPrefix(c.CNIConfDir, o.DataDir) {
		t.Errorf("the removal looks for a configuration in %s", c.CNIConfDir)
	}
	o.Node.CNIConfDir = "/net.d"
	chosen, err := complete(o)
	if err != nil {
		t.Fatal(err)
	}
	if c := runtimeConfig(chosen); c.CNIConfDir != "/net.d" {
		t.Errorf("the runtime reads %s", c.CNIConfDir)
	}
	o.Node.ContainerRuntimeEndpoint = "unix:///c.sock"
	if _, err := complete(o); err == nil || !strings.HasPrefix(err.Error(), "Node.CNIConfDir=/net.d: ") {
		t.Errorf("with a runtime of others, and a directory for it: %v", err)
	}
	own, err := NewNode(plain)
	if err != nil {
		t.Fatal(err)
	}
	const missing = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized"
	began := time.Unix(1_800_000_000, 0)
	for _, c := range []struct {
		node      *Node
		message   string
		heartbeat time.Time
		want      bool
	}{
		{n, missing, began, true}, {n, missing, began.Add(-time.Second), false}, {n, "[" + missing + ", PLEG is not healthy]", began, false}, {own, missing, began, false},
	} {
		nd := &v1.Node{}
		nd.Status.Conditions = []v1.NodeCondition{
			{Type: v1.NodeReady, Status: v1.ConditionFalse, Reason: "KubeletNotReady", Message: c.message, LastHeartbeatTime: metav1.NewTime(c.heartbeat)},
		}
		if got := c.node.hasStarted(nd, began); got != c.want {
			t.Errorf("%s at %v: started is %v", c.message, c.heartbeat, got)
		}
	}
}

// The pod network says that it waits for the first routes, as long as it does.
func TestThePodNetworkWaitsForRoutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, group := &Node{routed: newStep()}, supervise.NewGroup(supervise.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		defer group.Wait()
		defer cancel()
		awaited := false // used while the component waits, or has ended
		group.Go(ctx, "podnet", func(ctx context.Context) error {
			awaited = n.awaitRoutes(ctx)
			<-ctx.Done()
			return nil
		})
		conditions := func() []supervise.Condition {
			synctest.Wait()
			status, _ := group.Status()
			return status.Components[0].Conditions
		}
		if c := conditions(); len(c) != 1 || !strings.Contains(c[0].Message, "waiting for the component routes") || awaited {
			t.Errorf("before the first routes: %+v", c)
		}
		n.routed.reach()
		if c := conditions(); len(c) > 0 || !awaited {
			t.Errorf("after them: %+v, awaited %v", c, awaited)
		}
	})
}
