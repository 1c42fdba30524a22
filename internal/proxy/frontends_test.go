package proxy

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/coracle-io/coracle/internal/costtest"
)

// TestManyExternalAddresses checks that the addresses of a Service become a bounded
// number of frontends.
func TestManyExternalAddresses(t *testing.T) {
	const many = 5000
	s := service(func(s *v1.ServiceSpec) {
		s.Type, s.Ports = v1.ServiceTypeLoadBalancer, nil
		for i := range many {
			s.Ports = append(s.Ports, v1.ServicePort{Name: fmt.Sprint(i), Port: int32(1 + i)})
			s.ExternalIPs = append(s.ExternalIPs, netip.AddrFrom4([4]byte{198, 18, byte(i / 250), byte(i % 250)}).String())
			s.LoadBalancerSourceRanges = append(s.LoadBalancerSourceRanges, s.ExternalIPs[i]+"/32")
		}
	})
	addresses, ranges := 0, 0
	rules := serviceRules(s, nil, Node{})
	for _, p := range rules {
		addresses, ranges = addresses+len(p.External), ranges+len(p.SourceRanges)
	}
	if len(rules) != many || addresses != mostFrontends || ranges != mostFrontends {
		t.Errorf("%d ports with %d addresses and %d ranges, want %d with %d of each", len(rules), addresses, ranges, many, mostFrontends)
	}
	s.Spec.Ports = s.Spec.Ports[:1]
	for _, p := range serviceRules(s, nil, Node{}) {
		if len(p.External) != many {
			t.Errorf("one port has %d addresses, want %d", len(p.External), many)
		}
	}
}

// TestAddressesWithZones checks that no text gets into rules as the zone of an address.
func TestAddressesWithZones(t *testing.T) {
	const zone = "2001:db8::1%a\n-A INPUT -j ACCEPT"
	s := service(func(s *v1.ServiceSpec) {
		s.Type, s.ClusterIP, s.ExternalIPs = v1.ServiceTypeLoadBalancer, "fd00:96::20", []string{zone}
	})
	s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: zone}}
	endpoints := slice("http")
	endpoints.AddressType, endpoints.Endpoints = discoveryv1.AddressTypeIPv6, []discoveryv1.Endpoint{{Addresses: []string{zone}}}
	rules := serviceRules(s, []*discoveryv1.EndpointSlice{endpoints}, Node{})
	if len(rules) != 1 {
		t.Errorf("%d ports, want 1", len(rules))
	}
	for name, p := range rules {
		if len(p.External)+len(p.LoadBalancer)+len(p.Cluster) > 0 {
			t.Errorf("%s: %+v", name, p)
		}
	}
	s.Spec.ClusterIP = zone
	if rules := serviceRules(s, nil, Node{}); len(rules) > 0 {
		t.Errorf("as a cluster IP: %v", rules)
	}
	pod := &v1.Pod{Status: v1.PodStatus{PodIPs: []v1.PodIP{{IP: zone}}}}
	pod.Spec.Containers = []v1.Container{{Ports: []v1.ContainerPort{{ContainerPort: 80, HostPort: 8080}}}}
	if ports := podHostPorts(pod, anywhere); len(ports) > 0 {
		t.Errorf("as the address of a pod: %v", ports)
	}
}

// TestManyPorts checks that the ports of a Service are not compared one by one with
// those of its endpoints, nor its addresses read for each port: the proxy works on
// one Service at a time.
func TestManyPorts(t *testing.T) {
	const many = 20_000
	endpoints := slice("other", "10.0.0.1 rs", "10.0.0.2 rs")
	endpoints.Ports = nil
	s := service(func(s *v1.ServiceSpec) {
		s.Ports = nil
		for i := range many {
			name := fmt.Sprint("p", i)
			s.Ports = append(s.Ports, v1.ServicePort{Name: name, Port: int32(1 + i)})
			endpoints.Ports = append(endpoints.Ports, discoveryv1.EndpointPort{Name: &name, Protocol: new(v1.ProtocolTCP), Port: new(int32(1 + i))})
			s.ExternalIPs = append(s.ExternalIPs, netip.AddrFrom16([16]byte{0: 0xfd, 14: byte(i >> 8), 15: byte(i)}).String())
		}
	})
	var rules map[PortName]*ServicePort
	cost := costtest.Of(t, func() { rules = serviceRules(s, []*discoveryv1.EndpointSlice{endpoints}, Node{}) })
	for name, p := range rules {
		if len(p.Cluster) != 2 || p.Cluster[0].Port() != p.Port {
			t.Fatalf("port %v leads to %v", name, p.Cluster)
		}
	}
	if len(rules) != many || cost.Processor > 2*time.Second {
		t.Errorf("%d ports take %v of processor time", len(rules), cost.Processor)
	}
}
