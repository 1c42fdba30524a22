package servicelb

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
	"github.com/coracle-io/coracle/internal/leaktest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Run(m)) }

// scene is a running controller on two nodes.
type scene struct {
	*testing.T
	*controllertest.Cluster
}

func run(t *testing.T, test func(scene)) {
	synctest.Test(t, func(t *testing.T) {
		s := scene{t, controllertest.New(t,
			machine("a", v1.ConditionTrue, v1.NodeAddress{Type: v1.NodeInternalIP, Address: "192.0.2.1"}),
			machine("b", v1.ConditionTrue, v1.NodeAddress{Type: v1.NodeInternalIP, Address: "192.0.2.2"}))}
		s.Cluster.Run(Descriptor(&Options{NodeAddresses: true, Reserved: []int{6443}, Ranges: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}}))
		synctest.Wait()
		test(s)
	})
}

func (s scene) create(service *v1.Service) {
	s.Helper()
	if _, err := s.Fake.CoreV1().Services(service.Namespace).Create(s.Context(), service, metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
}

func (s scene) update(name string, change func(*v1.Service)) {
	s.Helper()
	service, err := s.Fake.CoreV1().Services("x").Get(s.Context(), name, metav1.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	change(service)
	if _, err := s.Fake.CoreV1().Services("x").Update(s.Context(), service, metav1.UpdateOptions{}); err != nil {
		s.Fatal(err)
	}
}

// expect waits until the controller has no more work, and compares the addresses
// of a Service.
func (s scene) expect(name string, want ...string) {
	s.Helper()
	synctest.Wait()
	service, err := s.Fake.CoreV1().Services("x").Get(s.Context(), name, metav1.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	var got []string
	for _, ingress := range service.Status.LoadBalancer.Ingress {
		got = append(got, ingress.IP)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		s.Errorf("Service %s (-want +got)\n%s", name, diff)
	}
}

func (s scene) expectEvents(want ...string) {
	s.Helper()
	synctest.Wait()
	if diff := cmp.Diff(want, s.DrainEvents()); diff != "" {
		s.Errorf("events (-want +got)\n%s", diff)
	}
}

func TestServiceGetsAddressesOfNodes(t *testing.T) {
	run(t, func(s scene) {
		s.create(balancerService("x", "web", 9, 80))
		s.expect("web", "192.0.2.1", "192.0.2.2")
		s.expectEvents("Normal EnsuredLoadBalancer Ensured load balancer")
		// A node that is no longer ready does not serve.
		if _, err := s.Fake.CoreV1().Nodes().UpdateStatus(s.Context(), machine("b", v1.ConditionUnknown, v1.NodeAddress{Type: v1.NodeInternalIP, Address: "192.0.2.2"}), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		s.expect("web", "192.0.2.1")
		// The controller reverts an address that another client has written.
		s.update("web", func(service *v1.Service) { service.Status.LoadBalancer.Ingress[0].IP = "203.0.113.1" })
		s.expect("web", "192.0.2.1")
		if err := s.Fake.CoreV1().Nodes().Delete(s.Context(), "b", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		s.expect("web", "192.0.2.1")
	})
}

func TestServicesOfOthersAreLeftAlone(t *testing.T) {
	run(t, func(s scene) {
		other, own := balancerService("x", "other", 1, 80), balancerService("x", "own", 1, 81)
		other.Spec.LoadBalancerClass, own.Spec.LoadBalancerClass = new("example.com/lb"), new(Class)
		other.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: "203.0.113.1"}}
		plain := balancerService("x", "plain", 1, 82)
		plain.Spec.Type = v1.ServiceTypeNodePort
		for _, service := range []*v1.Service{other, own, plain} {
			s.create(service)
		}
		s.expect("other", "203.0.113.1")
		s.expect("own", "192.0.2.1", "192.0.2.2")
		s.expect("plain")
	})
}

func TestServiceOfAnotherTypeLosesTheAddresses(t *testing.T) {
	run(t, func(s scene) {
		s.create(balancerService("x", "web", 9, 80))
		s.expect("web", "192.0.2.1", "192.0.2.2")
		s.expectEvents("Normal EnsuredLoadBalancer Ensured load balancer")
		s.update("web", func(service *v1.Service) { service.Spec.Type = v1.ServiceTypeClusterIP })
		s.expect("web")
		s.expectEvents("Normal DeletedLoadBalancer Deleted load balancer")
		foreign := balancerService("x", "foreign", 9, 80)
		foreign.Spec.Type = v1.ServiceTypeClusterIP
		foreign.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: "203.0.113.1"}}
		s.create(foreign)
		s.expect("foreign", "203.0.113.1")
	})
}

func TestPortsOfOlderServicesAndPods(t *testing.T) {
	run(t, func(s scene) {
		s.create(balancerService("x", "old", 9, 80))
		s.expectEvents("Normal EnsuredLoadBalancer Ensured load balancer")
		s.create(balancerService("x", "young", 1, 80))
		s.expect("young")
		s.expectEvents("Warning SyncLoadBalancerFailed Error syncing load balancer: failed to ensure load balancer: port 80/TCP is that of Service old, which is older")
		if err := s.Fake.CoreV1().Services("x").Delete(s.Context(), "old", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		s.expect("young", "192.0.2.1", "192.0.2.2")
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "y", Name: "server"}, Spec: v1.PodSpec{NodeName: "a", Containers: []v1.Container{
			{Ports: []v1.ContainerPort{{ContainerPort: 8080, HostPort: 80}, {ContainerPort: 81, HostPort: 81, HostIP: "127.0.0.1"}}}}}}
		if _, err := s.Fake.CoreV1().Pods("y").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		s.expect("young", "192.0.2.2")
		pod.Status.Phase = v1.PodSucceeded
		if _, err := s.Fake.CoreV1().Pods("y").UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		s.expect("young", "192.0.2.1", "192.0.2.2")
	})
}

func TestLocalServiceHasNodesWithReadyEndpoints(t *testing.T) {
	run(t, func(s scene) {
		service := balancerService("x", "web", 1, 80)
		service.Spec.ExternalTrafficPolicy = v1.ServiceExternalTrafficPolicyLocal
		s.create(service)
		s.expect("web")
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
			Endpoints: []discoveryv1.Endpoint{
				{NodeName: new("b")}, {NodeName: new("a"), Conditions: discoveryv1.EndpointConditions{Ready: new(false)}},
			},
		}
		slices := s.Fake.DiscoveryV1().EndpointSlices("x")
		if _, err := slices.Create(t.Context(), slice, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		s.expect("web", "192.0.2.2")
		if err := slices.Delete(t.Context(), "web-1", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		s.expect("web")
		if events := strings.Join(s.DrainEvents(), "\n"); strings.Count(events, "no node has a ready endpoint") != 2 {
			t.Errorf("events:\n%s", events)
		}
	})
}

func TestSettledServicesAreNotWritten(t *testing.T) {
	run(t, func(s scene) {
		s.create(balancerService("x", "web", 9, 80))
		synctest.Wait()
		s.Fake.ClearActions()
		s.create(balancerService("x", "api", 1, 6443))
		s.expect("api")
		for _, action := range s.Fake.Actions() {
			if action.GetVerb() == "patch" {
				t.Errorf("wrote %v", action)
			}
		}
	})
}

// TestNodePortsOfOthers checks that a Service does not take traffic for the node
// port of another Service, whichever is older.
func TestNodePortsOfOthers(t *testing.T) {
	run(t, func(s scene) {
		own := balancerService("x", "own", 9, 30090)
		own.Spec.Ports[0].NodePort = 30090
		s.create(own)
		s.expect("own", "192.0.2.1", "192.0.2.2")
		s.DrainEvents()
		ported := balancerService("y", "ported", 8, 80)
		ported.Spec.Type, ported.Spec.Ports[0].NodePort, ported.Spec.HealthCheckNodePort = v1.ServiceTypeNodePort, 30080, 30081
		s.create(ported)
		for name, port := range map[string]int32{"node-port": 30080, "health-check": 30081} {
			s.create(balancerService("x", name, 7, port))
			s.expect(name)
			s.expectEvents(fmt.Sprintf("Warning SyncLoadBalancerFailed Error syncing load balancer: failed to ensure load balancer: port %d/TCP is a node port of a Service in another namespace", port))
		}
		s.create(udp(balancerService("x", "udp", 7, 30080)))
		s.expect("udp", "192.0.2.1", "192.0.2.2")
		s.create(balancerService("x", "old", 20, 30080))
		s.expect("old")
		s.DrainEvents()
		if err := s.Fake.CoreV1().Services("x").Delete(t.Context(), "old", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		s.expect("node-port")
		if err := s.Fake.CoreV1().Services("y").Delete(t.Context(), "ported", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		s.expect("node-port", "192.0.2.1", "192.0.2.2")
		s.expect("health-check", "192.0.2.1", "192.0.2.2")
	})
}

// TestAddressesOfLostNodesAreReleased checks that a Service that is no longer of
// type LoadBalancer loses its addresses though no node has them any more.
func TestAddressesOfLostNodesAreReleased(t *testing.T) {
	run(t, func(s scene) {
		s.create(balancerService("x", "web", 9, 80))
		s.expect("web", "192.0.2.1", "192.0.2.2")
		for _, node := range []string{"a", "b"} {
			if err := s.Fake.CoreV1().Nodes().Delete(t.Context(), node, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			s.update("web", func(service *v1.Service) { service.Spec.Type = v1.ServiceTypeClusterIP })
		}
		s.expect("web")
		service, err := s.Fake.CoreV1().Services("x").Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(service.Annotations) > 0 {
			t.Errorf("annotations %v are left", service.Annotations)
		}
		service.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: "203.0.113.1"}}
		if _, err := s.Fake.CoreV1().Services("x").UpdateStatus(t.Context(), service, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		s.expect("web", "203.0.113.1")
	})
}

// TestAnnotationGoesWithTheType checks that a Service whose addresses the API server
// took with the type loses the annotation, too.
func TestAnnotationGoesWithTheType(t *testing.T) {
	run(t, func(s scene) {
		s.create(balancerService("x", "web", 9, 80))
		s.expect("web", "192.0.2.1", "192.0.2.2")
		s.update("web", func(service *v1.Service) {
			service.Spec.Type = v1.ServiceTypeClusterIP
			service.Status.LoadBalancer = v1.LoadBalancerStatus{}
		})
		s.expect("web")
		service, err := s.Fake.CoreV1().Services("x").Get(s.Context(), "web", metav1.GetOptions{})
		if err != nil {
			s.Fatal(err)
		}
		if len(service.Annotations) > 0 {
			s.Errorf("annotations %v are left", service.Annotations)
		}
	})
}
