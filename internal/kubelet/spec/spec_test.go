package spec

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/coracle-io/coracle/internal/podquery"
)

func resources(requests, limits map[string]string) v1.ResourceRequirements {
	list := func(m map[string]string) v1.ResourceList {
		out := v1.ResourceList{}
		for k, v := range m {
			out[v1.ResourceName(k)] = resource.MustParse(v)
		}
		return out
	}
	return v1.ResourceRequirements{Requests: list(requests), Limits: list(limits)}
}

// machine returns a node with so many bytes of memory, whose containers have quotas.
func machine(memory int64) *Node {
	return &Node{MemoryCapacity: memory, Configuration: &kubeletconfig.KubeletConfiguration{CPUCFSQuota: new(true)}}
}

func TestResources(t *testing.T) {
	const gib = 1 << 30
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "a",
		Resources: resources(map[string]string{"cpu": "250m", "memory": "1Gi"}, map[string]string{"cpu": "500m", "memory": "2Gi"})}}}}
	got := machine(8*gib).Resources(pod, &pod.Spec.Containers[0])
	if got.CpuShares != 256 || got.CpuQuota != 50000 || got.CpuPeriod != 100000 || got.MemoryLimitInBytes != 2*gib || got.OomScoreAdj != 875 {
		t.Errorf("controls %+v", got)
	}
	node := machine(8 * gib)
	node.Configuration.CPUCFSQuotaPeriod = &metav1.Duration{Duration: 5 * time.Millisecond}
	if got := node.Resources(pod, &pod.Spec.Containers[0]); got.CpuQuota != 2500 || got.CpuPeriod != 5000 {
		t.Errorf("controls in 5 ms %+v", got)
	}
}

// A container has no more huge pages than its limits say, or those of its pod for sizes
// that it does not name. The group of the pod has those of all its containers.
func TestHugePages(t *testing.T) {
	pages := func(words ...string) v1.ResourceList {
		list := v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}
		for i := 0; i < len(words); i += 2 {
			list[v1.ResourceName("hugepages-"+words[i])] = resource.MustParse(words[i+1])
		}
		return list
	}
	shown := func(limits []*runtimeapi.HugepageLimit) string {
		var words []string
		for _, l := range limits {
			words = append(words, fmt.Sprint(l.PageSize, " ", l.Limit))
		}
		return strings.Join(words, ", ")
	}
	for _, test := range []struct {
		pod, container v1.ResourceList
		want, whole    string // of the container and of the pod
	}{
		{nil, nil, "", ""},
		{nil, pages(), "", ""},
		{nil, pages("2Mi", "4Mi", "1Gi", "1Gi"), "1GB 1073741824, 2MB 4194304", "1GB 1073741824, 2MB 4194304"},
		{nil, pages("64Ki", "128Ki"), "64KB 131072", "64KB 131072"},
		{pages("2Mi", "8Mi"), pages(), "2MB 8388608", "2MB 8388608"},
		{pages("2Mi", "8Mi"), pages("2Mi", "4Mi"), "2MB 4194304", "2MB 8388608"},
		{pages("2Mi", "8Mi", "1Gi", "1Gi"), pages("2Mi", "4Mi"), "2MB 4194304, 1GB 1073741824", "1GB 1073741824, 2MB 8388608"},
		{nil, pages("2Mi", "4Mi", "2097152", "8Mi", "4Mi", "12Mi"), "2MB 12582912, 4MB 12582912", "2MB 12582912, 4MB 12582912"},
	} {
		pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "a", Resources: v1.ResourceRequirements{Limits: test.container}}}}}
		if test.pod != nil {
			pod.Spec.Resources = &v1.ResourceRequirements{Limits: test.pod}
		}
		if got := shown(machine(8<<30).Resources(pod, &pod.Spec.Containers[0]).HugepageLimits); got != test.want {
			t.Errorf("%v of a pod with %v: %s, want %s", test.container, test.pod, got, test.want)
		}
		whole := PodResources(pod, defaultPeriod).HugepageLimits
		if got := shown(whole); got != test.whole || whole == nil {
			t.Errorf("a pod with %v and %v: %s (no limits: %t), want %s", test.pod, test.container, got, whole == nil, test.whole)
		}
	}
}

// A container has no huge pages of the sizes that it has no limits of.
func TestHugePagesOfOthers(t *testing.T) {
	node := &Node{
		Configuration: &kubeletconfig.KubeletConfiguration{CPUCFSQuota: new(true), SeccompDefault: new(false), SingleProcessOOMKill: new(false)},
		HugePages:     HugePageSizes(resources(nil, map[string]string{"memory": "8Gi", "hugepages-2Mi": "512Mi", "hugepages-1Gi": "0"}).Limits),
	}
	for limit, want := range map[string]string{"": "1GB 0, 2MB 0", "4Mi": "2MB 4194304, 1GB 0"} {
		c := &v1.Container{Name: "a"}
		if limit != "" {
			c.Resources = resources(nil, map[string]string{"hugepages-2Mi": limit})
		}
		config, err := ContainerConfig(&v1.Pod{}, c, node, &Instance{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, l := range config.GetLinux().GetResources().GetHugepageLimits() {
			got = append(got, fmt.Sprint(l.GetPageSize(), " ", l.GetLimit()))
		}
		if text := strings.Join(got, ", "); text != want {
			t.Errorf("a limit of %q: %s, want %s", limit, text, want)
		}
	}
}

// The controls of a container are within the kernel's bounds, even for the
// largest requests and limits.
func TestResourcesWithoutEnd(t *testing.T) {
	const most = "9223372036854775807"
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "a",
		Resources: resources(map[string]string{"cpu": most, "memory": most}, map[string]string{"cpu": most, "memory": most})}}}}
	got := machine(1<<30).Resources(pod, &pod.Spec.Containers[0])
	if got.CpuShares != maxShares || got.CpuQuota != maxQuota || got.MemoryLimitInBytes != math.MaxInt64 || got.OomScoreAdj != guaranteedOOMScore {
		t.Errorf("controls %+v", got)
	}
}

// A container without limits of its own has those of its pod as a whole, which its
// status does not show.
func TestLimitsOfThePodAsAWhole(t *testing.T) {
	pod := &v1.Pod{Spec: v1.PodSpec{
		Containers: []v1.Container{{Name: "a"}, {Name: "b", Resources: v1.ResourceRequirements{Limits: v1.ResourceList{
			v1.ResourceCPU: resource.MustParse("500m"), v1.ResourceMemory: resource.MustParse("64Mi")}}}},
		Resources: &v1.ResourceRequirements{Limits: v1.ResourceList{
			v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("1Gi")}},
	}}
	for i, want := range []struct{ quota, memory, shares int64 }{{200_000, 1 << 30, 2048}, {50_000, 64 << 20, 512}} {
		c := &pod.Spec.Containers[i]
		got := machine(8<<30).Resources(pod, c)
		if got.CpuQuota != want.quota || got.MemoryLimitInBytes != want.memory || got.CpuShares != want.shares {
			t.Errorf("%s: %+v, want %+v", c.Name, got, want)
		}
		if shown := ToRequirements(c, got); len(shown.Limits) != len(c.Resources.Limits) {
			t.Errorf("%s shows %v", c.Name, shown.Limits)
		}
	}
}

// The scores of burstable containers follow from their memory, of a machine with
// 10 Gi: requests, and shares in what the pod requests beyond those.
func TestOOMScores(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	memory := func(name, request string) v1.Container {
		return v1.Container{Name: name, Resources: resources(map[string]string{"memory": request}, nil)}
	}
	sidecar := memory("sidecar", "1Gi")
	sidecar.RestartPolicy = &always
	restarting := memory("small", "1Gi")
	restarting.RestartPolicy = &always
	pod := func(whole string, init []v1.Container, regular ...v1.Container) *v1.Pod {
		p := &v1.Pod{Spec: v1.PodSpec{InitContainers: init, Containers: regular}}
		if whole != "" {
			r := resources(map[string]string{"memory": whole}, nil)
			p.Spec.Resources = &r
		}
		return p
	}
	critical := func(class string) *v1.Pod {
		p := pod("", nil, memory("small", "2Gi"), memory("large", "4Gi"))
		p.Spec.PriorityClassName, p.Spec.Priority = class, new(int32(2_000_000_000))
		return p
	}
	one := func(requests, limits map[string]string) *v1.Pod {
		return pod("", nil, v1.Container{Name: "small", Resources: resources(requests, limits)})
	}
	whole := map[string]string{"cpu": "5m", "memory": "20Gi"}
	ofWhole := func(p *v1.Pod, both map[string]string) *v1.Pod { // requests and limits
		p.Spec.Resources = new(resources(both, both))
		return p
	}
	for _, test := range []struct {
		name, container string
		pod             *v1.Pod
		want            int64
	}{
		{"no requests of memory", "small", one(nil, map[string]string{"cpu": "10"}), 999},
		{"a limit of memory only", "small", one(map[string]string{"cpu": "0"}, map[string]string{"memory": "10Gi"}), 999},
		{"a limit of nothing", "small", one(nil, map[string]string{"memory": "0"}), 1000},
		{"nothing", "small", one(nil, nil), 1000},
		{"guaranteed", "small", one(whole, whole), -997},
		{"half of the memory", "small", one(map[string]string{"cpu": "5m", "memory": "5Gi"}, map[string]string{"memory": "10Gi"}), 500},
		{"all of the memory", "small", one(map[string]string{"cpu": "5m", "memory": "10737418239"}, nil), 3},
		{"regular", "small", pod("", nil, memory("small", "2Gi"), memory("large", "4Gi")), 800},
		{"as the smallest regular one", "sidecar", pod("", []v1.Container{sidecar}, memory("small", "2Gi"), memory("large", "4Gi")), 800},
		{"a sidecar with more", "sidecar", pod("", []v1.Container{sidecar}, memory("small", "512Mi")), 900},
		{"a regular one with a restart policy", "small", pod("", nil, restarting, memory("large", "4Gi")), 900},
		{"critical to the node", "small", critical("system-node-critical"), -997},
		{"critical to the cluster", "small", critical("system-cluster-critical"), 800},
		{"with a share of the pod's", "small", pod("10Gi", nil, memory("small", "2Gi"), memory("large", "4Gi")), 600},
		{"an init container", "init", pod("", []v1.Container{memory("init", "512Mi")}, memory("small", "2Gi")), 950},
		{"beside an init container", "small", pod("10Gi", []v1.Container{memory("init", "1Gi")}, memory("small", "2Gi"), memory("large", "4Gi")), 667},
		{"a sidecar of a pod as a whole", "sidecar", pod("10Gi", []v1.Container{sidecar}, memory("small", "2Gi"), memory("large", "4Gi")), 700},
		{"beside a sidecar", "large", pod("10Gi", []v1.Container{sidecar}, memory("small", "2Gi"), memory("large", "4Gi")), 500},
		{"a share alone", "small", pod("4Gi", nil, v1.Container{Name: "small"}, v1.Container{Name: "large"}), 800},
		{"all of the pod's", "small", pod("4Gi", nil, memory("small", "2Gi"), memory("large", "2Gi")), 800},
		{"guaranteed as a whole", "small", ofWhole(pod("", nil, memory("small", "2Gi"), memory("large", "4Gi")), whole), -997},
		{"no request of memory as a whole", "small", ofWhole(pod("", nil, memory("small", "2Gi")), map[string]string{"cpu": "1"}), 800},
	} {
		c := podquery.Container(&test.pod.Spec, test.container)
		if got := machine(10<<30).Resources(test.pod, c).OomScoreAdj; got != test.want {
			t.Errorf("%s: %d, want %d", test.name, got, test.want)
		}
	}
}

func TestExpand(t *testing.T) {
	lookup := Lookup([]Variable{{"A", "1"}, {"B", "two"}})
	for text, want := range map[string]string{
		"": "", "plain": "plain", "$(A)": "1", "x$(A)y$(B)z": "x1ytwoz", "$$(A)": "$(A)", "$(NONE)": "$(NONE)", "$": "$", "$A": "$A", "$(A": "$(A", "$$$(A)": "$1", "$(A)$$": "1$", "$($(A)": "$($(A)", "$(A$(": "$(A$(",
	} {
		if got, _, err := Expand(text, lookup, 10); err != nil || got != want {
			t.Errorf("Expand(%q) = %q, %v, want %q", text, got, err, want)
		}
	}
}

func TestDNS(t *testing.T) {
	node := &Node{
		Configuration: &kubeletconfig.KubeletConfiguration{ClusterDNS: []string{"10.96.0.10"}, ClusterDomain: "cluster.local"},
		ResolvConf:    []byte("# host\nnameserver 1.1.1.1\nsearch example.com.\noptions timeout:1\n"),
	}
	value := "2"
	for _, test := range []struct {
		name                       string
		spec                       v1.PodSpec
		servers, searches, options []string
	}{
		{"cluster first", v1.PodSpec{DNSPolicy: v1.DNSClusterFirst}, []string{"10.96.0.10"}, []string{"ns.svc.cluster.local", "svc.cluster.local", "cluster.local", "example.com"}, []string{"ndots:5"}},
		{"cluster first on the host's network", v1.PodSpec{DNSPolicy: v1.DNSClusterFirst, HostNetwork: true}, []string{"1.1.1.1"}, []string{"example.com"}, []string{"timeout:1"}},
		{"with host net", v1.PodSpec{DNSPolicy: v1.DNSClusterFirstWithHostNet, HostNetwork: true}, []string{"10.96.0.10"}, []string{"ns.svc.cluster.local", "svc.cluster.local", "cluster.local", "example.com"}, []string{"ndots:5"}},
		{"default", v1.PodSpec{DNSPolicy: v1.DNSDefault}, []string{"1.1.1.1"}, []string{"example.com"}, []string{"timeout:1"}},
		{"none", v1.PodSpec{DNSPolicy: v1.DNSNone, DNSConfig: &v1.PodDNSConfig{Nameservers: []string{"9.9.9.9"}}}, []string{"9.9.9.9"}, []string{}, nil},
		{"merged", v1.PodSpec{DNSPolicy: v1.DNSClusterFirst, DNSConfig: &v1.PodDNSConfig{Nameservers: []string{"9.9.9.9"}, Searches: []string{"a.b"}, Options: []v1.PodDNSConfigOption{{Name: "ndots", Value: &value}, {Name: "edns0"}}}},
			[]string{"10.96.0.10", "9.9.9.9"}, []string{"ns.svc.cluster.local", "svc.cluster.local", "cluster.local", "example.com", "a.b"}, []string{"ndots:2", "edns0"}},
	} {
		got, _ := dns(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Spec: test.spec}, node)
		if diff := cmp.Diff([][]string{test.servers, test.searches, test.options}, [][]string{got.Servers, got.Searches, got.Options}); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
	}
}

func TestParseResolvConf(t *testing.T) {
	for text, want := range map[string][3]string{
		"":                                       {},
		" ":                                      {},
		"#nameserver 1.2.3.4":                    {},
		"nameserver 1.2.3.4":                     {"1.2.3.4"},
		"\tnameserver \t 1.2.3.4 #comment":       {"1.2.3.4"},
		"nameserver 1.2.3.4\nnameserver 5.6.7.8": {"1.2.3.4 5.6.7.8"},
		"search ":                                {},
		"search foo. bar .":                      {"", "foo bar ."},
		"search foo\nsearch bar":                 {"", "bar"},
		"options ndots:5 attempts:2":             {"", "", "ndots:5 attempts:2"},
		"options ndots:1 debug\noptions ndots:5 attempts:3":                  {"", "", "ndots:5 debug attempts:3"},
		"nameserver 1.2.3.4\n;comment\nsearch foo\nsortlist\noptions rotate": {"1.2.3.4", "foo", "rotate"},
	} {
		servers, searches, options := parseResolvConf([]byte(text))
		got := [3]string{strings.Join(servers, " "), strings.Join(searches, " "), strings.Join(options, " ")}
		if got != want {
			t.Errorf("%q has %q, want %q", text, got, want)
		}
	}
}

// What the resolver's limits leave out is told of.
func TestDNSThatIsCut(t *testing.T) {
	node := &Node{Configuration: &kubeletconfig.KubeletConfiguration{}, ResolvConf: []byte("nameserver 10.0.0.1\n")}
	of := func(nameservers, searches int) *v1.Pod {
		config := &v1.PodDNSConfig{}
		for i := range nameservers {
			config.Nameservers = append(config.Nameservers, fmt.Sprintf("10.0.1.%d", i))
		}
		for i := range searches {
			config.Searches = append(config.Searches, fmt.Sprintf("n%d.example.com", i))
		}
		return &v1.Pod{Spec: v1.PodSpec{DNSPolicy: v1.DNSDefault, DNSConfig: config}}
	}
	for _, test := range []struct {
		pod  *v1.Pod
		want []string // beginnings
	}{
		{of(2, 32), nil},
		{of(3, 0), []string{"Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: 10.0.0.1 10.0.1.0 10.0.1.1"}},
		{&v1.Pod{Spec: v1.PodSpec{DNSPolicy: v1.DNSDefault, DNSConfig: &v1.PodDNSConfig{Searches: []string{"a", strings.Repeat("b", 256), "c"}}}},
			[]string{"Search Line limits were exceeded, some search paths have been omitted, the applied search line is: a c"}},
		{of(0, 33), []string{"Search Line limits were exceeded, some search paths have been omitted, the applied search line is: n0.example.com n1.example.com "}},
	} {
		got := DNSWarnings(test.pod, node)
		if !slices.EqualFunc(got, test.want, strings.HasPrefix) {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}

func TestServiceVariables(t *testing.T) {
	env := &Env{Services: []*v1.Service{
		{ObjectMeta: metav1.ObjectMeta{Name: "my-db", Namespace: "ns"}, Spec: v1.ServiceSpec{ClusterIP: "10.0.0.1", Ports: []v1.ServicePort{{Name: "main", Port: 5432, Protocol: v1.ProtocolTCP}}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "headless", Namespace: "ns"}, Spec: v1.ServiceSpec{ClusterIP: v1.ClusterIPNone, Ports: []v1.ServicePort{{Port: 1}}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "other", Namespace: "elsewhere"}, Spec: v1.ServiceSpec{ClusterIP: "10.0.0.2", Ports: []v1.ServicePort{{Port: 1}}}},
	}}
	got, err := env.Environment(context.Background(), &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}}, &v1.Container{})
	if err != nil {
		t.Fatal(err)
	}
	want := []Variable{
		{"MY_DB_PORT", "tcp://10.0.0.1:5432"}, {"MY_DB_PORT_5432_TCP", "tcp://10.0.0.1:5432"}, {"MY_DB_PORT_5432_TCP_ADDR", "10.0.0.1"},
		{"MY_DB_PORT_5432_TCP_PORT", "5432"}, {"MY_DB_PORT_5432_TCP_PROTO", "tcp"},
		{"MY_DB_SERVICE_HOST", "10.0.0.1"}, {"MY_DB_SERVICE_PORT", "5432"}, {"MY_DB_SERVICE_PORT_MAIN", "5432"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestVerifyNonRoot(t *testing.T) {
	yes, root, user := true, int64(0), int64(1000)
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "u"}}
	for _, test := range []struct {
		name  string
		sc    *v1.SecurityContext
		uid   *int64
		named string
		want  string
	}{
		{"not asked for", nil, &root, "", ""},
		{"image user", &v1.SecurityContext{RunAsNonRoot: &yes}, &user, "", ""},
		{"image root", &v1.SecurityContext{RunAsNonRoot: &yes}, &root, "", `container has runAsNonRoot and image will run as root (pod: "p_ns(u)", container: c)`},
		{"image without user", &v1.SecurityContext{RunAsNonRoot: &yes}, nil, "", `container has runAsNonRoot and image will run as root (pod: "p_ns(u)", container: c)`},
		{"image named user", &v1.SecurityContext{RunAsNonRoot: &yes}, nil, "www", `container has runAsNonRoot and image has non-numeric user (www), cannot verify user is non-root (pod: "p_ns(u)", container: c)`},
		{"runAsUser 0", &v1.SecurityContext{RunAsNonRoot: &yes, RunAsUser: &root}, &user, "", `container's runAsUser breaks non-root policy (pod: "p_ns(u)", container: c)`},
	} {
		got := ""
		if err := VerifyNonRoot(pod, &v1.Container{Name: "c", SecurityContext: test.sc}, test.uid, test.named); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

// Every stop signal of the API is one of the runtime's.
func TestStopSignals(t *testing.T) {
	node := &Node{Configuration: &kubeletconfig.KubeletConfiguration{CPUCFSQuota: new(true), SeccompDefault: new(false), SingleProcessOOMKill: new(false)}}
	for signal, want := range map[v1.Signal]runtimeapi.Signal{
		v1.SIGABRT: runtimeapi.Signal_SIGNAL_SIGABRT, v1.SIGKILL: runtimeapi.Signal_SIGNAL_SIGKILL, v1.SIGUSR1: runtimeapi.Signal_SIGNAL_SIGUSR1,
		v1.SIGRTMINPLUS1: runtimeapi.Signal_SIGNAL_SIGRTMINPLUS1, v1.SIGRTMAXMINUS14: runtimeapi.Signal_SIGNAL_SIGRTMAXMINUS14, v1.SIGRTMAX: runtimeapi.Signal_SIGNAL_SIGRTMAX,
	} {
		c := &v1.Container{Lifecycle: &v1.Lifecycle{StopSignal: &signal}}
		if config, err := ContainerConfig(&v1.Pod{}, c, node, &Instance{}); err != nil || config.GetStopSignal() != want {
			t.Errorf("%s is %s (%v), want %s", signal, config.GetStopSignal(), err, want)
		}
	}
	if config, err := ContainerConfig(&v1.Pod{}, &v1.Container{}, node, &Instance{}); err != nil || config.GetStopSignal() != runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT {
		t.Errorf("without a signal: %s (%v)", config.GetStopSignal(), err)
	}
}

// Containers do not see how hot the CPUs got, unless they ask for all of /proc.
func TestThermalThrottleIsMasked(t *testing.T) {
	const folder = "/sys/devices/system/cpu/cpu0/thermal_throttle"
	node := &Node{
		Configuration:   &kubeletconfig.KubeletConfiguration{CPUCFSQuota: new(true), SeccompDefault: new(false), SingleProcessOOMKill: new(false)},
		ThermalThrottle: []string{folder},
	}
	unmasked := v1.UnmaskedProcMount
	for procMount, want := range map[*v1.ProcMountType]bool{nil: true, &unmasked: false} {
		c := &v1.Container{SecurityContext: &v1.SecurityContext{ProcMount: procMount}}
		config, err := ContainerConfig(&v1.Pod{}, c, node, &Instance{})
		if err != nil {
			t.Fatal(err)
		}
		if got := slices.Contains(config.GetLinux().GetSecurityContext().GetMaskedPaths(), folder); got != want {
			t.Errorf("masked: %t, want %t", got, want)
		}
	}
}
