package l2announce

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/addresspool"
)

func testPools(t *testing.T) addresspool.Pools {
	t.Helper()
	pools, errs := addresspool.Parse(map[string]string{"a": `addresses: [192.0.2.0/24, "2001:db8::/64"]`, "web": "{addresses: [198.51.100.0/24], namespaces: [web]}"})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return pools
}

func addresses(list ...string) (out []netip.Addr) {
	for _, text := range list {
		out = append(out, netip.MustParseAddr(text))
	}
	return out
}

// TestRanksAreAnOrder checks that each node has a place of its own in the order of each
// address, and that all nodes are the first one of some.
func TestRanksAreAnOrder(t *testing.T) {
	nodes := []string{"alpha", "beta", "gamma", "delta"}
	var services []balancer
	for i := range 200 {
		services = append(services, balancer{namespace: "x", addresses: addresses(fmt.Sprint("192.0.2.", i), fmt.Sprintf("2001:db8::%x", i))})
	}
	places, firsts := map[netip.Addr][]int{}, map[string]int{}
	for _, node := range nodes {
		for a, rank := range ranks(node, nodes, testPools(t), services) {
			if places[a] = append(places[a], rank); rank == 0 {
				firsts[node]++
			}
		}
	}
	for a, list := range places {
		if slices.Sort(list); !slices.Equal(list, []int{0, 1, 2, 3}) {
			t.Errorf("%s: places %v", a, list)
		}
	}
	for _, node := range nodes {
		if firsts[node] < 50 {
			t.Errorf("the nodes are the first ones of %v addresses, of 400", firsts)
		}
	}
	// Without a node, the places of the others stay in their order.
	before, after := ranks("beta", nodes, testPools(t), services), ranks("beta", []string{"beta", "gamma", "delta"}, testPools(t), services)
	for a := range before {
		if d := before[a] - after[a]; len(after) != len(before) || d != 0 && d != 1 {
			t.Errorf("%s: from place %d to %d", a, before[a], after[a])
		}
	}
}

func TestRanksOfSomeNodes(t *testing.T) {
	nodes := []string{"alpha", "beta"}
	for name, c := range map[string]struct {
		own      string
		nodes    []string
		services []balancer
		want     []netip.Addr
	}{
		"all":                   {"alpha", nodes, []balancer{{"x", addresses("192.0.2.1", "2001:db8::1"), nil}}, addresses("192.0.2.1", "2001:db8::1")},
		"no candidate":          {"gamma", nodes, []balancer{{"x", addresses("192.0.2.1"), nil}}, nil},
		"of no pool":            {"alpha", nodes, []balancer{{"x", addresses("203.0.113.1", "192.0.2.1"), nil}}, addresses("192.0.2.1")},
		"pool of others":        {"alpha", nodes, []balancer{{"x", addresses("198.51.100.1"), nil}}, nil},
		"pool of the namespace": {"alpha", nodes, []balancer{{"web", addresses("198.51.100.1"), nil}}, addresses("198.51.100.1")},
		"local":                 {"alpha", nodes, []balancer{{"x", addresses("192.0.2.1"), map[string]bool{"alpha": true}}, {"x", addresses("192.0.2.2"), map[string]bool{"beta": true}}, {"x", addresses("192.0.2.3"), map[string]bool{}}}, addresses("192.0.2.1")},
		"shared with local":     {"alpha", nodes, []balancer{{"x", addresses("192.0.2.1"), nil}, {"x", addresses("192.0.2.1"), map[string]bool{"beta": true}}}, nil},
	} {
		got := slices.SortedFunc(maps.Keys(ranks(c.own, c.nodes, testPools(t), c.services)), netip.Addr.Compare)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	if got := ranks("alpha", nodes, testPools(t), []balancer{{"x", addresses("192.0.2.1"), map[string]bool{"alpha": true}}}); got[netip.MustParseAddr("192.0.2.1")] != 0 {
		t.Errorf("the only node with an endpoint is not the first: %v", got)
	}
}

func TestRanksAreBounded(t *testing.T) {
	var services []balancer
	for i := range addresspool.MostAddresses + 100 {
		services = append(services, balancer{namespace: "x", addresses: addresses(fmt.Sprintf("2001:db8::%x", i))})
	}
	pools := testPools(t)
	a, b := ranks("alpha", []string{"alpha", "beta"}, pools, services), ranks("beta", []string{"alpha", "beta"}, pools, services)
	for at := range a {
		if _, same := b[at]; !same || len(a) != addresspool.MostAddresses || len(b) != addresspool.MostAddresses {
			t.Fatalf("%d and %d addresses, %s is of both: %v", len(a), len(b), at, same)
		}
	}
}

func node(name string, ready v1.ConditionStatus) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: ready}}}}
}

// TestState checks what is wanted while objects come, change and go, and that what
// changes nothing is not told.
func TestState(t *testing.T) {
	s := newState("alpha")
	address := netip.MustParseAddr("192.0.2.1")
	step := func(what string, want, told bool, change func()) {
		t.Helper()
		select {
		case <-s.changed:
		default:
		}
		change()
		if _, got := s.wanted()[address]; got != want {
			t.Errorf("%s: wanted %v, want %v", what, got, want)
		}
		if got := len(s.changed) > 0; got != told {
			t.Errorf("%s: told %v, want %v", what, got, told)
		}
	}
	service := &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "web"}, Spec: v1.ServiceSpec{Type: v1.ServiceTypeLoadBalancer}}
	service.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: "192.0.2.1"}}
	local, other, without := service.DeepCopy(), service.DeepCopy(), service.DeepCopy()
	local.Spec.ExternalTrafficPolicy, other.Spec.LoadBalancerClass, without.Status.LoadBalancer.Ingress = v1.ServiceExternalTrafficPolicyLocal, new("example.com/lb"), nil
	excluded, going := node("alpha", v1.ConditionTrue), node("alpha", v1.ConditionTrue)
	excluded.Labels, going.DeletionTimestamp = map[string]string{v1.LabelNodeExcludeBalancers: ""}, new(metav1.Now())
	owner := node("owner", v1.ConditionUnknown)
	owner.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "192.0.2.1"}}
	slice := func(of, node string, ready bool) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: of}},
			Endpoints:  []discoveryv1.Endpoint{{NodeName: &node, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}, {}},
		}
	}
	step("a Service", false, true, func() { s.setService(service) })
	step("a node", false, true, func() { s.setNode(node("alpha", v1.ConditionTrue)) })
	step("all objects", false, true, s.setComplete)
	step("pools", true, true, func() { s.setPools(testPools(t)) })
	step("the same node", true, false, func() { s.setNode(node("alpha", v1.ConditionTrue)) })
	step("the same Service", true, false, func() { s.setService(service.DeepCopy()) })
	step("a second node", true, true, func() { s.setNode(node("beta", v1.ConditionTrue)) })
	step("not ready", false, true, func() { s.setNode(node("alpha", v1.ConditionUnknown)) })
	step("nor the other", true, true, func() { s.setNode(node("beta", v1.ConditionFalse)) })
	step("gone", true, true, func() { s.deleteNode(node("beta", v1.ConditionFalse)) })
	step("ready", true, true, func() { s.setNode(node("alpha", v1.ConditionTrue)) })
	step("excluded", false, true, func() { s.setNode(excluded) })
	step("still", false, false, func() { s.setNode(excluded.DeepCopy()) })
	step("no longer", true, true, func() { s.setNode(node("alpha", v1.ConditionTrue)) })
	step("is deleted", false, true, func() { s.setNode(going) })
	step("is back", true, true, func() { s.setNode(node("alpha", v1.ConditionTrue)) })
	step("endpoints", true, false, func() { s.setSlice(slice("web", "beta", true)) })
	step("local", false, true, func() { s.setService(local) })
	step("here", true, true, func() { s.setSlice(slice("web", "alpha", true)) })
	step("here again", true, false, func() { s.setSlice(slice("web", "alpha", true)) })
	step("not ready here", false, true, func() { s.setSlice(slice("web", "alpha", false)) })
	step("ready here", true, true, func() { s.setSlice(slice("web", "alpha", true)) })
	step("of another Service", false, true, func() { s.updateSlice(slice("web", "alpha", true), slice("api", "alpha", true)) })
	step("everywhere", true, true, func() { s.setService(service) })
	step("without an address", false, true, func() { s.setService(without) })
	step("with one", true, true, func() { s.setService(service) })
	step("of another class", false, true, func() { s.setService(other) })
	step("back", true, true, func() { s.setService(service) })
	step("of a node", false, true, func() { s.setNode(owner) })
	step("still its own", false, false, func() { s.setNode(owner.DeepCopy()) })
	step("of no node", true, true, func() { s.setNode(node("owner", v1.ConditionUnknown)) })
	step("of a node again", false, true, func() { s.setNode(owner) })
	step("without the node", true, true, func() { s.deleteNode(owner) })
	if got := s.with(address); len(got) != 1 || got[0] != service {
		t.Errorf("Services with the address: %v", got)
	}
	step("deleted", false, true, func() { s.deleteService(service) })
	step("again", true, true, func() { s.setService(service) })
	step("forgotten", false, true, s.forget)
}

// To find the Services with an address, of which a node can begin to answer for a thousand
// at once, others are not looked at, of which tenants can have many.
func TestServicesWithAnAddress(t *testing.T) {
	s := newState("alpha")
	const many = 1000
	for i := range many {
		service := &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: fmt.Sprint("web-", i)}, Spec: v1.ServiceSpec{Type: v1.ServiceTypeLoadBalancer}}
		service.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)}).String()}}
		s.setService(service)
	}
	s.setPools(testPools(t))
	s.setComplete()
	s.wanted()
	address := netip.AddrFrom4([4]byte{198, 51, 0, 7})
	if got := s.with(address); len(got) != 1 || got[0].Name != "web-7" {
		t.Errorf("found %v", got)
	}
	if allocations := testing.AllocsPerRun(10, func() { s.with(address) }); allocations >= many {
		t.Errorf("finding one of %d takes %v allocations", many, allocations)
	}
}

// TestReduce checks that what is kept of objects is enough.
func TestReduce(t *testing.T) {
	excluded := node("beta", v1.ConditionTrue)
	excluded.Labels = map[string]string{v1.LabelNodeExcludeBalancers: "", "other": "x"}
	excluded.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "192.0.2.9"}}
	service := &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "web", UID: "u", Annotations: map[string]string{"a": "b"}}, Spec: v1.ServiceSpec{Type: v1.ServiceTypeLoadBalancer, ClusterIP: "10.96.0.1"}}
	service.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: "192.0.2.1"}, {IP: "192.0.2.9"}}
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}}}
	for range 3 {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.0.0.1"}, NodeName: new("alpha")})
	}
	full, small := newState("alpha"), newState("alpha")
	for s, of := range map[*state]func(any) any{full: func(o any) any { return o }, small: func(o any) any {
		out, err := reduce(o)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}} {
		s.setPools(testPools(t))
		s.setNode(of(node("alpha", v1.ConditionTrue)).(*v1.Node))
		s.setNode(of(excluded).(*v1.Node))
		s.setService(of(service).(*v1.Service))
		s.setSlice(of(slice).(*discoveryv1.EndpointSlice))
		s.setComplete()
	}
	if !maps.Equal(full.wanted(), small.wanted()) || len(small.wanted()) != 1 || !maps.Equal(full.nodes, small.nodes) {
		t.Errorf("%v and %v, nodes %v and %v", full.wanted(), small.wanted(), full.nodes, small.nodes)
	}
	if got, _ := reduce(slice); len(got.(*discoveryv1.EndpointSlice).Endpoints) != 1 {
		t.Errorf("%+v", got)
	}
	if got, _ := reduce(service); got.(*v1.Service).Annotations != nil || got.(*v1.Service).UID != "u" {
		t.Errorf("%+v", got)
	}
}

func TestNicFor(t *testing.T) {
	of := func(name string, prefixes ...string) nic {
		n := nic{name: name}
		for _, p := range prefixes {
			n.prefixes = append(n.prefixes, netip.MustParsePrefix(p))
		}
		return n
	}
	segment := of("cos-x", "10.212.0.1/24")
	segment.inside = true
	list := []nic{of("eth0", "192.0.2.7/24", "2001:db8::7/64"), of("eth1", "203.0.113.7/32"), of("eth2", "192.0.2.8/24", "198.51.100.8/24"), segment}
	for name, c := range map[string]struct {
		address, own string
		want         string
	}{
		"in a subnet":               {"2001:db8::100", "203.0.113.7", "eth0"},
		"in that of two":            {"192.0.2.100", "203.0.113.7", "eth0"},
		"in that of the node's own": {"192.0.2.100", "192.0.2.8", "eth2"},
		"not by the other address":  {"192.0.2.100", "198.51.100.8", "eth0"},
		"in none":                   {"10.1.1.1", "203.0.113.7", "eth1"},
		"in none, IPv6":             {"2001:db8:1::1", "203.0.113.7", "eth1"},
		"in a cluster's":            {"10.212.0.200", "203.0.113.7", ""},
		"of the machine itself":     {"192.0.2.8", "203.0.113.7", ""},
		"without the node's own":    {"10.1.1.1", "10.2.2.2", ""},
	} {
		got, ok := nicFor(netip.MustParseAddr(c.address), list, addresses(c.own))
		if ok != (c.want != "") || ok && got.name != c.want {
			t.Errorf("%s: %s, %v, want %s", name, got.name, ok, c.want)
		}
	}
}
