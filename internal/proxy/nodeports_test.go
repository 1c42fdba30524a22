package proxy

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/freeport"
)

// TestNodePortAddresses checks in which ranges node ports of a node answer.
func TestNodePortAddresses(t *testing.T) {
	node := nodeAt("n1", "n1.example.com")
	node.Status.Addresses = append(node.Status.Addresses,
		v1.NodeAddress{Type: v1.NodeExternalIP, Address: "203.0.113.1"}, v1.NodeAddress{Type: v1.NodeExternalIP, Address: "2001:db8::1"},
		v1.NodeAddress{Type: v1.NodeInternalIP, Address: "192.0.2.10"}, v1.NodeAddress{Type: v1.NodeInternalIP, Address: "192.0.2.11"},
	)
	for _, c := range []struct {
		list []string
		bind string
		node *v1.Node
		want string
	}{
		{nil, "", node, "[]"},
		{[]string{"primary"}, "", node, "[192.0.2.10/32 2001:db8::1/128]"},
		{[]string{"primary"}, "192.0.2.11", node, "[2001:db8::1/128 192.0.2.11/32]"},
		{[]string{"primary"}, "", nodeAt("n1", "n1.example.com"), "[127.0.0.0/8 ::1/128]"},
		{[]string{"primary", "198.51.100.7/24"}, "", node, "[198.51.100.0/24 192.0.2.10/32 2001:db8::1/128]"},
		{[]string{"all"}, "", node, "[0.0.0.0/0 ::/0]"},
		{[]string{"localhost"}, "", node, "[127.0.0.0/8 ::1/128]"},
	} {
		n, err := ParseNodePortAddresses(c.list)
		if err != nil {
			t.Fatal(err)
		}
		if c.bind != "" {
			n.Bind = netip.MustParseAddr(c.bind)
		}
		if got := fmt.Sprint(n.ranges(primaryAddresses(c.node))); got != c.want {
			t.Errorf("%v, bound to %q: %s, want %s", c.list, c.bind, got, c.want)
		}
	}
	for _, bad := range []string{"", "primary,all", "192.0.2.10", "192.0.2.0/33", "Primary"} {
		if n, err := ParseNodePortAddresses([]string{"primary", bad}); err == nil {
			t.Errorf("%q is taken: %v", bad, n)
		}
	}
}

// TestNodePortRanges checks that a family without a range has node ports everywhere.
func TestNodePortRanges(t *testing.T) {
	for _, c := range []struct {
		ranges  []string
		address string
		want    bool
	}{
		{nil, "192.0.2.10", true},
		{[]string{"192.0.2.10/32"}, "192.0.2.10", true},
		{[]string{"192.0.2.10/32"}, "192.0.2.11", false},
		{[]string{"192.0.2.10/32"}, "2001:db8::1", true},
		{[]string{"192.0.2.10/32", "2001:db8::1/128"}, "2001:db8::2", false},
		{[]string{"192.0.2.10/32", "0.0.0.0/0"}, "192.0.2.11", true},
	} {
		var r NodePortRanges
		for _, text := range c.ranges {
			r = append(r, netip.MustParsePrefix(text))
		}
		if got := r.Contains(netip.MustParseAddr(c.address)); got != c.want {
			t.Errorf("%v contains %s: %v", c.ranges, c.address, got)
		}
	}
}

// TestNodePortsFollowTheNode checks that the rules follow the primary address of this
// node, and no other node's.
func TestNodePortsFollowTheNode(t *testing.T) {
	p := New(Config{NodeName: "n1", NodePortAddresses: NodePortAddresses{Primary: true}})
	at := func(name, address string) *v1.Node {
		node := nodeAt(name, address)
		node.Status.Addresses[0].Type = v1.NodeInternalIP
		return node
	}
	check := func(when, want string) {
		t.Helper()
		select {
		case <-p.state.changed:
		default:
			t.Errorf("%s: no change is told", when)
		}
		if got := fmt.Sprint(p.permit.rules(t.Context()).NodePortRanges); got != want {
			t.Errorf("%s: %s, want %s", when, got, want)
		}
	}
	p.setNode(at("n2", "192.0.2.20"))
	check("before the node is known", "[127.0.0.0/8 ::1/128]")
	p.setNode(at("n1", "192.0.2.10"))
	check("with an address", "[192.0.2.10/32]")
	p.setNode(at("n1", "192.0.2.11"))
	check("with another one", "[192.0.2.11/32]")
	p.state.deleteNode(at("n1", "192.0.2.11"))
	check("without the node", "[127.0.0.0/8 ::1/128]")
}

// TestHealthCheckNodePortAddresses checks that health check node ports answer where
// node ports do.
func TestHealthCheckNodePortAddresses(t *testing.T) {
	port := freeport.For(t)
	s := &servers{ctx: t.Context(), health: newHealth(), local: map[uint16]*localServer{}}
	defer s.stop()
	name := PortName{NamespacedName: types.NamespacedName{Namespace: "default", Name: "web"}}
	rules := Rules{Services: ServicePorts{}.With(name, &ServicePort{HealthCheckNodePort: uint16(port)})}
	for _, c := range []struct {
		at      string
		answers bool
	}{{"127.0.0.2/32", false}, {"127.0.0.1/32", true}, {"::1/128", true}, {"127.0.0.2/32", false}} {
		rules.NodePortRanges = NodePortRanges{netip.MustParsePrefix(c.at)}
		s.localHealth(rules)
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		request.Close = true
		answer, err := http.DefaultClient.Do(request)
		if err == nil {
			_ = answer.Body.Close()
		}
		if (err == nil) != c.answers {
			t.Errorf("with node ports at %s: %v", c.at, err)
		}
	}
}

// TestLoopbackAmongNodePortAddresses checks which addresses have those of loopback.
func TestLoopbackAmongNodePortAddresses(t *testing.T) {
	for _, c := range []struct {
		list []string
		want bool
	}{
		{nil, true},
		{[]string{"all"}, true},
		{[]string{"localhost"}, true},
		{[]string{"127.0.0.0/16"}, true},
		{[]string{"2001:db8::/64"}, true}, // no range of IPv4 means all
		{[]string{"192.0.2.0/24"}, false},
		{[]string{"primary"}, false},
		{[]string{"primary", "localhost"}, true},
	} {
		n, err := ParseNodePortAddresses(c.list)
		if err != nil {
			t.Fatal(err)
		}
		if got := n.HasLoopback(); got != c.want {
			t.Errorf("%v has loopback addresses: %v, want %v", c.list, got, c.want)
		}
	}
	s := newState("n1")
	s.nodePorts.Loopback = true
	rules := s.rules(s.localNode())
	if !rules.LoopbackNodePorts {
		t.Error("the rules do not say that node ports answer at loopback addresses")
	}
	rules.Services = rules.Services.With(PortName{Protocol: v1.ProtocolTCP, Family: v1.IPv4Protocol}, &ServicePort{NodePort: 30080})
	if list := allWants(rules, s.localNode()); len(list) != 1 || !list[0].claim.Loopback {
		t.Errorf("programs at loopback addresses do not count: %v", list)
	}
}
