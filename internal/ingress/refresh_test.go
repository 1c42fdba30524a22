package ingress

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"testing"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/coracle-io/coracle/internal/costtest"
)

// crowd is a source of many hosts, each with a Service of its own.
type crowd struct {
	source
	services  map[serviceName]*v1.Service
	endpoints map[serviceName]*discoveryv1.EndpointSlice
	foreign   map[netip.Addr]bool // which no pod has
	asked     int                 // how often for a Service
}

func newCrowd(hosts int) *crowd {
	c := &crowd{services: map[serviceName]*v1.Service{}, endpoints: map[serviceName]*discoveryv1.EndpointSlice{}, foreign: map[netip.Addr]bool{}}
	c.service = func(namespace, name string) *v1.Service {
		c.asked++
		return c.services[serviceName{namespace, name}]
	}
	c.slices = func(namespace, service string) []*discoveryv1.EndpointSlice {
		return []*discoveryv1.EndpointSlice{c.endpoints[serviceName{namespace, service}]}
	}
	c.isPod = func(_ string, a netip.Addr) bool { return !c.foreign[a] }
	c.certificate = func(string, string) (*tls.Certificate, error) { return nil, errors.New("there is none") }
	for i := range hosts {
		name := fmt.Sprint("web", i)
		c.ingresses = append(c.ingresses, newIngress("n", name, 0, newRule(fmt.Sprintf("h%d.example", i), "/="+name+":80")))
		c.services[serviceName{"n", name}] = newService("n", name)
		c.endpoints[serviceName{"n", name}] = newSlice("n", name, "10.0.0.1")
	}
	return c
}

// TestEndpointsChangeWithoutATable checks that other endpoints of one Service make no new
// table: one of 1,000 hosts follows them at the cost of one of 10, by a look at that Service.
func TestEndpointsChangeWithoutATable(t *testing.T) {
	web := serviceName{"n", "web7"}
	cost := func(hosts int) uint64 {
		c := newCrowd(hosts)
		served, all, problems, _ := compile(c.source)
		if len(problems) > 0 {
			t.Fatalf("problems: %v", problems)
		}
		c.endpoints[web] = newSlice("n", "web7", "10.0.0.2", "10.0.0.3")
		c.asked = 0
		cost := costtest.Of(t, func() {
			if !all.refresh(c.source, map[serviceName]bool{web: true, {"n", "of-no-host"}: true}) {
				t.Error("a new table is asked for")
			}
		})
		if c.asked != 1 {
			t.Errorf("%d Services of %d are looked at", c.asked, hosts)
		}
		for host, want := range map[string]string{"h7.example": "n/web7 10.0.0.2:8080 10.0.0.3:8080", "h8.example": "n/web8 10.0.0.1:8080"} {
			if got := answered(t, served, host, "/"); got != want {
				t.Errorf("%s is answered by %s, want %s", host, got, want)
			}
		}
		return cost.Bytes
	}
	few, many := cost(10), cost(1000)
	if many > 4*few {
		t.Errorf("a change allocates %d bytes with 10 hosts and %d with 1,000", few, many)
	}
}

// TestMoreThanEndpoints checks which changes of a Service ask for a new table.
func TestMoreThanEndpoints(t *testing.T) {
	web := serviceName{"n", "web7"}
	for what, change := range map[string]func(*crowd){
		"no Service":          func(c *crowd) { delete(c.services, web) },
		"another protocol":    func(c *crowd) { c.services[web].Spec.Ports[0].AppProtocol = new("kubernetes.io/h2c") },
		"an external name":    func(c *crowd) { c.services[web].Spec.Type = v1.ServiceTypeExternalName },
		"an endpoint, no pod": func(c *crowd) { c.foreign[netip.MustParseAddr("10.0.0.1")] = true },
	} {
		c := newCrowd(10)
		_, all, _, _ := compile(c.source)
		change(c)
		if all.refresh(c.source, map[serviceName]bool{web: true}) {
			t.Errorf("%s: no table is asked for", what)
		}
		if !all.refresh(c.source, map[serviceName]bool{{"n", "web8"}: true}) && what != "an endpoint, no pod" {
			t.Errorf("%s: a table is asked for another Service", what)
		}
	}
}

// TestPanicsAreFollowed checks that a new table is asked for after a panic among changes of
// endpoints, which are not known any more.
func TestPanicsAreFollowed(t *testing.T) {
	c := &Controller{backends: &backendObjects{compiled: backends{}}} // without an index of slices
	c.leads.changes.add(nil, []string{"n/10.0.0.1"})
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		_ = c.sync(t.Context())
	}()
	c.leads.changes.add([]serviceName{{"n", "web"}}, nil)
	if since := c.take(); !since.anything {
		t.Errorf("the next table follows %+v alone", since)
	}
}

// BenchmarkEndpoints measures the change of one Service's endpoints.
func BenchmarkEndpoints(b *testing.B) {
	for _, hosts := range []int{10, 100, 1000} {
		b.Run(fmt.Sprint(hosts, "Hosts"), func(b *testing.B) {
			c := newCrowd(hosts)
			_, all, _, _ := compile(c.source)
			b.ReportAllocs()
			for b.Loop() {
				all.refresh(c.source, map[serviceName]bool{{"n", "web7"}: true})
			}
		})
	}
}
