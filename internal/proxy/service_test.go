package proxy

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// endpoint parses an address and flags: r(eady), s(erving), t(erminating), or ? for
// an unknown serving, then @node, and >zone,zone or >>node for hints.
func endpoint(text string) discoveryv1.Endpoint {
	fields := strings.Fields(text)
	e := discoveryv1.Endpoint{Addresses: fields[:1]}
	has := func(flag string) *bool { return ptr.To(strings.Contains(fields[1], flag)) }
	e.Conditions = discoveryv1.EndpointConditions{Ready: has("r"), Serving: has("s"), Terminating: has("t")}
	if strings.Contains(fields[1], "?") {
		e.Conditions.Serving = nil
	}
	for _, f := range fields[2:] {
		switch {
		case strings.HasPrefix(f, "@"):
			e.NodeName = ptr.To(f[1:])
		case strings.HasPrefix(f, ">>"):
			e.Hints = &discoveryv1.EndpointHints{ForNodes: []discoveryv1.ForNode{{Name: f[2:]}}}
		case strings.HasPrefix(f, ">"):
			e.Hints = &discoveryv1.EndpointHints{}
			for zone := range strings.SplitSeq(f[1:], ",") {
				e.Hints.ForZones = append(e.Hints.ForZones, discoveryv1.ForZone{Name: zone})
			}
		}
	}
	return e
}

func slice(port string, endpoints ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To(port), Protocol: ptr.To(v1.ProtocolTCP), Port: ptr.To(int32(8080))}},
	}
	for _, e := range endpoints {
		s.Endpoints = append(s.Endpoints, endpoint(e))
	}
	return s
}

func service(change func(*v1.ServiceSpec)) *v1.Service {
	s := &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: v1.ServiceSpec{
		ClusterIP: "10.96.0.20", Type: v1.ServiceTypeClusterIP,
		Ports: []v1.ServicePort{{Name: "http", Protocol: v1.ProtocolTCP, Port: 80}},
	}}
	change(&s.Spec)
	return s
}

func TestWhichEndpointsAnswer(t *testing.T) {
	plain := func(*v1.ServiceSpec) {}
	local := func(s *v1.ServiceSpec) { s.InternalTrafficPolicy = ptr.To(v1.ServiceInternalTrafficPolicyLocal) }
	for _, c := range []struct {
		name      string
		change    func(*v1.ServiceSpec)
		endpoints []string
		cluster   string
		local     string
	}{
		{"only the ready ones", plain, []string{"10.0.0.1 rs", "10.0.0.2 -"}, "1", ""},
		{"sorted and once", plain, []string{"10.0.0.2 rs", "10.0.0.1 rs", "10.0.0.2 rs"}, "1 2", ""},
		{"terminating ones wait behind the ready", plain, []string{"10.0.0.1 rs", "10.0.0.2 st"}, "1", ""},
		{"terminating ones when nobody is ready", plain, []string{"10.0.0.1 -", "10.0.0.2 st", "10.0.0.3 t"}, "2", ""},
		{"the node's own", local, []string{"10.0.0.1 rs @n1", "10.0.0.2 rs @n2", "10.0.0.3 rs"}, "1 2 3", "1"},
		{"the node's own terminating one", local, []string{"10.0.0.1 st @n1", "10.0.0.2 rs @n2"}, "2", "1"},
		{"hints for the zone", plain, []string{"10.0.0.1 rs >z1", "10.0.0.2 rs >z2"}, "1", ""},
		{"hints for the node before the zone", plain, []string{"10.0.0.1 rs >>n1", "10.0.0.2 rs >>n2"}, "1", ""},
		{"one without a hint ends all", plain, []string{"10.0.0.1 rs >z1", "10.0.0.2 rs"}, "1 2", ""},
		{"no hint for here ends all", plain, []string{"10.0.0.1 rs >z2", "10.0.0.2 rs >z3"}, "1 2", ""},
		{"hints of terminating ones do not count", plain, []string{"10.0.0.1 st >z1", "10.0.0.2 st >z2", "10.0.0.3 - "}, "1 2", ""},
		{"hints for several zones", plain, []string{"10.0.0.1 rs >z1,z2", "10.0.0.2 rs >z2,z3", "10.0.0.3 rs >z1"}, "1 3", ""},
		{"hints of those that are not ready do not count", plain, []string{"10.0.0.1 - >z1", "10.0.0.2 rs >z2", "10.0.0.3 rs >z3"}, "2 3", ""},
		{"hints for the node do not make its own fewer", local, []string{"10.0.0.1 rs @n1 >z1", "10.0.0.2 rs @n1 >z2", "10.0.0.3 rs >z1"}, "1 3", "1 2"},
		{"nobody of the node", local, []string{"10.0.0.1 rs @n2", "10.0.0.2 rs @n2"}, "1 2", ""},
		{"nobody at all", local, []string{"10.0.0.1 - @n1", "10.0.0.2 - @n2"}, "", ""},
		{"all terminate elsewhere", local, []string{"10.0.0.1 st @n2", "10.0.0.2 st @n2"}, "1 2", ""},
		{"those that terminate and may serve", plain, []string{"10.0.0.1 t?", "10.0.0.2 t"}, "1", ""},
		{"IPv4 written as IPv6", plain, []string{"::ffff:10.0.0.1 rs", "2001:db8::1 rs"}, "1", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			rules := serviceRules(service(c.change), []*discoveryv1.EndpointSlice{slice("http", c.endpoints...), slice("other", "10.0.0.9 rs")}, Node{Name: "n1", Zone: "z1"})
			if len(rules) != 1 {
				t.Fatalf("%d ports, want 1", len(rules))
			}
			for _, p := range rules {
				if got := last(p.Cluster); got != c.cluster {
					t.Errorf("cluster endpoints %q, want %q", got, c.cluster)
				}
				if got := last(p.Local); got != c.local {
					t.Errorf("local endpoints %q, want %q", got, c.local)
				}
			}
		})
	}
}

// TestLoadBalancersSeeReadyLocalEndpoints checks which endpoints count for the
// health check of a node port: a load balancer must move on while an endpoint
// terminates, although its traffic still arrives.
func TestLoadBalancersSeeReadyLocalEndpoints(t *testing.T) {
	s := service(func(s *v1.ServiceSpec) {
		s.Type, s.ExternalTrafficPolicy, s.HealthCheckNodePort = v1.ServiceTypeLoadBalancer, v1.ServiceExternalTrafficPolicyLocal, 30999
	})
	for want, endpoints := range map[string][]string{
		"1": {"10.0.0.1 rs @n1", "10.0.0.2 rs @n2", "10.0.0.3 st @n1"},
		"":  {"10.0.0.1 st @n1", "10.0.0.2 rs @n2"},
	} {
		for _, p := range serviceRules(s, []*discoveryv1.EndpointSlice{slice("http", endpoints...)}, Node{Name: "n1"}) {
			if got := last(p.ReadyLocal); got != want {
				t.Errorf("%v: ready local endpoints %q, want %q", endpoints, got, want)
			}
		}
	}
}

// TestSliceMovesToAnotherService checks that a slice whose label changes leaves
// its former Service.
func TestSliceMovesToAnotherService(t *testing.T) {
	s := newState("n1")
	api := service(func(s *v1.ServiceSpec) { s.ClusterIP = "10.96.0.21" })
	api.Name = "api"
	s.setService(service(func(*v1.ServiceSpec) {}))
	s.setService(api)
	of := func(name string) *discoveryv1.EndpointSlice {
		one := slice("http", "10.0.0.1 rs")
		one.Namespace, one.Name, one.Labels = "default", "hand-made", map[string]string{discoveryv1.LabelServiceName: name}
		return one
	}
	s.setSlice(of("web"))
	s.updateSlice(of("web"), of("api"))
	for name, p := range s.rules(s.localNode()).Services.All() {
		if want := map[string]string{"web": "", "api": "1"}[name.Name]; last(p.Cluster) != want {
			t.Errorf("endpoints of %s: %q, want %q", name.Name, last(p.Cluster), want)
		}
	}
}

// last returns the last numbers of addresses.
func last(list []netip.AddrPort) string {
	var parts []string
	for _, e := range list {
		parts = append(parts, fmt.Sprint(e.Addr().As4()[3]))
	}
	return strings.Join(parts, " ")
}

func TestFrontends(t *testing.T) {
	s := service(func(s *v1.ServiceSpec) {
		s.Type = v1.ServiceTypeLoadBalancer
		s.Ports[0].NodePort = 30080
		s.ExternalIPs = []string{"203.0.113.1", "2001:db8::1"}
		s.ExternalTrafficPolicy = v1.ServiceExternalTrafficPolicyLocal
		s.HealthCheckNodePort = 30999
		s.SessionAffinity = v1.ServiceAffinityClientIP
		s.LoadBalancerSourceRanges = []string{" 192.0.2.77/24", "2001:db8::/32"}
	})
	s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{
		{IP: "203.0.113.2"}, {IP: "203.0.113.3", IPMode: ptr.To(v1.LoadBalancerIPModeProxy)}, {Hostname: "lb.example"},
	}
	for _, p := range serviceRules(s, nil, Node{}) {
		got := fmt.Sprint(p.ClusterIP, p.Port, p.NodePort, p.External, p.LoadBalancer, p.SourceRanges, p.ExternalLocal, p.InternalLocal, p.Affinity == 3*time.Hour, p.HealthCheckNodePort)
		if want := "10.96.0.20 80 30080 [203.0.113.1] [203.0.113.2] [192.0.2.0/24] true false true 30999"; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestServicesThatAreNotProxied(t *testing.T) {
	for name, s := range map[string]*v1.Service{
		"headless":      service(func(s *v1.ServiceSpec) { s.ClusterIP = v1.ClusterIPNone }),
		"without an IP": service(func(s *v1.ServiceSpec) { s.ClusterIP = "" }),
		"external name": service(func(s *v1.ServiceSpec) { s.Type = v1.ServiceTypeExternalName }),
		"headless by its label": func() *v1.Service {
			s := service(func(*v1.ServiceSpec) {})
			s.Labels = map[string]string{"service.kubernetes.io/headless": ""}
			return s
		}(),
		"of another proxy": func() *v1.Service {
			s := service(func(*v1.ServiceSpec) {})
			s.Labels = map[string]string{"service.kubernetes.io/service-proxy-name": "other"}
			return s
		}(),
	} {
		if rules := serviceRules(s, []*discoveryv1.EndpointSlice{slice("http", "10.0.0.1 rs")}, Node{}); len(rules) != 0 {
			t.Errorf("%s: %v", name, rules)
		}
	}
}

func TestServiceCIDRs(t *testing.T) {
	s := newState("n1")
	of := func(name string, cidrs ...string) *networkingv1.ServiceCIDR {
		return &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: cidrs}}
	}
	check := func(want string) {
		t.Helper()
		select {
		case <-s.changed:
		default:
			t.Error("a changed range is not told")
		}
		if got := fmt.Sprint(s.rules(s.localNode()).ServiceCIDRs); got != want {
			t.Errorf("ranges %s, want %s", got, want)
		}
	}
	s.setCIDR(of("kubernetes", "10.96.0.0/16", "2001:db8::/112"))
	check("[10.96.0.0/16 2001:db8::/112]")
	s.setCIDR(of("more", "10.20.0.0/24"))
	check("[10.20.0.0/24 10.96.0.0/16 2001:db8::/112]")
	s.setCIDR(of("same", "10.20.0.0/24"))
	check("[10.20.0.0/24 10.96.0.0/16 2001:db8::/112]")
	s.deleteCIDR(of("more"))
	s.deleteCIDR(of("kubernetes"))
	check("[10.20.0.0/24]")
}

func TestStateComputesOnlyWhatChanged(t *testing.T) {
	s := newState("n1")
	first, second := service(func(*v1.ServiceSpec) {}), service(func(s *v1.ServiceSpec) { s.ClusterIP = "10.96.0.21" })
	second.Name = "api"
	s.setService(first)
	s.setService(second)
	before := s.rules(s.localNode())
	changed := slice("http", "10.0.0.1 rs")
	changed.Namespace, changed.Name = "default", "web-1"
	changed.Labels = map[string]string{discoveryv1.LabelServiceName: "web"}
	s.setSlice(changed)
	after := s.rules(s.localNode())
	for name, port := range after.Services.All() {
		if same := before.Services.Get(name) == port; same != (name.Name == "api") {
			t.Errorf("%s: same value %v", name.Name, same)
		}
	}
	s.deleteService(first)
	if n := s.rules(s.localNode()).Services.Len(); n != 1 {
		t.Errorf("%d ports after a Service went, want 1", n)
	}
}
