package cluster

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/podnet"
)

// TestRoutesFollowNodes checks that a node that comes, goes or has another address is
// routed at once, by one plan, that a heartbeat is no change, and that nothing is
// planned again while nobody needs a route. The node that plans has joined.
func TestRoutesFollowNodes(t *testing.T) {
	n, err := NewNode(asJoined(t))
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		nodes, plans, ends := newPeers("m"), 0, map[string]string{} // the ends of the tunnel, by the next hop
		apply := func(routes podnet.Routes, podCIDRs []netip.Prefix, others []podnet.Peer, _ bool) (podnet.Plan, bool, error) {
			plan := routes.Plan(podCIDRs, others, nil)
			plans++
			clear(ends)
			for _, e := range plan.Tunnel.Endpoints {
				ends[e.Hop.String()] = e.Node.String()
			}
			return plan, true, nil
		}
		done := make(chan struct{})
		go func() {
			n.applyRoutes(ctx, nodes, apply)
			close(done)
		}()
		node := func(name, podCIDR string, addresses ...string) *v1.Node {
			out := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.NodeSpec{PodCIDRs: []string{podCIDR}}}
			for _, a := range addresses {
				out.Status.Addresses = append(out.Status.Addresses, v1.NodeAddress{Type: v1.NodeInternalIP, Address: a})
			}
			return out
		}
		both := func(address string) func() {
			return func() {
				nodes.set(node("x", "10.244.1.0/25", address))
				nodes.set(node("y", "10.244.2.0/25", "198.51.100.2"))
			}
		}
		for i, step := range []struct {
			do    func()
			plans int // in all
			ends  []string
		}{
			{both("198.51.100.1"), 0, nil}, // this node's own range is not known yet
			{func() { nodes.set(node("m", "10.244.0.0/25", "192.0.2.7")) }, 1, []string{"10.244.1.1", "198.51.100.1", "10.244.2.1", "198.51.100.2"}},
			{both("198.51.100.1"), 1, []string{"10.244.1.1", "198.51.100.1", "10.244.2.1", "198.51.100.2"}},
			{both("198.51.100.9"), 2, []string{"10.244.1.1", "198.51.100.9", "10.244.2.1", "198.51.100.2"}},
			{func() { nodes.remove("x") }, 3, []string{"10.244.2.1", "198.51.100.2"}},
			{both("198.51.100.1"), 4, []string{"10.244.1.1", "198.51.100.1", "10.244.2.1", "198.51.100.2"}},
			{func() { nodes.remove("y") }, 5, []string{"10.244.1.1", "198.51.100.1"}},
			{func() { nodes.remove("x") }, 6, nil},
		} {
			step.do()
			synctest.Wait() // no time passes
			var got []string
			for _, hop := range []string{"10.244.1.1", "10.244.2.1"} {
				if ends[hop] != "" {
					got = append(got, hop, ends[hop])
				}
			}
			if plans != step.plans || !slices.Equal(got, step.ends) {
				t.Errorf("step %d: %d plans, want %d; the tunnel ends at %q, want %q", i, plans, step.plans, got, step.ends)
			}
			time.Sleep(routePause)
		}
		planned := plans
		time.Sleep(time.Hour)
		synctest.Wait()
		if plans != planned {
			t.Errorf("%d plans without a change", plans-planned)
		}
		cancel()
		<-done
	})
}

// TestDNSOfBothFamilies checks that the DNS server of a node with addresses of both
// families answers at one of each that the cluster's DNS has.
func TestDNSOfBothFamilies(t *testing.T) {
	for _, c := range []struct {
		serviceCIDR, nodeIP string
		want                []string
	}{
		{"10.96.0.0/16,fd01::/112", "", []string{"192.0.2.1"}},
		{"10.96.0.0/16,fd01::/112", "192.0.2.1,2001:db8::1", []string{"192.0.2.1", "2001:db8::1"}},
		{"10.96.0.0/16,fd01::/112", "192.0.2.9,::", []string{"192.0.2.1"}},
		{"10.96.0.0/16", "192.0.2.1,2001:db8::1", []string{"192.0.2.1"}},
	} {
		o := withNodes(t, 1)
		o.ServiceCIDR, o.ClusterCIDR, o.AdvertiseAddress = c.serviceCIDR, "10.244.0.0/16,fd00::/48", net.IPv4(192, 0, 2, 1)
		if c.nodeIP != "" {
			o.KubeletArgs = []string{"node-ip=" + c.nodeIP}
		}
		n, err := NewNode(o)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(n.dns.Addresses, c.want) {
			t.Errorf("%+v: the server answers at %q", c, n.dns.Addresses)
		}
	}
}
