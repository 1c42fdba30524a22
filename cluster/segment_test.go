package cluster

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
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

// TestAddressesForOtherMachines checks that the addresses of a node on the segment are
// neither in the status of Ingresses nor what the node is announced by.
func TestAddressesForOtherMachines(t *testing.T) {
	for count, nodes := range map[int]string{1: "192.0.2.1", 2: "192.0.2.1 fd00:10:212::1"} {
		o := withNodes(t, count)
		o.AdvertiseAddress, o.ClusterCIDR = net.IPv4(192, 0, 2, 1), "10.244.0.0/16,fd00::/48"
		n, err := NewNode(o)
		if err != nil {
			t.Fatal(err)
		}
		if own := strings.Join(n.kubelet.Config.NodeIPs, " "); own != nodes || !slices.Equal(n.reachable(), []string{"192.0.2.1"}) || !slices.Equal(n.ingress.Addresses, n.reachable()) {
			t.Errorf("%d nodes: the first has %s; other machines reach it at %q, and Ingresses at %q", count, own, n.reachable(), n.ingress.Addresses)
		}
	}
}

// TestDNSOfBothFamilies checks that the DNS server of a node with addresses of both
// families answers at one of each that the cluster's DNS has.
func TestDNSOfBothFamilies(t *testing.T) {
	const own, both, ipv4 = "192.0.2.1", "10.96.0.10 fd01::a", "10.96.0.10"
	for _, c := range []struct{ kubelet, announced, want string }{
		{"192.0.2.1", both, own},
		{"192.0.2.1 2001:db8::1", both, own + " 2001:db8::1"},
		{"192.0.2.1 2001:db8::9", both, own}, // which the machine has not
		{"192.0.2.9 ::", both, own},
		{"192.0.2.1 2001:db8::1", ipv4, own},
		{"2001:db8::1 192.0.2.1 2001:db8::2", both, own + " 2001:db8::1"},
	} {
		here := parseAddresses([]string{"192.0.2.1", "192.0.2.9", "2001:db8::1", "2001:db8::2"})
		if got := answering([]string{own}, strings.Fields(c.kubelet), strings.Fields(c.announced), here); strings.Join(got, " ") != c.want {
			t.Errorf("%+v: the server answers at %q", c, got)
		}
	}
	if n, err := NewNode(asJoined(t)); err != nil || !slices.Equal(n.dns.Addresses, []string{"192.0.2.7"}) {
		t.Errorf("without arguments of the kubelet: %v", err)
	}
	if !slices.Contains(machineAddresses(), netip.MustParseAddr("127.0.0.1")) {
		t.Errorf("this machine has %v", machineAddresses())
	}
}
