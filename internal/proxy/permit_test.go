package proxy

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
)

// machine is a Ports with addresses and ports that programs have, by number.
type machine struct {
	addresses []netip.Addr
	programs  []uint16
	err       error
	claimed   map[LocalPort]Claim
	claims    int
}

func (m *machine) Addresses() ([]netip.Addr, error) { return m.addresses, m.err }

func (m *machine) Claim(wanted map[LocalPort]Claim) (map[LocalPort]Obstacle, error) {
	m.claimed, m.claims = wanted, m.claims+1
	obstacles := map[LocalPort]Obstacle{}
	for p := range wanted {
		if slices.Contains(m.programs, p.Port) {
			obstacles[p] = InUse
		}
	}
	return obstacles, m.err
}

func (m *machine) Release() { m.claimed = nil }

// permitLab returns a permitter on a machine whose node object has 192.0.2.10.
func permitLab() (p *permitter, m *machine, events *record.FakeRecorder) {
	m, events = &machine{addresses: addrs("127.0.0.1", "192.0.2.10", "172.17.0.1")}, record.NewFakeRecorder(100)
	p = &permitter{state: newState("n1"), nodeName: "n1", ports: m, reserved: []int{6443}, events: events}
	p.state.setNode(nodeAt("n1", "192.0.2.10"))
	return p, m, events
}

// told returns the events since the last call.
func told(events *record.FakeRecorder) []string {
	var list []string
	for len(events.Events) > 0 {
		list = append(list, <-events.Events)
	}
	slices.Sort(list)
	return list
}

// webService returns a Service with a node port and an address of the node, and its
// slice with an endpoint.
func webService(endpoints ...string) (*v1.Service, *discoveryv1.EndpointSlice) {
	web := service(func(s *v1.ServiceSpec) {
		s.Type, s.Ports[0].NodePort, s.ExternalIPs = v1.ServiceTypeNodePort, 30080, []string{"172.17.0.1"}
	})
	web.UID = "web"
	of := slice("http", endpoints...)
	of.Namespace, of.Labels = web.Namespace, map[string]string{discoveryv1.LabelServiceName: web.Name}
	return web, of
}

// TestPortsOfPrograms follows a program that starts on the ports of a pod and a
// Service, and ends.
func TestPortsOfPrograms(t *testing.T) {
	p, m, events := permitLab()
	web, of := webService("10.244.0.8 rs")
	p.state.setService(web)
	p.state.setSlice(of)
	p.state.setPod(hostPortPod("pod", "10.244.0.7", v1.ContainerPort{HostPort: 8080}, v1.ContainerPort{HostPort: 8081}))
	check := func(when string, want string, wantEvents ...string) {
		t.Helper()
		rules := p.rules(t.Context())
		var got string
		for name, port := range rules.Services.All() {
			got = fmt.Sprintf("%s %d %v %d", name.Name, port.NodePort, port.External, len(rules.HostPorts))
		}
		if got != want {
			t.Errorf("%s: %s, want %s", when, got, want)
		}
		if got := told(events); !slices.Equal(got, wantEvents) {
			t.Errorf("%s: events\n%q\nwant\n%q", when, got, wantEvents)
		}
		if p.changed(t.Context()) {
			t.Errorf("%s: changed, though nothing did", when)
		}
	}
	check("alone", "web 30080 [172.17.0.1] 2")
	m.programs = []uint16{8080, 80, 30080}
	if !p.changed(t.Context()) {
		t.Error("programs were not noticed")
	}
	taken := "another program on the node, or another cluster there, has it"
	check("with programs", "web 0 [] 1",
		"Warning HostPortConflict Can't open host port 8080/TCP on node n1, skipping it: "+taken,
		"Warning PortConflict Can't open node port 30080/TCP on node n1, skipping it: "+taken,
		"Warning PortConflict Can't open port 80/TCP of 172.17.0.1 on node n1, skipping it: "+taken,
	)
	before := p.rules(t.Context())
	for name, port := range p.rules(t.Context()).Services.All() {
		if before.Services.Get(name) != port {
			t.Error("a Service that did not change is another value")
		}
	}
	check("again", "web 0 [] 1")
	m.programs = nil
	if !p.changed(t.Context()) {
		t.Error("the end of programs was not noticed")
	}
	check("after programs", "web 30080 [172.17.0.1] 2")
	m.addresses = addrs("127.0.0.1", "192.0.2.10")
	if !p.changed(t.Context()) {
		t.Error("the loss of an address was not noticed")
	}
	m.programs = []uint16{80}
	check("without the address", "web 30080 [172.17.0.1] 2")
}

// TestPortsOfNeighbours checks that a port of another cluster is nobody's as soon
// as the other cluster has it.
func TestPortsOfNeighbours(t *testing.T) {
	p, _, events := permitLab()
	var neighbours []int
	p.neighbours = func() []int { return neighbours }
	p.state.setPod(hostPortPod("pod", "10.244.0.7", v1.ContainerPort{HostPort: 6443}, v1.ContainerPort{HostPort: 6444}))
	if got := toPods(p.rules(t.Context()).HostPorts); len(got) != 1 || got["host port 6444/TCP"] == "" {
		t.Errorf("the pod gets %v", got)
	}
	neighbours = []int{6444}
	if !p.changed(t.Context()) {
		t.Error("another cluster was not noticed")
	}
	if got := p.rules(t.Context()).HostPorts; len(got) != 0 {
		t.Errorf("the pod gets %v", got)
	}
	want := []string{
		"Warning HostPortConflict Can't open host port 6443/TCP on node n1, skipping it: the cluster itself serves on it",
		"Warning HostPortConflict Can't open host port 6444/TCP on node n1, skipping it: another cluster on the node serves on it",
	}
	if got := told(events); !slices.Equal(got, want) {
		t.Errorf("events\n%q\nwant\n%q", got, want)
	}
}

// TestEndpointListensItself checks that nothing is told if what has the port is the
// Service's own endpoint in the host's network, and that the port is not held.
func TestEndpointListensItself(t *testing.T) {
	p, m, events := permitLab()
	web, of := webService("192.0.2.10 rs @n1")
	web.Spec.ExternalIPs, web.Spec.Ports[0].Port, web.Spec.Ports[0].NodePort = []string{"192.0.2.10"}, 8080, 0
	p.state.setService(web)
	p.state.setSlice(of)
	m.programs = []uint16{8080}
	for _, port := range p.rules(t.Context()).Services.All() {
		if len(port.External) != 0 {
			t.Errorf("a rule for the port of the endpoint itself: %v", port.External)
		}
	}
	for key, claim := range m.claimed {
		if claim.Hold != DoNotHold {
			t.Errorf("%v is reserved, and the pod in the host's network could not restart", key)
		}
	}
	if got := told(events); len(got) != 0 {
		t.Errorf("events %q", got)
	}
}

// TestPodIsToldOnce checks that a pod is told once, and another one of its name
// again.
func TestPodIsToldOnce(t *testing.T) {
	p, m, events := permitLab()
	m.programs = []uint16{8080}
	pod := hostPortPod("pod", "10.244.0.7", v1.ContainerPort{HostPort: 8080})
	for i, uid := range []string{"1", "1", "2"} {
		again := pod.DeepCopy()
		again.UID, again.ResourceVersion = types.UID(uid), fmt.Sprint(i)
		p.state.setPod(again)
		p.rules(t.Context())
	}
	if got := told(events); len(got) != 2 {
		t.Errorf("%d events: %q", len(got), got)
	}
}

// TestManyConflictsAreToldInPart checks that a pod that gets none of very many ports does
// not keep the events of others away.
func TestManyConflictsAreToldInPart(t *testing.T) {
	p, m, events := permitLab()
	var ports []v1.ContainerPort
	for port := range int32(50) {
		ports, m.programs = append(ports, v1.ContainerPort{HostPort: 8000 + port}), append(m.programs, uint16(8000+port))
	}
	p.state.setPod(hostPortPod("pod", "10.244.0.7", ports...))
	for range 2 {
		p.rules(t.Context())
	}
	if got := told(events); len(got) != mostTold {
		t.Errorf("%d events: %q", len(got), got)
	}
}

// TestUnknownPorts checks that rules are made if the kernel cannot be asked, without
// the ports that are known to be taken.
func TestUnknownPorts(t *testing.T) {
	p, m, _ := permitLab()
	m.err, m.addresses, m.programs = errors.New("no answer"), nil, []uint16{8081}
	p.state.setPod(hostPortPod("pod", "10.244.0.7", v1.ContainerPort{HostPort: 8080}, v1.ContainerPort{HostPort: 8081}, v1.ContainerPort{HostPort: 6443}))
	if got := toPods(p.rules(t.Context()).HostPorts); len(got) != 1 || got["host port 8080/TCP"] == "" {
		t.Errorf("the pod gets %v", got)
	}
	if p.changed(t.Context()) {
		t.Error("changed, though nothing is known")
	}
}

// TestBalancersOfOtherAddresses checks that the node is looked at as soon as a Service, of
// which it has only a port for health checks, gets an address: it may be the node's later.
func TestBalancersOfOtherAddresses(t *testing.T) {
	p, m, _ := permitLab()
	web := service(func(s *v1.ServiceSpec) {
		s.Type, s.ExternalTrafficPolicy, s.HealthCheckNodePort = v1.ServiceTypeLoadBalancer, v1.ServiceExternalTrafficPolicyLocal, 30090
	})
	p.state.setService(web)
	p.rules(t.Context())
	if !p.idle {
		t.Error("a port for health checks makes the proxy look at the node")
	}
	web = web.DeepCopy()
	web.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: "203.0.113.7"}}
	p.state.setService(web)
	p.rules(t.Context())
	if p.changed(t.Context()) {
		t.Error("changed, though nothing did")
	}
	m.addresses, m.programs = append(m.addresses, netip.MustParseAddr("203.0.113.7")), []uint16{80}
	if !p.changed(t.Context()) {
		t.Error("the address of the Service was not noticed at the node")
	}
	for _, port := range p.rules(t.Context()).Services.All() {
		if len(port.LoadBalancer) != 0 {
			t.Errorf("the Service has %v, where a program listens", port.LoadBalancer)
		}
	}
}

// TestRunsBeginAnew checks that a proxy that runs again makes the rules of all objects, even
// if a panic has ended the making of the last ones half-way, and claims their ports again,
// which have been released.
func TestRunsBeginAnew(t *testing.T) {
	m := &machine{addresses: addrs("127.0.0.1", "192.0.2.10", "172.17.0.1")}
	p := New(Config{NodeName: "n1", Ports: m})
	web, of := webService("10.244.0.8 rs")
	p.state.setService(web)
	p.state.setSlice(of)
	name := PortName{NamespacedName: types.NamespacedName{Namespace: web.Namespace, Name: web.Name}, Port: "http", Protocol: v1.ProtocolTCP, Family: v1.IPv4Protocol}
	p.permit.rules(t.Context())
	of = sliceFor(web.Name, "10.244.0.9 rs")
	of.Name = ""
	p.state.setSlice(of)
	p.state.compute(name.NamespacedName, map[PortName]bool{}) // and a panic
	m.Release()
	p.begin()
	if got := p.permit.rules(t.Context()).Services.Get(name); got == nil || !slices.Equal(got.Cluster, addrPorts("10.244.0.9:8080")) {
		t.Errorf("the port of the Service is %+v", got)
	}
	if len(m.claimed) != 2 {
		t.Errorf("the ports %v are claimed, want a node port and one of an address", m.claimed)
	}
}

// TestNothingIsAsked checks that the kernel is left alone while the rules take no
// ports of the node.
func TestNothingIsAsked(t *testing.T) {
	p, m, _ := permitLab()
	p.state.setService(&v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "y"}, Spec: v1.ServiceSpec{ClusterIP: "10.96.0.7", Ports: []v1.ServicePort{{Port: 80}}}})
	p.rules(t.Context())
	if before := m.claims; p.changed(t.Context()) || m.claims != before {
		t.Error("the kernel was asked")
	}
}
