package spec

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
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
