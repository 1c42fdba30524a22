package proxy

import (
	"maps"
	"net/netip"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// hostPortPod returns a running pod with an address and host ports, which lead to
// its port 80.
func hostPortPod(name, address string, ports ...v1.ContainerPort) *v1.Pod {
	for i := range ports {
		ports[i].ContainerPort = 80
	}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: name, UID: types.UID(name)},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Ports: ports}}},
		Status:     v1.PodStatus{Phase: v1.PodRunning, PodIPs: []v1.PodIP{{IP: address}}},
	}
}

// toPods returns host ports with the names of the pods behind them.
func toPods(ports map[LocalPort]HostPort) map[string]string {
	names := map[string]string{}
	for key, to := range ports {
		w := want{LocalPort: key, pod: to.Pod}
		names[w.String()] = to.Pod.Name
	}
	return names
}

func TestPodHostPorts(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	declared := []v1.ContainerPort{{HostPort: 8080}, {HostPort: 5353, Protocol: v1.ProtocolUDP, HostIP: "192.0.2.2"}, {HostPort: 81, HostIP: "fd00::1"}, {}}
	for _, test := range []struct {
		name   string
		change func(*v1.Pod)
		want   []string
	}{
		{"running", func(*v1.Pod) {}, []string{"host port 8080/TCP", "host port 5353/UDP of 192.0.2.2"}},
		{"ended", func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded }, nil},
		{"without an address", func(p *v1.Pod) { p.Status.PodIPs = nil }, nil},
		{"in the host's network", func(p *v1.Pod) { p.Spec.HostNetwork = true }, nil},
		{"of a sidecar", func(p *v1.Pod) {
			p.Spec.InitContainers = []v1.Container{{RestartPolicy: &always, Ports: []v1.ContainerPort{{HostPort: 82, ContainerPort: 80}}}}
			p.Spec.Containers = nil
		}, []string{"host port 82/TCP"}},
		{"of an init container", func(p *v1.Pod) {
			p.Spec.InitContainers = []v1.Container{{Ports: []v1.ContainerPort{{HostPort: 82, ContainerPort: 80}}}}
			p.Spec.Containers = nil
		}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := hostPortPod("web", "10.244.0.7", declared...)
			test.change(pod)
			want := map[string]string{}
			for _, text := range test.want {
				want[text] = "web"
			}
			got := podHostPorts(pod, anywhere)
			if names := toPods(got); !maps.Equal(names, want) {
				t.Errorf("got %v, want %v", names, want)
			}
			for key, to := range got {
				if to.To != netip.MustParseAddrPort("10.244.0.7:80") || key.Family != v1.IPv4Protocol {
					t.Errorf("%v leads to %v", key, to)
				}
			}
			pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Image: "example.com/other"})
			kept, err := reduce(pod)
			if err != nil || !maps.Equal(podHostPorts(kept.(*v1.Pod), anywhere), got) {
				t.Errorf("what the proxy keeps of the pod has %v (%v)", podHostPorts(kept.(*v1.Pod), anywhere), err)
			}
			if n := len(kept.(*v1.Pod).Spec.Containers); n > 1 {
				t.Errorf("the proxy keeps %d containers", n)
			}
		})
	}
}

// TestHostPortOfTwoPods checks that the older of two pods keeps a host port.
func TestHostPortOfTwoPods(t *testing.T) {
	s := newState("here")
	for i, name := range []string{"young", "old", "same"} {
		pod := hostPortPod(name, "10.244.0.7", v1.ContainerPort{HostPort: 80})
		pod.CreationTimestamp = metav1.NewTime(time.Unix(1e9, 0).Add(-time.Duration(min(i, 1)) * time.Hour))
		s.setPod(pod)
	}
	if got := toPods(s.rules(s.localNode()).HostPorts); got["host port 80/TCP"] != "old" {
		t.Errorf("the port leads to %q", got)
	}
}

// Ports at addresses that the node does not have lead nowhere, and are not kept for each of
// the pods that declare them.
func TestManyHostPortsElsewhere(t *testing.T) {
	s := newState("n1")
	s.setNode(nodeAt("n1", "192.0.2.10"))
	const many = 1000
	for _, ip := range []string{"198.51.100.1", "198.51.100.2", "192.0.2.10"} {
		var ports []v1.ContainerPort
		for i := range int32(many) {
			ports = append(ports, v1.ContainerPort{HostPort: 10_000 + i, HostIP: ip})
		}
		s.setPod(hostPortPod("at-"+ip, "10.244.0.7", ports...))
	}
	if got, want := len(s.rules(s.localNode()).HostPorts), many+2*mostTold; got != want {
		t.Errorf("%d ports, want those at the node's address and some of each of the other pods, %d", got, want)
	}
}
