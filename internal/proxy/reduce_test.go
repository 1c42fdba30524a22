package proxy

import (
	"reflect"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

const unused = 1000 // bytes, in fields that the proxy does not read

// reducedOf returns what the proxy keeps of an object, which must be small.
func reducedOf[T interface{ Size() int }](t *testing.T, obj T) T {
	t.Helper()
	kept, err := reduce(obj)
	if err != nil {
		t.Fatal(err)
	}
	if n := kept.(T).Size(); n >= unused {
		t.Errorf("the node keeps %d bytes: %v", n, kept)
	}
	return kept.(T)
}

// The proxy makes the same rules of what it keeps as of whole objects.
func TestReducedServices(t *testing.T) {
	large := strings.Repeat("x", unused)
	web := service(func(s *v1.ServiceSpec) {
		s.Type, s.ClusterIPs, s.Selector = v1.ServiceTypeLoadBalancer, []string{"10.96.0.20", "2001:db8::20"}, map[string]string{"app": large}
		s.Ports = []v1.ServicePort{{Name: "http", Protocol: v1.ProtocolTCP, AppProtocol: &large, Port: 80, NodePort: 30080}, {Name: "dns", Protocol: v1.ProtocolUDP, Port: 53, NodePort: 30053}}
		s.ExternalIPs, s.LoadBalancerSourceRanges = []string{"203.0.113.1", "2001:db8::1"}, []string{"192.0.2.0/24"}
		s.SessionAffinity, s.SessionAffinityConfig = v1.ServiceAffinityClientIP, &v1.SessionAffinityConfig{ClientIP: &v1.ClientIPConfig{TimeoutSeconds: ptr.To(int32(7))}}
		s.ExternalTrafficPolicy, s.HealthCheckNodePort = v1.ServiceExternalTrafficPolicyLocal, 30999
		s.InternalTrafficPolicy = ptr.To(v1.ServiceInternalTrafficPolicyLocal)
	})
	web.Annotations, web.Labels = map[string]string{"a": large}, map[string]string{"a": large}
	web.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: "203.0.113.2", Hostname: large}, {IP: "203.0.113.3", IPMode: ptr.To(v1.LoadBalancerIPModeProxy)}}
	of := slice("http", "10.0.0.1 rs @n1 >z1", "10.0.0.2 st @n2 >z2", "10.0.0.3 - @n1 >>n1")
	of.Namespace, of.Name = web.Namespace, "web-1"
	of.Labels = map[string]string{discoveryv1.LabelServiceName: "web", "a": large}
	of.Annotations = map[string]string{v1.EndpointsLastChangeTriggerTime: "2026-01-01T00:00:00Z", "a": large}
	for i := range of.Endpoints {
		of.Endpoints[i].TargetRef, of.Endpoints[i].Zone, of.Endpoints[i].Hostname = &v1.ObjectReference{Name: large}, &large, &large
	}
	node := Node{Name: "n1", Zone: "z1"}
	keptService, keptSlice := reducedOf(t, web), reducedOf(t, of)
	got, want := serviceRules(keptService, []*discoveryv1.EndpointSlice{keptSlice}, node), serviceRules(web, []*discoveryv1.EndpointSlice{of}, node)
	if len(want) != 4 || !reflect.DeepEqual(got, want) {
		t.Errorf("rules\n%v\nwant\n%v", got, want)
	}
	if sizeOf(keptService, []*discoveryv1.EndpointSlice{keptSlice}) != sizeOf(web, []*discoveryv1.EndpointSlice{of}) {
		t.Error("the size differs")
	}
	if serviceOf(keptSlice) != serviceOf(of) || keptSlice.Annotations[v1.EndpointsLastChangeTriggerTime] != of.Annotations[v1.EndpointsLastChangeTriggerTime] {
		t.Errorf("kept %v", keptSlice.ObjectMeta)
	}
	if web.Annotations == nil || of.Endpoints[0].TargetRef == nil {
		t.Error("the object itself was changed")
	}
	for _, label := range []string{v1.IsHeadlessService, otherProxy} {
		other := web.DeepCopy()
		other.Labels[label] = ""
		if proxied(reducedOf(t, other)) {
			t.Errorf("a Service with the label %s is proxied", label)
		}
		others := of.DeepCopy()
		others.Labels[label] = ""
		if got := serviceOf(reducedOf(t, others)); got.Name != "" {
			t.Errorf("a slice with the label %s has endpoints of %s", label, got)
		}
	}
}

// The rules follow what the proxy keeps of nodes as they follow whole ones.
func TestReducedNodes(t *testing.T) {
	node := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{v1.LabelTopologyZone: "z1", "a": strings.Repeat("x", unused)}, DeletionTimestamp: &metav1.Time{}},
		Spec:       v1.NodeSpec{PodCIDRs: []string{"10.244.1.0/24"}, Taints: []v1.Taint{{Key: "ToBeDeletedByClusterAutoscaler"}}},
		Status: v1.NodeStatus{
			Addresses: []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "192.0.2.10"}},
			Images:    []v1.ContainerImage{{Names: []string{strings.Repeat("x", unused)}}},
		},
	}
	read := func(node *v1.Node) (*state, bool) {
		s := newState("n1")
		s.setNode(node)
		return s, isEligible(node)
	}
	got, eligible := read(reducedOf(t, node))
	want, _ := read(node)
	if eligible || got.node != want.node || !reflect.DeepEqual(got.nodes, want.nodes) || !reflect.DeepEqual(got.primary, want.primary) || !reflect.DeepEqual(got.podCIDRs, want.podCIDRs) {
		t.Errorf("eligible %v, node %v, addresses %v, primary %v, pods in %v", eligible, got.node, got.nodes, got.primary, got.podCIDRs)
	}
	if len(want.primary) != 1 || len(want.podCIDRs) != 1 || want.node.Zone != "z1" {
		t.Errorf("the whole node means %v, %v, %v", want.primary, want.podCIDRs, want.node)
	}
	other := cache.DeletedFinalStateUnknown{Key: "x/one"}
	if kept, err := reduce(other); err != nil || kept != other {
		t.Errorf("another object: %v, %v", kept, err)
	}
}
