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

// Sysctls of the node are those of a pod in the namespaces that it does not share with
// the host.
func TestDefaultSysctls(t *testing.T) {
	given := map[string]string{"net/core/somaxconn": "1024", "kernel.sem": "250", "fs.mqueue.msg_max": "9", "kernel.domainname": "a", "user.max_user_namespaces": "7"}
	for name, test := range map[string]struct {
		spec v1.PodSpec
		want string
	}{
		"own":          {v1.PodSpec{}, "fs.mqueue.msg_max kernel.domainname kernel.sem net.core.somaxconn"},
		"host network": {v1.PodSpec{HostNetwork: true}, "fs.mqueue.msg_max kernel.sem"},
		"host IPC":     {v1.PodSpec{HostIPC: true}, "kernel.domainname net.core.somaxconn"},
		"host users":   {v1.PodSpec{HostUsers: new(true)}, "fs.mqueue.msg_max kernel.domainname kernel.sem net.core.somaxconn"},
		"own users":    {v1.PodSpec{HostUsers: new(false)}, "fs.mqueue.msg_max kernel.domainname kernel.sem net.core.somaxconn user.max_user_namespaces"},
	} {
		got := defaultSysctls(&v1.Pod{Spec: test.spec}, given)
		if names := strings.Join(slices.Sorted(maps.Keys(got)), " "); names != test.want {
			t.Errorf("%s: %s, want %s", name, names, test.want)
		}
		if value, ok := got["net.core.somaxconn"]; ok && value != "1024" {
			t.Errorf("%s: net.core.somaxconn is %s", name, value)
		}
	}
	node := &Node{Configuration: &kubeletconfig.KubeletConfiguration{CPUCFSQuota: new(true), DefaultPodSysctls: map[string]string{"net/core/somaxconn": "1024", "kernel.sem": "250"}}}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: v1.PodSpec{SecurityContext: &v1.PodSecurityContext{Sysctls: []v1.Sysctl{{Name: "net.core.somaxconn", Value: "8"}}}}}
	config, err := Sandbox(pod, node, 0, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := config.GetLinux().GetSysctls(), map[string]string{"net.core.somaxconn": "8", "kernel.sem": "250"}; !maps.Equal(got, want) {
		t.Errorf("a pod's own go first: %v, want %v", got, want)
	}
}

// The identity of a sandbox, the folder of its logs, its ports, and its controls, with the
// pod's overhead apart.
func TestSandbox(t *testing.T) {
	node := &Node{
		Configuration: &kubeletconfig.KubeletConfiguration{CPUCFSQuota: new(true), ClusterDomain: "cluster.local", PodLogsDir: "/var/log/pods"},
		RootDirectory: "/kubelet",
	}
	cpu := resources(map[string]string{"cpu": "1"}, map[string]string{"cpu": "2"})
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "12345678", Labels: map[string]string{"app": "web"}},
		Spec: v1.PodSpec{
			Containers: []v1.Container{{Name: "main", Resources: cpu, Ports: []v1.ContainerPort{{HostPort: 8080}}}},
			Overhead:   resources(map[string]string{"cpu": "250m"}, nil).Requests,
			SecurityContext: &v1.PodSecurityContext{
				RunAsUser: new(int64(7)), RunAsGroup: new(int64(8)), FSGroup: new(int64(5)), SupplementalGroups: []int64{6},
				SeccompProfile: &v1.SeccompProfile{Type: v1.SeccompProfileTypeUnconfined},
			},
		},
	}
	config, err := Sandbox(pod, node, 1, "/kubepods/burstable/pod12345678", nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := (&runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "shop", Uid: "12345678", Attempt: 1}); !proto.Equal(config.GetMetadata(), want) {
		t.Errorf("metadata %v", config.GetMetadata())
	}
	labels := map[string]string{"app": "web", "io.kubernetes.pod.name": "web", "io.kubernetes.pod.namespace": "shop", "io.kubernetes.pod.uid": "12345678"}
	if got := config.GetLabels(); !maps.Equal(got, labels) {
		t.Errorf("labels %v", got)
	}
	if got := config.GetLogDirectory(); got != "/var/log/pods/shop_web_12345678" {
		t.Errorf("logs in %s", got)
	}
	if got := config.GetPortMappings(); len(got) != 1 || got[0].GetHostPort() != 8080 {
		t.Errorf("ports %v", got)
	}
	linux := config.GetLinux()
	if linux.GetCgroupParent() != "/kubepods/burstable/pod12345678" || linux.GetResources().GetCpuShares() != 1024 || linux.GetResources().GetCpuQuota() != 200_000 || linux.GetOverhead().GetCpuShares() != 256 {
		t.Errorf("group %s, resources %v, overhead %v", linux.GetCgroupParent(), linux.GetResources(), linux.GetOverhead())
	}
	sc := linux.GetSecurityContext()
	if sc.GetRunAsUser().GetValue() != 7 || sc.GetRunAsGroup().GetValue() != 8 || !slices.Equal(sc.GetSupplementalGroups(), []int64{5, 6}) {
		t.Errorf("user and groups %v", sc)
	}
	if got := sc.GetSeccomp().GetProfileType(); got != runtimeapi.SecurityProfile_RuntimeDefault { // of the sandbox, whatever its containers have
		t.Errorf("seccomp %s", got)
	}
}

// A runtime runs privileged containers in privileged sandboxes alone.
func TestPrivilegedSandbox(t *testing.T) {
	node := &Node{Configuration: &kubeletconfig.KubeletConfiguration{CPUCFSQuota: new(true)}}
	plain := v1.Container{Name: "a", SecurityContext: &v1.SecurityContext{Privileged: new(false)}}
	privileged := v1.Container{Name: "b", SecurityContext: &v1.SecurityContext{Privileged: new(true)}}
	for what, test := range map[string]struct {
		spec v1.PodSpec
		want bool
	}{
		"none":      {v1.PodSpec{InitContainers: []v1.Container{plain}, Containers: []v1.Container{plain, {Name: "c"}}}, false},
		"regular":   {v1.PodSpec{Containers: []v1.Container{plain, privileged}}, true},
		"init":      {v1.PodSpec{InitContainers: []v1.Container{privileged}, Containers: []v1.Container{plain}}, true},
		"ephemeral": {v1.PodSpec{Containers: []v1.Container{plain}, EphemeralContainers: []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon(privileged)}}}, true},
	} {
		config, err := Sandbox(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: test.spec}, node, 0, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := config.GetLinux().GetSecurityContext().GetPrivileged(); got != test.want {
			t.Errorf("%s: %t, want %t", what, got, test.want)
		}
	}
}

// What the containers of a pod share.
func TestNamespaces(t *testing.T) {
	const container, pod, node, target = runtimeapi.NamespaceMode_CONTAINER, runtimeapi.NamespaceMode_POD, runtimeapi.NamespaceMode_NODE, runtimeapi.NamespaceMode_TARGET
	users := &runtimeapi.UserNamespace{Mode: pod}
	for _, test := range []struct {
		spec              v1.PodSpec
		target            string
		network, ipc, pid runtimeapi.NamespaceMode
	}{
		{v1.PodSpec{}, "", pod, pod, container},
		{v1.PodSpec{ShareProcessNamespace: new(false)}, "", pod, pod, container},
		{v1.PodSpec{ShareProcessNamespace: new(true)}, "", pod, pod, pod},
		{v1.PodSpec{HostNetwork: true}, "", node, pod, container},
		{v1.PodSpec{HostIPC: true}, "", pod, node, container},
		{v1.PodSpec{HostPID: true}, "", pod, pod, node},
		{v1.PodSpec{}, "main", pod, pod, target},
		{v1.PodSpec{ShareProcessNamespace: new(true)}, "main", pod, pod, target},
		{v1.PodSpec{HostPID: true}, "main", pod, pod, node},
	} {
		got := namespaces(&v1.Pod{Spec: test.spec}, test.target, users)
		want := &runtimeapi.NamespaceOption{Network: test.network, Ipc: test.ipc, Pid: test.pid, UsernsOptions: users}
		if test.pid == target {
			want.TargetId = test.target
		}
		if !proto.Equal(got, want) {
			t.Errorf("%+v: %v, want %v", test, got, want)
		}
	}
}

// Hostnames have at most 63 characters, full names 64, the kernel's limit.
func TestLongHostnames(t *testing.T) {
	long := strings.Repeat("a", 62)
	for name, want := range map[string]string{
		"web": "web", long: long, long + "b": long + "b", long + "bc": long + "b",
		long + "-c": long, long + ".c": long, long[:61] + "-.c": long[:61],
	} {
		got, domain, err := HostName(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: v1.PodSpec{Subdomain: "s"}}, "cluster.local")
		if err != nil || got != want || domain != "s.shop.svc.cluster.local" {
			t.Errorf("%s: %s, %s, %v", name, got, domain, err)
		}
	}
	if got, _, err := HostName(&v1.Pod{}, "cluster.local"); err == nil {
		t.Errorf("a pod without a name is called %q", got)
	}
	node := &Node{Configuration: &kubeletconfig.KubeletConfiguration{CPUCFSQuota: new(true), ClusterDomain: "cluster.local"}}
	for length, fits := range map[int]bool{39: true, 40: false} { // .s.shop.svc.cluster.local has 25
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: v1.PodSpec{Hostname: long[:length], Subdomain: "s", SetHostnameAsFQDN: new(true)}}
		config, err := Sandbox(pod, node, 0, "", nil)
		if fits && (err != nil || len(config.GetHostname()) != 64) {
			t.Errorf("a name of %d characters: %q, %v", length, config.GetHostname(), err)
		}
		if !fits && (err == nil || !strings.Contains(err.Error(), "is too long (64 characters is the max, 65 characters requested)")) {
			t.Errorf("a name of %d characters: %v", length, err)
		}
	}
}
