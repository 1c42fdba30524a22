package proxy

import (
	"fmt"
	"net/netip"
	"testing"

	v1 "k8s.io/api/core/v1"
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
