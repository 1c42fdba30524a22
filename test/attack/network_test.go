package attack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-io/coracle/test/mark"
)

const image = "coracle.internal/frontend:1.0"

// runPod creates a pod with a web server and waits until it is ready.
func (c *cluster) runPod(t *testing.T, namespace string, pod *v1.Pod) *v1.Pod {
	t.Helper()
	ctx := context.Background()
	pod.Namespace = namespace
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].Name, pod.Spec.Containers[i].Image = "c"+strconv.Itoa(i), image
	}
	made, err := c.client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "pod "+made.Name+" being ready", func() error {
		made, err = c.client.CoreV1().Pods(namespace).Get(ctx, made.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, condition := range made.Status.Conditions {
			if condition.Type == v1.PodReady && condition.Status == v1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("phase %s, %v", made.Status.Phase, made.Status.ContainerStatuses)
	})
	return made
}

// inPod runs a command in a pod and returns what it prints.
func (c *cluster) inPod(pod *v1.Pod, command ...string) (string, error) {
	return c.coracle(append([]string{"kubectl", "--kubeconfig=" + c.kubeconfig, "-n", pod.Namespace, "exec", pod.Name, "--"}, command...)...)
}

// lookUp resolves the API server's Service in a pod.
func (c *cluster) lookUp(pod *v1.Pod) error {
	api, err := c.client.CoreV1().Services(metav1.NamespaceDefault).Get(context.Background(), "kubernetes", metav1.GetOptions{})
	if err != nil {
		return err
	}
	out, err := c.inPod(pod, "busybox", "nslookup", "-type=a", "kubernetes.default.svc.cluster.local")
	if err != nil || !strings.Contains(out, api.Spec.ClusterIP) {
		return fmt.Errorf("the name does not resolve to %s (%v): %s", api.Spec.ClusterIP, err, out)
	}
	return nil
}

// TestExternalIPsOfClusterDNS checks that a tenant's Service with the
// address of cluster DNS or of the API server as an external IP gets none of its
// connections.
func TestExternalIPsOfClusterDNS(t *testing.T) {
	c := node(t)
	ctx := context.Background()
	config, namespace := c.tenant(t, "edit")
	tenant, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	pod := c.runPod(t, namespace, &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "thief", Labels: map[string]string{"app": "thief"}},
		Spec:       v1.PodSpec{Containers: []v1.Container{{}}},
	})
	eventually(t, "the first lookup", func() error { return c.lookUp(pod) })
	dns, err := c.client.CoreV1().Services(metav1.NamespaceSystem).Get(ctx, "kube-dns", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, securePort, err := net.SplitHostPort(c.address())
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(securePort)
	if err != nil {
		t.Fatal(err)
	}
	own := ownAddress(0).String() // what a cluster left may have rules for others
	for _, c := range []struct {
		what  string
		claim v1.ServiceSpec
	}{
		{"dns", v1.ServiceSpec{ExternalIPs: []string{dns.Spec.ClusterIP}, Ports: []v1.ServicePort{{Port: 53, Protocol: v1.ProtocolUDP}}}},
		{"api", v1.ServiceSpec{ExternalIPs: []string{nodes.Items[0].Status.Addresses[0].Address}, Ports: []v1.ServicePort{{Port: int32(port)}}}},
		// The last Service. Once its rules exist, the rules of the others
		// exist, too.
		{"own", v1.ServiceSpec{ExternalIPs: []string{own}, Ports: []v1.ServicePort{{Port: 80}}}},
	} {
		c.claim.Selector = map[string]string{"app": "thief"}
		if _, err := tenant.CoreV1().Services(namespace).Create(ctx, &v1.Service{ObjectMeta: metav1.ObjectMeta{Name: c.what}, Spec: c.claim}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the Service's own external IP", func() error {
		out, err := c.inPod(pod, "wget", "-qO-", "http://"+own)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	for range 20 {
		if err := c.lookUp(pod); err != nil {
			t.Fatal(err)
		}
	}
	c.checkNotRestarted(t)
}

// TestOtherMachineQueriesClusterDNS checks that cluster DNS does not answer a
// machine of the network that is not a node, so that it neither reveals names
// nor amplifies floods.
func TestOtherMachineQueriesClusterDNS(t *testing.T) {
	c := node(t)
	slices, err := c.client.DiscoveryV1().EndpointSlices(metav1.NamespaceSystem).List(t.Context(), metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=kube-dns"})
	if err != nil || len(slices.Items) == 0 {
		t.Fatalf("cluster DNS has no endpoints: %v", err)
	}
	server := net.JoinHostPort(slices.Items[0].Endpoints[0].Addresses[0], strconv.Itoa(int(*slices.Items[0].Ports[0].Port)))
	const name = "kubernetes.default.svc.cluster.local"
	if out, err := exec.Command("busybox", "nslookup", "-type=a", name, server).CombinedOutput(); err != nil {
		t.Fatalf("the node itself gets no response: %v\n%s", err, out)
	}
	stranger, _ := neighbour(t)
	out, err := exec.Command("ip", "netns", "exec", stranger, "busybox", "nslookup", "-type=a", name, server).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "REFUSED") {
		t.Errorf("another machine is not refused (%v):\n%s", err, out)
	}
}

// ownAddress returns one of four addresses of the range for benchmarks (RFC 2544)
// that no other process of this machine uses: a prefix of 30 bits, whose second and
// third address are those of hosts.
func ownAddress(n int) netip.Addr {
	pid := os.Getpid() << 2
	return netip.AddrFrom4([4]byte{198, 18 | byte(pid>>16)&1, byte(pid >> 8), byte(pid) + byte(n)})
}

// neighbour creates a network namespace that is connected to this machine by a
// veth pair, and returns its name and address. It is removed when the test ends.
func neighbour(t *testing.T) (name, address string) {
	t.Helper()
	name, here, there := mark.Name("stranger"), mark.Name("h"), "eth0"
	machine, address := ownAddress(1).String(), ownAddress(2).String()
	run := func(arguments ...string) error {
		if out, err := exec.Command("ip", arguments...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", strings.Join(arguments, " "), err, out)
		}
		return nil
	}
	if err := run("netns", "add", name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := run("netns", "delete", name); err != nil { // this also deletes the veth pair
			t.Error(err)
		}
	})
	if err := errors.Join(
		run("link", "add", here, "type", "veth", "peer", "name", there, "netns", name),
		run("address", "add", machine+"/30", "dev", here),
		run("link", "set", here, "up"),
		run("-n", name, "address", "add", address+"/30", "dev", there),
		run("-n", name, "link", "set", there, "up"),
		run("-n", name, "route", "add", "default", "via", machine),
	); err != nil {
		t.Fatal(err)
	}
	return name, address
}

// TestPodsOfAnotherClusterOnThisMachine checks that a pod can reach the node ports of
// another cluster on the same machine, but not its pods and cluster IPs.
func TestPodsOfAnotherClusterOnThisMachine(t *testing.T) {
	victims, attackers := node(t), startOwn(t)
	ctx := context.Background()
	_, namespace := victims.tenant(t, "")
	victim := victims.runPod(t, namespace, &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "victim", Labels: map[string]string{"app": "victim"}},
		Spec:       v1.PodSpec{Containers: []v1.Container{{}}},
	})
	service, err := victims.client.CoreV1().Services(namespace).Create(ctx, &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "victim"},
		Spec:       v1.ServiceSpec{Type: v1.ServiceTypeNodePort, Selector: victim.Labels, Ports: []v1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := victims.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	attacker := attackers.runPod(t, metav1.NamespaceDefault, &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "attacker"}, Spec: v1.PodSpec{Containers: []v1.Container{{}}},
	})
	get := func(c *cluster, from *v1.Pod, host string, port int32) error {
		out, err := c.inPod(from, "busybox", "timeout", "2", "wget", "-qO-", "http://"+net.JoinHostPort(host, strconv.Itoa(int(port))))
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
	nodeAddress, nodePort := nodes.Items[0].Status.Addresses[0].Address, service.Spec.Ports[0].NodePort
	eventually(t, "the Service from its own cluster", func() error { return get(victims, victim, service.Spec.ClusterIP, 80) })
	eventually(t, "the node port", func() error { return get(attackers, attacker, nodeAddress, nodePort) })
	for what, address := range map[string]string{"the pod": victim.Status.PodIP, "the Service": service.Spec.ClusterIP} {
		if err := get(attackers, attacker, address, 80); err == nil {
			t.Errorf("%s of another cluster can be reached at %s", what, address)
		}
	}
}
