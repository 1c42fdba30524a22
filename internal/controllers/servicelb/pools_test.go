package servicelb

import (
	"net/netip"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"github.com/coracle-io/coracle/internal/addresspool"
	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/controllertest"
)

// configure replaces the pools, and waits until the controller has no more work.
func (s scene) configure(pools map[string]string) {
	s.Helper()
	configs := s.Fake.CoreV1().ConfigMaps(addresspool.Namespace)
	config := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: addresspool.Namespace, Name: addresspool.Name}, Data: pools}
	_, err := configs.Get(s.Context(), config.Name, metav1.GetOptions{})
	switch {
	case pools == nil:
		err = configs.Delete(s.Context(), config.Name, metav1.DeleteOptions{})
	case err == nil:
		_, err = configs.Update(s.Context(), config, metav1.UpdateOptions{})
	default:
		_, err = configs.Create(s.Context(), config, metav1.CreateOptions{})
	}
	if err != nil {
		s.Fatal(err)
	}
	synctest.Wait()
}

// TestPoolsWhileTheClusterRuns checks what Services get while pools come, change and
// go.
func TestPoolsWhileTheClusterRuns(t *testing.T) {
	run(t, func(s scene) {
		s.configure(map[string]string{"office": "addresses: [198.51.100.1]"})
		s.create(balancerService("x", "web", 9, 80))
		s.expect("web", "198.51.100.1")
		s.expectEvents("Normal IPAllocated Allocated 198.51.100.1")
		s.create(balancerService("x", "api", 1, 80))
		s.expect("api")
		s.expectEvents("Warning AllocationFailed Cannot allocate an address: no IPv4 address is free in the pools office")
		s.configure(map[string]string{"office": "addresses: [198.51.100.1-198.51.100.3]"})
		s.expect("api", "198.51.100.2")
		s.expectEvents("Normal IPAllocated Allocated 198.51.100.2")
		// A pool that no longer gives addresses by itself leaves Services theirs.
		s.configure(map[string]string{"office": "{addresses: [198.51.100.1-198.51.100.3], autoAssign: false}"})
		s.expect("web", "198.51.100.1")
		s.expect("api", "198.51.100.2")
		// A pool with an error changes nothing.
		s.configure(map[string]string{"office": "addresses: [10.0.0.0/8]"})
		s.expect("web", "198.51.100.1")
		s.expectEvents(`Warning InvalidAddressPools The address pools stay as they were: data[office].addresses[0]: Invalid value: "10.0.0.0-10.255.255.255": overlaps with 10.96.0.0/16, which is a range of the cluster itself`)
		// The addresses of a pool go with it.
		s.configure(map[string]string{"lab": "{addresses: [203.0.113.1], namespaces: [x]}"})
		s.expect("web", "203.0.113.1")
		s.expect("api")
		events := s.DrainEvents()
		for _, want := range []string{
			"Warning IPReleased The Service loses an address: 198.51.100.1 is in no address pool", "Normal IPAllocated Allocated 203.0.113.1",
			"Warning IPReleased The Service loses an address: 198.51.100.2 is in no address pool", "Warning AllocationFailed Cannot allocate an address: no IPv4 address is free in the pools lab",
		} {
			found := false
			for _, e := range events {
				found = found || e == want
			}
			if !found || len(events) != 4 {
				t.Errorf("events %q, want %q and three more", events, want)
			}
		}
		s.configure(nil)
		s.expect("web", "192.0.2.1", "192.0.2.2")
	})
}

// TestKeptAddressesAreReportedOnce reports twice before the informer shows the mark of a
// Service that keeps its addresses.
func TestKeptAddressesAreReportedOnce(t *testing.T) {
	events := record.NewFakeRecorder(9)
	b := &balancer{env: &controller.Env{Events: events}, reported: map[types.UID]message{"1": {latest: "192.0.2.1"}}}
	s := balancerService("x", "web", 9, 80)
	s.UID = "1"
	a := assignment{addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, kept: true}
	for range 2 {
		b.reported[s.UID] = b.report(s, a)
	}
	if n := len(events.Events); n != 1 {
		t.Errorf("%d events", n)
	}
}

// TestServicesKeepTheAddressesOfNodes checks that a Service that has addresses of nodes
// when a pool comes keeps them, also while no node serves it, until it asks for others.
func TestServicesKeepTheAddressesOfNodes(t *testing.T) {
	run(t, func(s scene) {
		endpoints := s.Fake.DiscoveryV1().EndpointSlices("x")
		serve := func() {
			slice := &discoveryv1.EndpointSlice{
				ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "local-1", Labels: map[string]string{discoveryv1.LabelServiceName: "local"}},
				Endpoints:  []discoveryv1.Endpoint{{NodeName: new("b")}},
			}
			if _, err := endpoints.Create(s.Context(), slice, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		annotations := func(name string) map[string]string {
			service, err := s.Fake.CoreV1().Services("x").Get(s.Context(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return service.Annotations
		}
		serve()
		s.create(balancerService("x", "web", 9, 80))
		s.create(local(balancerService("x", "local", 8, 81), "local"))
		s.expect("web", "192.0.2.1", "192.0.2.2")
		s.expect("local", "192.0.2.2")
		s.DrainEvents()
		s.configure(map[string]string{"office": "addresses: [198.51.100.1-198.51.100.9]"})
		s.expect("web", "192.0.2.1", "192.0.2.2")
		s.expect("local", "192.0.2.2")
		const kept = "Normal AddressesKept Keeps the addresses of nodes: with the annotation coracle.io/address-pool, it gets those of an address pool"
		s.expectEvents(kept, kept)
		if err := endpoints.Delete(s.Context(), "local-1", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		s.expect("local")
		serve()
		s.expect("local", "192.0.2.2")
		s.create(balancerService("x", "new", 1, 80))
		s.expect("new", "198.51.100.1")
		s.update("local", func(service *v1.Service) { service.Annotations[PoolAnnotation] = "office" })
		s.expect("local", "198.51.100.2")
		s.update("local", func(service *v1.Service) { delete(service.Annotations, PoolAnnotation) })
		s.expect("local", "198.51.100.2")
		if got := annotations("local"); len(got) != 1 {
			t.Errorf("annotations %v of a Service that has an address of a pool", got)
		}
		s.update("web", func(service *v1.Service) { service.Spec.Type = v1.ServiceTypeClusterIP })
		s.expect("web")
		if got := annotations("web"); len(got) > 0 {
			t.Errorf("annotations %v of a Service of another type", got)
		}
		s.update("web", func(service *v1.Service) { service.Spec.Type = v1.ServiceTypeLoadBalancer })
		s.expect("web", "198.51.100.3")
	})
}

// TestNodeTakesTheAddressOfAService checks that a Service gets another address when a
// node has its own, also if that is not one at which clients outside reach the node.
func TestNodeTakesTheAddressOfAService(t *testing.T) {
	run(t, func(s scene) {
		nodeAt := func(internal string) {
			node := machine("a", v1.ConditionTrue, v1.NodeAddress{Type: v1.NodeExternalIP, Address: "203.0.113.1"}, v1.NodeAddress{Type: v1.NodeInternalIP, Address: internal})
			if _, err := s.Fake.CoreV1().Nodes().UpdateStatus(s.Context(), node, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		nodeAt("192.0.2.1")
		s.configure(map[string]string{"office": "addresses: [198.51.100.1-198.51.100.9]"})
		s.create(balancerService("x", "web", 9, 80))
		s.expect("web", "198.51.100.1")
		s.DrainEvents()
		nodeAt("198.51.100.1")
		s.expect("web", "198.51.100.2")
		s.expectEvents("Warning IPReleased The Service loses an address: 198.51.100.1 is an address of a node", "Normal IPAllocated Allocated 198.51.100.2")
	})
}

// TestAddressesOfAPIServers checks that no Service gets or keeps the address of an API
// server.
func TestAddressesOfAPIServers(t *testing.T) {
	run(t, func(s scene) {
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes", Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"}},
			Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{"198.51.100.1"}}},
		}
		slices := s.Fake.DiscoveryV1().EndpointSlices("default")
		if _, err := slices.Create(s.Context(), slice, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		s.configure(map[string]string{"office": "addresses: [198.51.100.1-198.51.100.9]"})
		s.create(balancerService("x", "web", 9, 80))
		s.create(asking(balancerService("x", "thief", 8, 80), "198.51.100.1"))
		s.expect("web", "198.51.100.2")
		s.expect("thief")
		slice.Endpoints[0].Addresses = []string{"198.51.100.2"}
		if _, err := slices.Update(s.Context(), slice, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		s.expect("web", "198.51.100.1")
		s.expect("thief")
	})
}

// TestPoolsBeforeTheirServices checks that a Service gets an address of a pool that was
// there before it, though the informer has not heard of the pool yet.
func TestPoolsBeforeTheirServices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scene{t, controllertest.New(t, machine("a", v1.ConditionTrue, v1.NodeAddress{Type: v1.NodeInternalIP, Address: "192.0.2.1"}))}
		s.Fake.PrependWatchReactor("configmaps", func(clienttesting.Action) (bool, watch.Interface, error) {
			return true, watch.NewFake(), nil // and it never does
		})
		s.Cluster.Run(Descriptor(&Options{NodeAddresses: true}))
		synctest.Wait()
		s.create(balancerService("x", "old", 9, 80))
		s.expect("old", "192.0.2.1")
		s.configure(map[string]string{"office": "addresses: [198.51.100.1-198.51.100.2]"})
		s.create(balancerService("x", "web", 8, 81))
		s.expect("web", "198.51.100.1")
		s.expect("old", "192.0.2.1")
	})
}

// TestPoolsOfSomeServices checks that Services for which no pool is have the
// addresses of nodes, and those of other classes none.
func TestPoolsOfSomeServices(t *testing.T) {
	run(t, func(s scene) {
		s.configure(map[string]string{"lab": "{addresses: [203.0.113.1-203.0.113.9], autoAssign: false}"})
		asks, own, other := with(balancerService("x", "asks", 9, 6443), "address-pool=lab"), with(balancerService("x", "own", 8, 6443), "address-pool=lab"), with(balancerService("x", "other", 7, 80), "address-pool=lab")
		own.Spec.LoadBalancerClass, other.Spec.LoadBalancerClass = new(Class), new("example.com/lb")
		own.Spec.AllocateLoadBalancerNodePorts = new(false)
		other.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: "203.0.113.1"}}
		for _, service := range []*v1.Service{other, asks, own, balancerService("x", "plain", 1, 80)} {
			s.create(service)
		}
		s.expect("asks", "203.0.113.2") // the first one has another controller given
		s.expect("own", "203.0.113.3")
		s.expect("other", "203.0.113.1")
		s.expect("plain", "192.0.2.1", "192.0.2.2")
		service, err := s.Fake.CoreV1().Services("x").Get(t.Context(), "own", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if mode := service.Status.LoadBalancer.Ingress[0].IPMode; mode == nil || *mode != v1.LoadBalancerIPModeVIP || service.Spec.Ports[0].NodePort != 0 {
			t.Errorf("%+v", service)
		}
	})
}

// TestAddressesAreReleased checks that what a Service leaves is there for others, and
// that the controller does not write what is settled.
func TestAddressesAreReleased(t *testing.T) {
	run(t, func(s scene) {
		s.configure(map[string]string{"office": "addresses: [198.51.100.1-198.51.100.2]"})
		for i, name := range []string{"one", "two", "three", "four"} {
			s.create(balancerService("x", name, 9-i, 80))
		}
		s.expect("one", "198.51.100.1")
		s.expect("two", "198.51.100.2")
		s.expect("three")
		s.update("one", func(service *v1.Service) {
			service.Spec.Type, service.Status.LoadBalancer = v1.ServiceTypeClusterIP, v1.LoadBalancerStatus{} // as the API server does
		})
		s.expect("one")
		s.expect("three", "198.51.100.1")
		if err := s.Fake.CoreV1().Services("x").Delete(t.Context(), "two", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		s.expect("three", "198.51.100.1")
		s.expect("four", "198.51.100.2")
		s.Fake.ClearActions()
		s.create(balancerService("x", "five", 1, 80))
		s.expect("five")
		for _, action := range s.Fake.Actions() {
			if action.GetVerb() == "patch" {
				t.Errorf("wrote %v", action)
			}
		}
	})
}

// TestAddressesStayOverRestarts checks that a controller that has given no address
// finds in the statuses which Service has which one, also where they contradict each
// other.
func TestAddressesStayOverRestarts(t *testing.T) {
	run(t, func(s scene) {
		held := func(name string, age int, ip string) *v1.Service {
			service := balancerService("x", name, age, 80)
			service.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: ip, IPMode: new(v1.LoadBalancerIPModeVIP)}}
			service.Annotations = map[string]string{Annotation: ip}
			return service
		}
		s.configure(map[string]string{"office": "addresses: [198.51.100.5-198.51.100.9]"})
		for _, service := range []*v1.Service{held("one", 9, "198.51.100.5"), held("two", 5, "198.51.100.7"), held("three", 3, "198.51.100.7")} {
			s.create(service)
		}
		s.expect("one", "198.51.100.5")
		s.expect("two", "198.51.100.7")
		s.expect("three", "198.51.100.6")
		s.expectEvents("Warning IPReleased The Service loses an address: 198.51.100.7 is that of Service two", "Normal IPAllocated Allocated 198.51.100.6")
		s.create(balancerService("x", "new", 99, 80)) // though it is the oldest
		s.expect("new", "198.51.100.8")
		s.expect("one", "198.51.100.5")
	})
}
