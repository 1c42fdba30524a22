package cluster

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coracle-io/coracle/internal/podnet"
)

// asJoined returns the options of a node whose control plane is on another machine.
func asJoined(t *testing.T) Options {
	return Options{
		Name: "t", DataDir: t.TempDir(), NodeName: "m", Ports: Ports{Secure: 6443}, AdvertiseAddress: net.IPv4(192, 0, 2, 7), ClusterCIDR: "10.244.0.0/16,fd00::/40", ServiceCIDR: "10.96.0.0/16,fd01::/112",
		Node: &NodeOptions{SeparateProcess: true, BundleDir: "/bundle", Joined: &JoinedNode{Server: "https://192.0.2.1:6443", NodeMaskSizeIPv4: 25, NodeMaskSizeIPv6: 56}, Behind: &NodesBehind{CIDR: "10.212.0.0/24,fd00:10:212::/64", Node: "n"}},
	}
}

// TestJoinedNode checks what of a node differs if it has joined.
func TestJoinedNode(t *testing.T) {
	o := asJoined(t)
	if err := Prepare(o); err != nil {
		t.Fatal(err)
	}
	if made, err := os.ReadDir(o.DataDir); err != nil || len(made) > 0 {
		t.Errorf("Prepare has made %v, %v", made, err)
	}
	n, err := NewNode(o)
	if err != nil {
		t.Fatal(err)
	}
	k := n.kubelet.Config
	if !k.Configuration.ServerTLSBootstrap || k.CertDirectory != filepath.Join(o.DataDir, "node", "pki") || !slices.Equal(k.NodeIPs, []string{"192.0.2.7"}) {
		t.Errorf("the kubelet requests a serving certificate: %v, has its certificates in %s and the addresses %v", k.Configuration.ServerTLSBootstrap, k.CertDirectory, k.NodeIPs)
	}
	if !slices.Contains(n.proxy.Reserved, podnet.TunnelPort) {
		t.Errorf("the port of the tunnel is free for pods and Services: reserved are %v", n.proxy.Reserved)
	}
	routes := n.routes()
	plan := routes.Plan(prefixes("10.244.0.0/25"), []podnet.Peer{{Name: "n", PodCIDRs: prefixes("10.244.1.0/25,fd00:0:0:100::/56"), Addresses: parseAddresses([]string{"192.0.2.1"})}}, nil)
	if len(plan.Routes) != 2 || len(plan.Refused) > 0 || plan.Tunnel.Local.String() != "192.0.2.7" {
		t.Errorf("the plan is %+v", plan)
	}
	if behind := prefixes("10.212.0.0/24,fd00:10:212::/64"); routes.Front != "n" || !slices.Equal(routes.Behind, behind) {
		t.Errorf("behind %s are %v", routes.Front, routes.Behind)
	}
	if err := os.Mkdir(filepath.Join(o.DataDir, "node"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, _, err := n.access.serving("m", nil); err == nil {
		t.Error("a kubelet without the cluster's authority serves")
	}
}

func TestJoinedNodesThatCannotBe(t *testing.T) {
	if _, err := New(asJoined(t)); err == nil || !strings.Contains(err.Error(), "use NewNode") {
		t.Errorf("a control plane of a node that has joined: %v", err)
	}
	for _, change := range []func(*NodeOptions){func(n *NodeOptions) { n.Count = 2 }, func(n *NodeOptions) { n.SeparateProcess = false }} {
		o := asJoined(t)
		change(o.Node)
		if _, err := NewNode(o); err == nil || !strings.HasPrefix(err.Error(), "Node.Joined=https://192.0.2.1:6443: want one node") {
			t.Errorf("%+v: %v", o.Node, err)
		}
	}
}
