package proxy

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"testing"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/costtest"
)

// comparing is a Backend that compares its rules with the former ones, as all do.
type comparing struct {
	refusing
	rules   Rules
	differs int // ports of Services, in the last Apply
}

func (c *comparing) Apply(rules Rules) error {
	c.differs = len(Compare(c.rules, rules).Services)
	c.rules = rules
	return nil
}

// crowd is a proxy with many Services, of which one changes.
type crowd struct {
	*Proxy
	backend *comparing
	servers *servers
	changes int
}

// newCrowd returns a proxy with n Services that change makes of ordinary ones.
func newCrowd(tb testing.TB, n int, change func(i int, s *v1.Service)) *crowd {
	c := &crowd{backend: &comparing{}, servers: &servers{ctx: tb.Context(), health: newHealth(), local: map[uint16]*localServer{}}}
	c.Proxy = New(Config{NodeName: "n1", Backend: c.backend})
	for i := range n {
		s := service(func(s *v1.ServiceSpec) {
			s.ClusterIP = netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}).String()
		})
		s.Name = fmt.Sprint("s", i)
		change(i, s)
		c.state.setService(s)
		c.state.setSlice(sliceFor(s.Name, "10.0.0.1 rs", "10.0.0.2 rs"))
	}
	c.apply(tb)
	if got := c.backend.rules.Services.Len(); got != n {
		tb.Fatalf("%d ports of %d Services", got, n)
	}
	return c
}

// sliceFor returns the endpoints of a Service of the namespace default.
func sliceFor(name string, endpoints ...string) *discoveryv1.EndpointSlice {
	s := slice("http", endpoints...)
	s.Namespace, s.Name, s.Labels = metav1.NamespaceDefault, name, map[string]string{discoveryv1.LabelServiceName: name}
	return s
}

func (c *crowd) apply(tb testing.TB) {
	if err := c.Proxy.apply(tb.Context(), c.servers.localHealth); err != nil {
		tb.Fatal(err)
	}
}

// change gives one Service another endpoint, and applies that.
func (c *crowd) change(tb testing.TB) {
	c.changes++
	c.state.setSlice(sliceFor("s7", "10.0.0.1 rs", fmt.Sprintf("10.1.%d.%d rs", c.changes/250%250, c.changes%250)))
	c.apply(tb)
	if c.backend.differs != 1 {
		tb.Fatalf("%d ports differ after a change of one Service", c.backend.differs)
	}
}

// TestCostOfAChange checks that a change of one Service costs the same with 10,000
// Services as with 100, from its event to the backend: it visits few entries of the rules,
// allocates as often, and as much memory.
func TestCostOfAChange(t *testing.T) {
	plain := func(int, *v1.Service) {}
	outside := func(i int, s *v1.Service) { // each with a node port, and some claim what others have
		s.Spec.Type, s.Spec.Ports[0].NodePort = v1.ServiceTypeNodePort, int32(20_000+i)
		s.Spec.ExternalIPs = []string{fmt.Sprintf("203.0.113.%d", i%250)}
	}
	for name, kind := range map[string]func(int, *v1.Service){"with a cluster IP": plain, "reached from outside": outside} {
		cost := func(services int) (allocations float64, bytes uint64) {
			c := newCrowd(t, services, kind)
			c.change(t)
			visited, before := 0, c.changes
			c.state.served = c.state.served.Counted(&visited)
			allocations = testing.AllocsPerRun(20, func() { c.change(t) })
			if most := 100 * (c.changes - before); visited > most {
				t.Errorf("%s: %d changes among %d Services visit %d of them, want at most %d", name, c.changes-before, services, visited, most)
			}
			const changes = 50
			return allocations, costtest.Of(t, func() {
				for range changes {
					c.change(t)
				}
			}).Bytes / changes
		}
		allocations, bytes := cost(100)
		manyAllocations, manyBytes := cost(10_000)
		if manyAllocations > allocations+30 || manyBytes > 4*bytes {
			t.Errorf("%s: a change allocates %v times (%d bytes) among 100 Services, and %v times (%d bytes) among 10,000", name, allocations, bytes, manyAllocations, manyBytes)
		}
	}
}

// BenchmarkChange measures a change of one Service from its event to the backend.
func BenchmarkChange(b *testing.B) {
	for _, services := range []int{100, 1_000, 10_000} {
		b.Run(fmt.Sprint(services, "Services"), func(b *testing.B) {
			c := newCrowd(b, services, func(int, *v1.Service) {})
			b.ReportAllocs()
			for b.Loop() {
				c.change(b)
			}
		})
	}
}

// TestPortsAreClaimedWhenTheyChange checks that the kernel is not asked about the ports of
// the node when a Service that has some gets other endpoints, but when that makes a
// difference for them.
func TestPortsAreClaimedWhenTheyChange(t *testing.T) {
	p, m, _ := permitLab()
	web, _ := webService()
	p.state.setService(web)
	for i, step := range []struct {
		endpoints []string
		claims    int
	}{
		{[]string{"10.244.0.8 rs"}, 1},
		{[]string{"10.244.0.9 rs"}, 1},
		{nil, 2},                         // the ports are held if they are
		{[]string{"192.0.2.10 rs"}, 3},   // not held: an endpoint is in the host's network
		{[]string{"192.0.2.10 rs -"}, 3}, // which is the same to the ports
	} {
		p.state.setSlice(sliceFor(web.Name, step.endpoints...))
		for range 2 {
			p.rules(t.Context())
		}
		if m.claims != step.claims {
			t.Errorf("step %d: %d claims, want %d", i, m.claims, step.claims)
		}
	}
}

// TestRulesFollowObjects changes Services, their endpoints and the programs of the node at
// random. The rules are those that a new proxy makes of the same objects.
func TestRulesFollowObjects(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	m := &machine{addresses: addrs("127.0.0.1", "192.0.2.10")}
	lab := func() *permitter {
		p := &permitter{state: newState("n1"), nodeName: "n1", ports: m}
		p.state.mostOfNamespace = 14
		p.state.setNode(nodeAt("n1", "192.0.2.10"))
		p.state.setNode(nodeAt("n2", "192.0.2.11"))
		return p
	}
	services, endpoints := map[string]*v1.Service{}, map[string]*discoveryv1.EndpointSlice{}
	followed := lab()
	for step := range 500 {
		name := fmt.Sprint("s", random.IntN(6))
		switch random.IntN(6) {
		case 0:
			if s := services[name]; s != nil {
				followed.state.deleteService(s)
				delete(services, name)
			}
		case 1:
			m.programs = []uint16{uint16(30080 + random.IntN(4)), 80}[:random.IntN(3)]
			followed.changed(t.Context())
		case 2, 3:
			endpoints[name] = sliceFor(name, []string{"10.244.0.1 rs", "10.244.0.2 rs @n1", "192.0.2.10 rs"}[:random.IntN(4)]...)
			followed.state.setSlice(endpoints[name])
		default:
			services[name] = randomService(random, name)
			followed.state.setService(services[name])
		}
		if random.IntN(3) == 0 {
			continue // changes gather
		}
		fresh := lab()
		for _, s := range services {
			fresh.state.setService(s)
		}
		for _, e := range endpoints {
			fresh.state.setSlice(e)
		}
		got, want := maps.Collect(followed.rules(t.Context()).Services.All()), maps.Collect(fresh.rules(t.Context()).Services.All())
		if len(got) != len(want) {
			t.Fatalf("step %d: %d ports, want %d", step, len(got), len(want))
		}
		for name, p := range want {
			if !samePort(got[name], p) {
				t.Fatalf("step %d: %s is\n%+v\nwant\n%+v", step, name, got[name], p)
			}
		}
	}
}

// samePort reports whether two ports are the same. A list without elements may be nil.
func samePort(a, b *ServicePort) bool {
	return a != nil && b != nil && (reflect.DeepEqual(a, b) || fmt.Sprintf("%+v", *a) == fmt.Sprintf("%+v", *b))
}

// randomService returns a Service that wants addresses and ports that others want, too.
func randomService(random *rand.Rand, name string) *v1.Service {
	s := service(func(s *v1.ServiceSpec) {
		s.ClusterIP = fmt.Sprint("10.96.0.", 20+random.IntN(8))
		s.Ports[0].Port = int32(80 + random.IntN(2))
		if random.IntN(2) == 0 {
			s.Type, s.Ports[0].NodePort = v1.ServiceTypeNodePort, int32(30080+random.IntN(4))
		}
		for _, a := range []string{"203.0.113.7", "192.0.2.10", "192.0.2.11", "10.96.0.21"} {
			if random.IntN(3) == 0 {
				s.ExternalIPs = append(s.ExternalIPs, a)
			}
		}
	})
	if random.IntN(3) == 0 {
		s.Spec.Type, s.Spec.ExternalTrafficPolicy = v1.ServiceTypeLoadBalancer, v1.ServiceExternalTrafficPolicyLocal
		s.Spec.HealthCheckNodePort = int32(30080 + random.IntN(4))
		s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: []string{"203.0.113.7", "192.0.2.10"}[random.IntN(2)]}}
	}
	s.Name, s.UID, s.CreationTimestamp = name, types.UID(name), metav1.Unix(int64(random.IntN(4)), 0)
	return s
}
