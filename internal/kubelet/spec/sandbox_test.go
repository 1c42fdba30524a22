package spec

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// The name of a link to a log fits into a directory, and ends with the container.
func TestLogLink(t *testing.T) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"}}
	if got := LogLink("/var/log/pods", pod, "main", "12ab"); got != "/var/log/containers/web_default_main-12ab.log" {
		t.Errorf("the link is %s", got)
	}
	pod.Name = strings.Repeat("w", 253)
	got := strings.TrimPrefix(LogLink("/var/log/pods", pod, "main", strings.Repeat("a", 64)), "/var/log/containers/")
	if len(got) != 255 || !strings.HasPrefix(got, "www") || !strings.HasSuffix(got, "w-"+strings.Repeat("a", 64)+".log") {
		t.Errorf("the link of a long name is %s", got)
	}
}

// A runtime that leads host ports itself gets those of the containers that run as
// long as the pod. An init container that has ended takes no port of another pod.
func TestPortMappings(t *testing.T) {
	ports := func(name string, port int32, hostIP string, protocol v1.Protocol) v1.Container {
		return v1.Container{Name: name, Ports: []v1.ContainerPort{
			{ContainerPort: port, HostPort: port, HostIP: hostIP, Protocol: protocol}, {ContainerPort: 1},
		}}
	}
	sidecar := ports("sidecar", 82, "", v1.ProtocolUDP)
	sidecar.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
	pod := &v1.Pod{Spec: v1.PodSpec{
		InitContainers: []v1.Container{ports("ended", 81, "", ""), sidecar},
		Containers:     []v1.Container{ports("main", 83, "::ffff:192.0.2.1", v1.ProtocolSCTP), ports("other", 84, "0.0.0.0", "")},
	}}
	want := []*runtimeapi.PortMapping{
		{HostPort: 82, ContainerPort: 82, Protocol: runtimeapi.Protocol_UDP},
		{HostPort: 83, ContainerPort: 83, Protocol: runtimeapi.Protocol_SCTP, HostIp: "192.0.2.1"},
		{HostPort: 84, ContainerPort: 84},
	}
	got := portMappings(pod)
	if !slices.EqualFunc(got, want, func(a, b *runtimeapi.PortMapping) bool { return proto.Equal(a, b) }) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// What a pod is called, and the settings of the kernel in it, whose names the runtime
// gets with dots.
func TestHostnameAndSysctls(t *testing.T) {
	node := &Node{Configuration: &kubeletconfig.KubeletConfiguration{CPUCFSQuota: new(true), ClusterDomain: "cluster.local"}}
	for name, test := range map[string]struct {
		spec     v1.PodSpec
		hostname string
	}{
		"the pod's name":        {v1.PodSpec{}, "web"},
		"a hostname":            {v1.PodSpec{Hostname: "a", Subdomain: "b"}, "a"},
		"all of it":             {v1.PodSpec{Hostname: "a", Subdomain: "b", SetHostnameAsFQDN: new(true)}, "a.b.shop.svc.cluster.local"},
		"all without subdomain": {v1.PodSpec{Hostname: "a", SetHostnameAsFQDN: new(true)}, "a"},
		"another one":           {v1.PodSpec{Hostname: "a", Subdomain: "b", HostnameOverride: new("c.example.com")}, "c.example.com"},
		"the node's":            {v1.PodSpec{Hostname: "a", HostNetwork: true}, ""},
	} {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: test.spec}
		pod.Spec.SecurityContext = &v1.PodSecurityContext{Sysctls: []v1.Sysctl{
			{Name: "net/ipv4/ip_unprivileged_port_start", Value: "80"}, {Name: "kernel.shm_rmid_forced", Value: "1"},
		}}
		config, err := Sandbox(pod, node, 0, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		if config.GetHostname() != test.hostname {
			t.Errorf("%s: %q, want %q", name, config.GetHostname(), test.hostname)
		}
		want := map[string]string{"net.ipv4.ip_unprivileged_port_start": "80", "kernel.shm_rmid_forced": "1"}
		if got := config.GetLinux().GetSysctls(); !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
