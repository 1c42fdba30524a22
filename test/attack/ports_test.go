package attack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-io/coracle/internal/freeport"
)

// server returns a pod with a web server, which answers with the pod's name, and
// host ports that lead to it.
func server(name string, hostPorts ...v1.ContainerPort) *v1.Pod {
	for i := range hostPorts {
		hostPorts[i].ContainerPort = 80
	}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Ports: hostPorts}}},
	}
}

// nodeAddress returns the address of the cluster's node.
func nodeAddress(t *testing.T, c *cluster) string {
	t.Helper()
	nodes, err := c.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(nodes.Items) == 0 {
		t.Fatalf("no node: %v", err)
	}
	return nodes.Items[0].Status.Addresses[0].Address
}

// answer returns what a web server at an address says to the node itself.
func answer(address string, port int) (string, error) {
	client := http.Client{Timeout: maxAnswer, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get("http://" + net.JoinHostPort(address, strconv.Itoa(port)))
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<10))
	return string(text), err
}

// answers waits until a pod answers at an address to the node.
func answers(t *testing.T, address string, port int, name string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s answering at %s:%d", name, address, port), func() error {
		text, err := answer(address, port)
		if err == nil && !strings.Contains(text, name) {
			err = fmt.Errorf("the answer is %q", text)
		}
		return err
	})
}

// toldAbout waits for an event about an object, with a reason and a part of its
// message.
func toldAbout(t *testing.T, c *cluster, namespace, name, reason, part string) {
	t.Helper()
	eventually(t, "event "+reason+" about "+name, func() error {
		events, err := c.client.CoreV1().Events(namespace).List(context.Background(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + name + ",reason=" + reason})
		if err != nil {
			return err
		}
		var messages []string
		for _, e := range events.Items {
			if strings.Contains(e.Message, part) {
				return nil
			}
			messages = append(messages, e.Message)
		}
		return fmt.Errorf("no event says %q: %q", part, messages)
	})
}

// TestHostIPOfOthers checks that a pod whose hostIP is the address of another pod,
// of a Service without endpoints or of a host outside gets no connections to it.
func TestHostIPOfOthers(t *testing.T) {
	c := node(t)
	_, namespace := c.tenant(t, "edit")
	_, attackers := c.tenant(t, "edit")
	victim, client := c.runPod(t, namespace, server("victim")), c.runPod(t, namespace, server("client"))
	service, err := c.client.CoreV1().Services(namespace).Create(t.Context(), &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "empty"}, Spec: v1.ServiceSpec{Selector: map[string]string{"app": "nothing"}, Ports: []v1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const web = 80             // the port of others' addresses, not of the machine
	_, outside := neighbour(t) // nothing listens there
	own := freeport.For(t)
	addresses := []string{victim.Status.PodIP, service.Spec.ClusterIP, outside}
	ports := []v1.ContainerPort{{HostPort: int32(own)}}
	for _, address := range addresses {
		ports = append(ports, v1.ContainerPort{HostPort: web, HostIP: address})
	}
	thief := c.runPod(t, attackers, server("thief", ports...))
	answers(t, nodeAddress(t, c), own, "thief") // its rules are all in one transaction
	for _, address := range addresses {
		fromPod, podErr := c.inPod(client, "busybox", "timeout", "5", "wget", "-qO-", "http://"+address)
		fromNode, nodeErr := answer(address, 80)
		for from, text := range map[string]string{"a pod": fromPod, "the node": fromNode} {
			if strings.Contains(text, "thief") {
				t.Errorf("connections of %s to %s reach the pod that declares it as its hostIP", from, address)
			}
		}
		if address == victim.Status.PodIP && (!strings.Contains(fromPod, "victim") || !strings.Contains(fromNode, "victim")) {
			t.Errorf("the victim answers %q (%v) to a pod and %q (%v) to the node", fromPod, podErr, fromNode, nodeErr)
		}
		toldAbout(t, c, attackers, thief.Name, "HostPortConflict", "host port 80/TCP of "+address)
	}
}

// TestPortsOfOtherClustersAndPrograms checks that neither a host port nor an external address takes
// the port of another cluster's API server or of any other program on the machine,
// and that a program cannot lose its port later either: it is told at its start.
func TestPortsOfOtherClustersAndPrograms(t *testing.T) {
	c, other := node(t), controlPlane(t)
	config, namespace := c.tenant(t, "edit")
	tenant, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	address := nodeAddress(t, c)
	_, secure, err := net.SplitHostPort(other.address())
	if err != nil {
		t.Fatal(err)
	}
	apiServer, err := strconv.Atoi(secure)
	if err != nil {
		t.Fatal(err)
	}
	taken, own := freeport.For(t), freeport.For(t)
	program := serveText(t, taken, "program")
	for name, port := range map[string]int{"api": apiServer, "program": taken} {
		if _, err := tenant.CoreV1().Services(namespace).Create(t.Context(), &v1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       v1.ServiceSpec{Selector: map[string]string{"app": "thief"}, ExternalIPs: []string{address}, Ports: []v1.ServicePort{{Port: int32(port), TargetPort: intstr.FromInt32(80)}}},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	reached := func(when string) {
		t.Helper()
		for _, at := range []string{address, "127.0.0.1"} {
			if text, err := answer(at, taken); text != "program" {
				t.Errorf("%s, the program is not reached at %s:%d: %q, %v", when, at, taken, text, err)
			}
		}
		other.checkNotRestarted(t) // connects to it
	}
	toldAbout(t, c, namespace, "api", "PortConflict", "another cluster on the node serves on it")
	toldAbout(t, c, namespace, "program", "PortConflict", "another program on the node")
	reached("after Services with its port")
	c.runPod(t, namespace, server("thief", v1.ContainerPort{HostPort: int32(apiServer)}, v1.ContainerPort{HostPort: int32(taken)}, v1.ContainerPort{HostPort: int32(own)}))
	answers(t, address, own, "thief")
	for _, port := range []string{secure, strconv.Itoa(taken)} {
		toldAbout(t, c, namespace, "thief", "HostPortConflict", "host port "+port+"/TCP")
	}
	reached("after a pod with its port")
	// Once the program has ended for good, its port is anybody's, and from then on
	// the pod's alone.
	if err := program.Close(); err != nil {
		t.Fatal(err)
	}
	answers(t, "127.0.0.1", taken, "thief")
	listener, err := net.Listen("tcp", fmt.Sprintf(":%d", taken))
	if err == nil {
		_ = listener.Close()
	}
	if !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a program that starts on the pod's port learns nothing: %v", err)
	}
}

// serveText starts a web server of this process, on all addresses, that answers with
// a text.
func serveText(t *testing.T, port int, text string) *http.Server {
	t.Helper()
	listener, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		t.Fatal(err)
	}
	program := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })}
	go func() { _ = program.Serve(listener) }()
	t.Cleanup(func() { _ = program.Close() })
	return program
}

// TestInitContainerWithAnothersHostPort checks that an init container that has ended
// does not give its pod a host port that it declares, and which is another pod's.
func TestInitContainerWithAnothersHostPort(t *testing.T) {
	c := node(t)
	_, namespace := c.tenant(t, "edit")
	_, attackers := c.tenant(t, "edit")
	address, port, own := nodeAddress(t, c), freeport.For(t), freeport.For(t)
	c.runPod(t, namespace, server("victim", v1.ContainerPort{HostPort: int32(port)}))
	answers(t, address, port, "victim")
	thief := server("thief", v1.ContainerPort{HostPort: int32(own)})
	thief.Spec.InitContainers = []v1.Container{{
		Name: "init", Image: image, Command: []string{"busybox", "true"}, Ports: []v1.ContainerPort{{HostPort: int32(port), ContainerPort: 80}},
	}}
	c.runPod(t, attackers, thief)
	answers(t, address, own, "thief")
	for _, at := range []string{address, "127.0.0.1"} {
		for range 10 {
			if text, err := answer(at, port); !strings.Contains(text, "victim") {
				t.Fatalf("at %s:%d, the pod with the host port is not reached: %q, %v", at, port, text, err)
			}
		}
	}
}

// TestPortsOfThePodsOfOthers checks that a Service does not take a host port or a
// node port of others by an external address, whichever was there first, and that a
// host port does not take a node port.
func TestPortsOfThePodsOfOthers(t *testing.T) {
	c := node(t)
	_, namespace := c.tenant(t, "edit")
	config, attackers := c.tenant(t, "edit")
	tenant, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	address, port, own := nodeAddress(t, c), freeport.For(t), freeport.For(t)
	victim := c.runPod(t, namespace, server("victim", v1.ContainerPort{HostPort: int32(port)}))
	service, err := c.client.CoreV1().Services(namespace).Create(t.Context(), &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "victim"},
		Spec:       v1.ServiceSpec{Type: v1.ServiceTypeNodePort, Selector: victim.Labels, Ports: []v1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	nodePort := int(service.Spec.Ports[0].NodePort)
	answers(t, address, nodePort, "victim")
	for name, number := range map[string]int{"host-port": port, "node-port": nodePort} {
		if _, err := tenant.CoreV1().Services(attackers).Create(t.Context(), &v1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       v1.ServiceSpec{Selector: map[string]string{"app": "thief"}, ExternalIPs: []string{address}, Ports: []v1.ServicePort{{Port: int32(number), TargetPort: intstr.FromInt32(80)}}},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	c.runPod(t, attackers, server("thief", v1.ContainerPort{HostPort: int32(own)}, v1.ContainerPort{HostPort: int32(nodePort), HostIP: address}))
	answers(t, address, own, "thief")
	toldAbout(t, c, attackers, "host-port", "PortConflict", "it is the host port of a pod")
	toldAbout(t, c, attackers, "thief", "HostPortConflict", "it is the node port of a Service")
	for _, number := range []int{port, nodePort} {
		for range 10 {
			if text, err := answer(address, number); !strings.Contains(text, "victim") {
				t.Fatalf("at %s:%d, the pod is not reached: %q, %v", address, number, text, err)
			}
		}
	}
	// The victim's next pod, which is younger than the thief, has the port again.
	if err := c.client.CoreV1().Pods(namespace).Delete(t.Context(), victim.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		t.Fatal(err)
	}
	c.runPod(t, namespace, server("victim-2", v1.ContainerPort{HostPort: int32(port)}))
	answers(t, address, port, "victim-2")
}

// TestTenantWritesEndpoints checks that a tenant cannot choose the addresses to
// which Services lead: neither endpoints nor the addresses of a load balancer.
func TestTenantWritesEndpoints(t *testing.T) {
	c := controlPlane(t)
	config, namespace := c.tenant(t, "edit")
	tenant, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	web, err := tenant.CoreV1().Services(namespace).Create(t.Context(), &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: v1.ServiceSpec{Type: v1.ServiceTypeLoadBalancer, Ports: []v1.ServicePort{{Port: 80}}},
		Status: v1.ServiceStatus{LoadBalancer: v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{IP: "198.51.100.7"}}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(web.Status.LoadBalancer.Ingress) != 0 {
		t.Errorf("a Service is created with the addresses %v", web.Status.LoadBalancer.Ingress)
	}
	web.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: "198.51.100.7"}}
	_, err = tenant.CoreV1().Services(namespace).UpdateStatus(t.Context(), web, metav1.UpdateOptions{})
	checkRefused(t, "writing the addresses of a load balancer", err, http.StatusForbidden)
	_, err = tenant.CoreV1().Endpoints(namespace).Create(t.Context(), &v1.Endpoints{ //nolint:staticcheck // the deprecated kind leads to the same rules
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Subsets:    []v1.EndpointSubset{{Addresses: []v1.EndpointAddress{{IP: "198.51.100.7"}}, Ports: []v1.EndpointPort{{Port: 80}}}}, //nolint:staticcheck // deprecated, and served
	}, metav1.CreateOptions{})
	checkRefused(t, "writing endpoints", err, http.StatusForbidden)
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "web", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"198.51.100.7"}}},
	}
	_, err = tenant.DiscoveryV1().EndpointSlices(namespace).Create(t.Context(), slice, metav1.CreateOptions{})
	checkRefused(t, "writing an EndpointSlice", err, http.StatusForbidden)
	// An administrator can, though not with addresses of every node itself.
	for _, address := range []string{"127.0.0.1", "169.254.169.254", "::ffff:127.0.0.1"} {
		slice.Endpoints[0].Addresses = []string{address}
		_, err = c.client.DiscoveryV1().EndpointSlices(namespace).Create(t.Context(), slice, metav1.CreateOptions{})
		checkRefused(t, "an endpoint at "+address, err, http.StatusUnprocessableEntity)
	}
}
