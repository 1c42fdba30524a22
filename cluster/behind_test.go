package cluster

import (
	"errors"
	"fmt"
	"testing"

	"k8s.io/client-go/kubernetes/fake"

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
