package cluster

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/coracle-io/coracle/internal/component"
	"github.com/coracle-io/coracle/internal/nodeaddress"
	"github.com/coracle-io/coracle/internal/nodejoin"
)

// TestNodesBehindChange checks that a node that has joined learns of another range of the
// nodes behind the control plane's machine, or of the first one, and that there is none if
// it is that one itself. It keeps what it knows while it cannot ask.
func TestNodesBehindChange(t *testing.T) {
	n, err := NewNode(asJoined(t))
	if err != nil {
		t.Fatal(err)
	}
	client := fake.NewClientset()
	if err := n.readBehind(t.Context(), client); err == nil || n.routes().Front != "n" {
		t.Errorf("of a cluster that has published nothing: %v, front %q", err, n.routes().Front)
	}
	for i, step := range []struct {
		cidr, gateway string
		changed       bool
		front, behind string
	}{
		{"10.212.0.0/24,fd00:10:212::/64", "n", false, "n", "[10.212.0.0/24 fd00:10:212::/64]"},
		{"10.9.0.7/24", "n", true, "n", "[10.9.0.0/24]"},
		{"10.9.0.7/24", "o", true, "o", "[10.9.0.0/24]"},
		{"10.9.0.7/24", "m", true, "", "[]"},
		{"", "", false, "", "[]"},
	} {
		network := nodejoin.Network{ServiceCIDR: n.settings.ServiceCIDR, ClusterCIDR: n.settings.ClusterCIDR, NodeCIDR: step.cidr, Gateway: step.gateway}
		if err := errors.Join(network.Publish(t.Context(), client), n.readBehind(t.Context(), client)); err != nil {
			t.Fatal(err)
		}
		routes, changed := n.routes(), false
		select {
		case <-n.peers.changed:
			changed = true
		default:
		}
		if behind := fmt.Sprint(routes.Behind); routes.Front != step.front || behind != step.behind || changed != step.changed {
			t.Errorf("step %d: behind %q are %s, changed is %v", i, routes.Front, behind, changed)
		}
	}
}

// TestNodesOfOneMachineAreNotBehind checks that a further node does not take those of its
// own machine for nodes behind another one, and knows when there is another machine.
func TestNodesOfOneMachineAreNotBehind(t *testing.T) {
	s, err := complete(withNodes(t, 3))
	if err != nil {
		t.Fatal(err)
	}
	second := s.node(2)
	n := &Node{settings: second, kubelet: component.NewKubelet(), peers: newPeers(second.NodeName), addresses: &nodeaddress.Follower{}}
	n.kubelet.Config.NodeName = second.NodeName
	client := fake.NewClientset()
	for gateway, front := range map[string]string{"m.example": "", "other": "other"} {
		network := nodejoin.Network{ServiceCIDR: s.ServiceCIDR, ClusterCIDR: s.ClusterCIDR, NodeCIDR: "10.9.0.0/24", Gateway: gateway}
		if err := errors.Join(network.Publish(t.Context(), client), n.readBehind(t.Context(), client)); err != nil {
			t.Fatal(err)
		}
		if got := n.routes().Front; got != front {
			t.Errorf("with the first node %s, others are behind %q, want %q", gateway, got, front)
		}
	}
	for _, c := range []struct {
		name, address string
		elsewhere     bool
	}{{"m.example", "192.0.2.1", false}, {"m-3.example", "10.212.0.3", false}, {"simulated", "", false}, {"other", "192.0.2.2", true}} {
		n.peers.set(&v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: c.name}, Status: v1.NodeStatus{Addresses: []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: c.address}}},
		})
		if got := n.peers.elsewhere(n.isHere); got != c.elsewhere {
			t.Errorf("with node %s: another machine %v, want %v", c.name, got, c.elsewhere)
		}
	}
}

// TestOneServerHasNodesBehind checks that what a server has published of its further nodes
// stays until its first node is gone, whatever another server has.
func TestOneServerHasNodesBehind(t *testing.T) {
	client := fake.NewClientset(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b"}})
	for i, step := range []struct {
		own, cidr string // "": one node
		gone      string
		want      string
	}{
		{"b", "", "", ""}, {"a", "10.9.0.0/24", "", "a 10.9.0.0/24"}, {"b", "", "", "a 10.9.0.0/24"}, {"b", "10.8.0.0/24", "", "a 10.9.0.0/24"}, {"a", "10.7.0.0/24", "", "a 10.7.0.0/24"},
		{"b", "10.8.0.0/24", "a", "b 10.8.0.0/24"}, {"a", "", "b", ""},
	} {
		network := nodejoin.Network{ServiceCIDR: "10.96.0.0/16", ClusterCIDR: "10.244.0.0/16"}
		if step.cidr != "" {
			network.NodeCIDR, network.Gateway = step.cidr, step.own
		}
		var err error
		if step.gone != "" {
			err = client.CoreV1().Nodes().Delete(t.Context(), step.gone, metav1.DeleteOptions{})
		}
		if err == nil {
			network, err = withGateway(t.Context(), client, network, step.own)
		}
		if err == nil {
			err = network.Publish(t.Context(), client)
		}
		if got := strings.TrimSpace(network.Gateway + " " + network.NodeCIDR); err != nil || got != step.want {
			t.Errorf("step %d: published are %q, %v; want %q", i, got, err, step.want)
		}
	}
}
