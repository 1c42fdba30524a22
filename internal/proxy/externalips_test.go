package proxy

import (
	"net/netip"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// claimant returns a Service with an age in hours, a cluster IP and external
// IPs.
func claimant(name string, age int, clusterIP string, port int32, wants ...string) *v1.Service {
	return &v1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "tenant", Name: name, CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-time.Duration(age) * time.Hour)),
		},
		Spec: v1.ServiceSpec{
			Type: v1.ServiceTypeClusterIP, ClusterIP: clusterIP, ClusterIPs: []string{clusterIP}, ExternalIPs: wants,
			Ports: []v1.ServicePort{{Port: port, Protocol: v1.ProtocolUDP}},
		},
	}
}

func externalOf(rules Rules, name string) []netip.Addr {
	for key, p := range rules.Services.All() {
		if key.Name == name {
			return append(append([]netip.Addr(nil), p.External...), p.LoadBalancer...)
		}
	}
	return nil
}

// TestExternalAddressesOfOthers checks which addresses a Service does not get
// by spec.externalIPs.
func TestExternalAddressesOfOthers(t *testing.T) {
	const node = "192.0.2.10"
	for what, c := range map[string]struct {
		thief *v1.Service
		want  bool // keeps the address
	}{
		"cluster DNS":                          {claimant("thief", 1, "10.96.0.99", 53, "10.96.0.10"), false},
		"cluster DNS, as an older Service":     {claimant("thief", 100, "10.96.0.99", 53, "10.96.0.10"), false},
		"another port of a cluster IP":         {claimant("thief", 1, "10.96.0.99", 5353, "10.96.0.10"), false},
		"the API server's endpoint":            {claimant("thief", 100, "10.96.0.99", 6443, "192.0.2.1"), false},
		"another node's address":               {claimant("thief", 100, "10.96.0.99", 80, "192.0.2.11"), false},
		"a pod's address":                      {claimant("thief", 100, "10.96.0.99", 80, "10.244.0.7"), false},
		"another port of the node":             {claimant("thief", 1, "10.96.0.99", 80, node), true},
		"what an older Service has":            {claimant("thief", 1, "10.96.0.99", 80, "203.0.113.7"), false},
		"what a younger Service has":           {claimant("thief", 50, "10.96.0.99", 80, "203.0.113.7"), true},
		"another port of an address in use":    {claimant("thief", 1, "10.96.0.99", 81, "203.0.113.7"), true},
		"an address that nobody has":           {claimant("thief", 1, "10.96.0.99", 80, "203.0.113.8"), true},
		"its own cluster IP, which it has yet": {claimant("thief", 1, "10.96.0.99", 80, "10.96.0.99"), false},
	} {
		t.Run(what, func(t *testing.T) {
			s := newState("here")
			s.setService(claimant("dns", 10, "10.96.0.10", 53))
			s.setService(claimant("web", 10, "10.96.0.20", 80, "203.0.113.7"))
			api := claimant("kubernetes", 10, "10.96.0.1", 443)
			api.Namespace = apiServers.Namespace
			s.setService(api)
			at := slice("", "192.0.2.1 rs")
			at.Namespace, at.Labels = apiServers.Namespace, map[string]string{"kubernetes.io/service-name": apiServers.Name}
			udp, port := v1.ProtocolUDP, int32(6443)
			at.Ports[0].Protocol, at.Ports[0].Port = &udp, &port
			s.setSlice(at)
			s.setNode(nodeAt("here", node))
			s.setNode(nodeAt("there", "192.0.2.11"))
			s.setService(c.thief)
			here := s.localNode()
			here.clusterCIDRs = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}
			rules := s.rules(here)
			if got := len(externalOf(rules, "thief")) > 0; got != c.want {
				t.Errorf("the Service gets the address: %v, want %v", got, c.want)
			}
			older := what == "what a younger Service has"
			if got := len(externalOf(rules, "web")) > 0; got == older {
				t.Errorf("web keeps its address: %v, want %v", got, !older)
			}
			if len(c.thief.Spec.ExternalIPs) != 1 {
				t.Error("the informer's object was changed")
			}
		})
	}
}

func TestWithoutExternalIPs(t *testing.T) {
	for _, without := range []bool{false, true} {
		p := &Proxy{config: Config{WithoutExternalIPs: without}, state: newState("here")}
		web := claimant("web", 10, "10.96.0.10", 80, "203.0.113.1")
		p.setService(web)
		if got := len(externalOf(p.state.rules(p.state.localNode()), "web")) == 0; got != without {
			t.Errorf("the Service has no external address: %t, want %t", got, without)
		}
		if len(web.Spec.ExternalIPs) != 1 {
			t.Error("the informer's object was changed")
		}
	}
}

func TestLoadBalancerAddressesOfOthers(t *testing.T) {
	s := newState("here")
	s.setService(claimant("dns", 10, "10.96.0.10", 53))
	thief := claimant("thief", 100, "10.96.0.99", 53)
	thief.Spec.Type = v1.ServiceTypeLoadBalancer
	thief.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: "10.96.0.10"}}
	s.setService(thief)
	if got := externalOf(s.rules(s.localNode()), "thief"); len(got) > 0 {
		t.Errorf("the Service takes %v", got)
	}
}

// TestExternalAddressesOfLoadBalancers checks that a Service gets no address of a load
// balancer in another namespace by spec.externalIPs: the nodes may announce it.
func TestExternalAddressesOfLoadBalancers(t *testing.T) {
	same := claimant("thief", 1, "10.96.0.99", 443, "203.0.113.7")
	same.Namespace = "web"
	for what, c := range map[string]struct {
		thief *v1.Service
		want  bool // gets the address
	}{
		"the same port":                   {claimant("thief", 1, "10.96.0.99", 80, "203.0.113.7"), false},
		"the same port, as an older one":  {claimant("thief", 100, "10.96.0.99", 80, "203.0.113.7"), false},
		"another port":                    {claimant("thief", 1, "10.96.0.99", 443, "203.0.113.7"), false},
		"another port, as an older one":   {claimant("thief", 100, "10.96.0.99", 443, "203.0.113.7"), false},
		"another port, in the same place": {same, true},
		"another port of this node":       {claimant("thief", 1, "10.96.0.99", 443, "192.0.2.10"), true},
		"the same port of this node":      {claimant("thief", 1, "10.96.0.99", 80, "192.0.2.10"), false},
		"an address that no balancer has": {claimant("thief", 1, "10.96.0.99", 80, "203.0.113.8"), true},
	} {
		s := newState("here")
		s.setNode(nodeAt("here", "192.0.2.10"))
		web := claimant("web", 10, "10.96.0.20", 80)
		web.Namespace, web.Spec.Type = "web", v1.ServiceTypeLoadBalancer
		web.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: "203.0.113.7"}, {IP: "192.0.2.10"}}
		s.setService(web)
		s.setService(c.thief)
		rules := s.rules(s.localNode())
		if got := len(externalOf(rules, "thief")) > 0; got != c.want {
			t.Errorf("%s: the Service gets the address: %v, want %v", what, got, c.want)
		}
		if got := externalOf(rules, "web"); len(got) != 2 {
			t.Errorf("%s: the load balancer has %v", what, got)
		}
	}
}

// TestLosersStayTheSame checks that a Service that loses an address keeps its
// value until it gets the address.
func TestLosersStayTheSame(t *testing.T) {
	s := newState("here")
	s.setService(claimant("dns", 10, "10.96.0.10", 53))
	s.setService(claimant("thief", 1, "10.96.0.99", 53, "10.96.0.10"))
	key := PortName{NamespacedName: types.NamespacedName{Namespace: "tenant", Name: "thief"}, Protocol: v1.ProtocolUDP, Family: v1.IPv4Protocol}
	before := s.rules(s.localNode()).Services.Get(key)
	s.setService(claimant("another", 1, "10.96.0.98", 53))
	if after := s.rules(s.localNode()).Services.Get(key); after != before {
		t.Error("a Service that did not change is another value")
	}
	s.deleteService(claimant("dns", 10, "10.96.0.10", 53))
	if got := externalOf(s.rules(s.localNode()), "thief"); len(got) != 1 {
		t.Errorf("the address is free, but the Service has %v", got)
	}
}

// TestNodePortsOfOthers checks that an address of the node with the node port of a
// Service goes to no other Service, even one that was there before.
func TestNodePortsOfOthers(t *testing.T) {
	for what, c := range map[string]struct {
		thief *v1.Service
		want  bool // gets the address
	}{
		"the node port of an older Service":         {claimant("thief", 1, "10.96.0.99", 30080, "192.0.2.10"), false},
		"the node port of a younger Service":        {claimant("thief", 20, "10.96.0.99", 30080, "192.0.2.10"), false},
		"an address that the node's object lacks":   {claimant("thief", 1, "10.96.0.99", 30080, "172.17.0.1"), false},
		"the node port at the address of no node":   {claimant("thief", 1, "10.96.0.99", 30080, "203.0.113.7"), true},
		"a port that is nobody's node port":         {claimant("thief", 1, "10.96.0.99", 30081, "192.0.2.10"), true},
		"a health check's port, which is over TCP":  {claimant("thief", 1, "10.96.0.99", 30082, "192.0.2.10"), true},
		"a health check's port of an older Service": {overTCP(claimant("thief", 1, "10.96.0.99", 30082, "192.0.2.10")), false},
	} {
		t.Run(what, func(t *testing.T) {
			s := newState("here")
			s.setNode(nodeAt("here", "192.0.2.10"))
			ported := claimant("ported", 10, "10.96.0.20", 80)
			ported.Spec.Type, ported.Spec.Ports[0].NodePort = v1.ServiceTypeLoadBalancer, 30080
			ported.Spec.ExternalTrafficPolicy, ported.Spec.HealthCheckNodePort = v1.ServiceExternalTrafficPolicyLocal, 30082
			s.setService(ported)
			s.setService(c.thief)
			here := s.localNode(netip.MustParseAddr("172.17.0.1"))
			if got := len(externalOf(s.rules(here), "thief")) > 0; got != c.want {
				t.Errorf("the Service gets the address: %v, want %v", got, c.want)
			}
			own := claimant("ported", 10, "10.96.0.20", 30080, "192.0.2.10")
			own.Spec.Type, own.Spec.Ports[0].NodePort = v1.ServiceTypeNodePort, 30080
			s.deleteService(c.thief)
			s.setService(own)
			if got := externalOf(s.rules(s.localNode()), "ported"); len(got) != 1 {
				t.Errorf("a Service with its own node port as its port gets %v", got)
			}
		})
	}
}

func overTCP(s *v1.Service) *v1.Service {
	s.Spec.Ports[0].Protocol = v1.ProtocolTCP
	return s
}

func nodeAt(name, address string) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1.NodeStatus{Addresses: []v1.NodeAddress{{Address: address}}}}
}
