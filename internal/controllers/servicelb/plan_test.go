package servicelb

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// balancerService returns a Service of an age in seconds.
func balancerService(namespace, name string, age int, ports ...int32) *v1.Service {
	s := &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: metav1.NewTime(epoch.Add(-time.Duration(age) * time.Second))},
		Spec:       v1.ServiceSpec{Type: v1.ServiceTypeLoadBalancer, IPFamilies: []v1.IPFamily{v1.IPv4Protocol}},
	}
	for _, p := range ports {
		s.Spec.Ports = append(s.Spec.Ports, v1.ServicePort{Port: p, Protocol: v1.ProtocolTCP})
	}
	return s
}

func dual(s *v1.Service) *v1.Service {
	s.Spec.IPFamilies = append(s.Spec.IPFamilies, v1.IPv6Protocol)
	return s
}

func udp(s *v1.Service) *v1.Service {
	for i := range s.Spec.Ports {
		s.Spec.Ports[i].Protocol = v1.ProtocolUDP
	}
	return s
}

func TestPlan(t *testing.T) {
	a := node{name: "a", addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}}
	b := node{name: "b", addresses: []netip.Addr{netip.MustParseAddr("192.0.2.2")}, hostPorts: map[port]bool{{443, v1.ProtocolTCP}: true}}
	for _, test := range []struct {
		name     string
		services []service
		want     map[string]string // addresses or problem, by namespace/name
	}{
		{"all nodes", []service{{Service: balancerService("x", "web", 1, 80)}}, map[string]string{"x/web": "192.0.2.1, 192.0.2.2"}},
		{"both families", []service{{Service: dual(balancerService("x", "web", 1, 80))}}, map[string]string{"x/web": "192.0.2.1, 2001:db8::1, 192.0.2.2"}},
		{"an older one has the port", []service{
			{Service: balancerService("x", "young", 1, 80)}, {Service: balancerService("x", "old", 2, 80)}, {Service: balancerService("y", "web", 0, 80)},
		}, map[string]string{
			"x/old": "192.0.2.1, 192.0.2.2", "x/young": "port 80/TCP is that of Service old, which is older",
			"y/web": "port 80/TCP is that of an older Service in another namespace",
		}},
		{"one without addresses takes no ports", []service{
			{Service: balancerService("x", "first", 3, 80)}, {Service: balancerService("x", "second", 2, 80, 81)}, {Service: balancerService("x", "third", 1, 81)},
		}, map[string]string{
			"x/first": "192.0.2.1, 192.0.2.2", "x/second": "port 80/TCP is that of Service first, which is older", "x/third": "192.0.2.1, 192.0.2.2",
		}},
		{"another protocol", []service{
			{Service: balancerService("x", "tcp", 2, 53)}, {Service: udp(balancerService("x", "udp", 1, 53))},
		}, map[string]string{"x/tcp": "192.0.2.1, 192.0.2.2", "x/udp": "192.0.2.1, 192.0.2.2"}},
		{"host ports", []service{{Service: balancerService("x", "web", 1, 443)}}, map[string]string{"x/web": "192.0.2.1"}},
		{"ports of the cluster", []service{{Service: balancerService("x", "web", 1, 80, 6443)}}, map[string]string{"x/web": "the cluster itself uses port 6443"}},
		{"nodes with endpoints", []service{
			{Service: balancerService("x", "here", 3, 80), local: map[string]bool{"a": true}},
			{Service: balancerService("x", "there", 2, 80), local: map[string]bool{"a": true, "b": true}},
			{Service: balancerService("x", "none", 1, 80), local: map[string]bool{}},
		}, map[string]string{"x/here": "192.0.2.1", "x/there": "192.0.2.2", "x/none": "externalTrafficPolicy is Local, and no node has a ready endpoint"}},
		{"no address of the family", []service{{Service: func() *v1.Service {
			s := balancerService("x", "six", 1, 80)
			s.Spec.IPFamilies = []v1.IPFamily{v1.IPv6Protocol}
			return s
		}(), local: map[string]bool{"b": true}}}, map[string]string{"x/six": "no node has an address for it"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := map[string]string{}
			for key, assigned := range plan(test.services, []node{a, b}, nil, []int{6443}) {
				got[key.String()] = assigned.String() + assigned.problem
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func machine(name string, ready v1.ConditionStatus, addresses ...v1.NodeAddress) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1.NodeStatus{
		Addresses: addresses, Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: ready}},
	}}
}

func TestUsableNodes(t *testing.T) {
	internal := func(ip string) v1.NodeAddress { return v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip} }
	public := v1.NodeAddress{Type: v1.NodeExternalIP, Address: "198.51.100.1"}
	excluded := machine("excluded", v1.ConditionTrue, internal("192.0.2.9"))
	excluded.Labels = map[string]string{v1.LabelNodeExcludeBalancers: ""}
	going := machine("going", v1.ConditionTrue, internal("192.0.2.8"))
	going.DeletionTimestamp = new(metav1.NewTime(epoch))
	one, two := machine("one", v1.ConditionTrue, internal("192.0.2.1"), internal("192.0.2.1"), v1.NodeAddress{Type: v1.NodeHostName, Address: "one"}), machine("two", v1.ConditionUnknown, internal("192.0.2.2"))
	for _, test := range []struct {
		name  string
		nodes []*v1.Node
		want  map[string]string
	}{
		{"ready ones", []*v1.Node{two, one, excluded, going, machine("bare", v1.ConditionTrue)}, map[string]string{"one": "192.0.2.1"}},
		{"none is ready", []*v1.Node{two}, map[string]string{"two": "192.0.2.2"}},
		{"public addresses", []*v1.Node{machine("three", v1.ConditionTrue, internal("192.0.2.3"), public)}, map[string]string{"three": "198.51.100.1"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := map[string]string{}
			for _, n := range usable(test.nodes, func(string) map[port]bool { return nil }) {
				got[n.name] = assignment{addresses: n.addresses}.String()
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
