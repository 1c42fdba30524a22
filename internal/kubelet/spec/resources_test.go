package spec

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/coracle-io/coracle/internal/podquery"
)

// TestPageSizesOutOfRange checks that names of huge pages whose size takes hours
// to compute with are left out.
func TestPageSizesOutOfRange(t *testing.T) {
	found := hugePages(v1.ResourceList{
		"hugepages-1e900000000": resource.MustParse("1"), "hugepages-1e-900000000": resource.MustParse("1"), "hugepages-2Mi": resource.MustParse("4Mi"),
	})
	if len(found) != 1 || found[0].GetPageSize() != "2MB" || found[0].GetLimit() != 4<<20 {
		t.Errorf("%v", found)
	}
}

// The runtime is told of a pod's overhead apart from what its containers get.
func TestSandboxUpdate(t *testing.T) {
	cpu := func(text string) v1.ResourceList { return v1.ResourceList{v1.ResourceCPU: resource.MustParse(text)} }
	pod := &v1.Pod{Spec: v1.PodSpec{
		Containers: []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Requests: cpu("1"), Limits: cpu("2")}}},
		Overhead:   v1.ResourceList{v1.ResourceCPU: resource.MustParse("250m"), v1.ResourceMemory: resource.MustParse("64Mi")},
	}}
	got := SandboxUpdate("s", pod, &kubeletconfig.KubeletConfiguration{CPUCFSQuota: new(true)})
	if got.GetPodSandboxId() != "s" || got.GetResources().GetCpuShares() != 1024 || got.GetResources().GetCpuQuota() != 200_000 || got.GetResources().GetMemoryLimitInBytes() != 0 {
		t.Errorf("resources %v", got.GetResources())
	}
	if o := got.GetOverhead(); o.GetCpuShares() != 256 || o.GetCpuQuota() != 25_000 || o.GetCpuPeriod() != 100_000 || o.GetMemoryLimitInBytes() != 64<<20 {
		t.Errorf("overhead %v", o)
	}
	if pod.Spec.Overhead == nil {
		t.Error("the pod has no overhead any more")
	}
	const period = 5 * time.Millisecond
	got = SandboxUpdate("s", pod, &kubeletconfig.KubeletConfiguration{CPUCFSQuota: new(true), CPUCFSQuotaPeriod: &metav1.Duration{Duration: period}})
	if r, o := got.GetResources(), got.GetOverhead(); r.GetCpuQuota() != 10_000 || r.GetCpuPeriod() != 5000 || o.GetCpuQuota() != 1250 || o.GetCpuPeriod() != 5000 {
		t.Errorf("in %s: resources %v, overhead %v", period, r, o)
	}
	pod.Spec.Overhead = nil
	if o := SandboxUpdate("s", pod, &kubeletconfig.KubeletConfiguration{CPUCFSQuota: new(false)}).GetOverhead(); o == nil || o.GetCpuShares() != 0 || o.GetCpuQuota() != 0 {
		t.Errorf("without overhead: %v", o)
	}
}

// With CPUs of its own, a container has no quota of CPU time, and neither has its pod:
// the kernel would throttle it before it has used its CPUs. The pod's overhead keeps its
// own.
func TestOwnCPUsHaveNoQuota(t *testing.T) {
	type list = map[string]string
	container := func(name, requests, limits string) v1.Container {
		return v1.Container{Name: name, Resources: resources(list{"cpu": requests, "memory": "1Gi"}, list{"cpu": limits, "memory": "1Gi"})}
	}
	always := new(v1.ContainerRestartPolicyAlways)
	for what, test := range map[string]struct {
		policy     string
		without    bool // quotas
		init       []string
		containers []string // what they ask for, or that and their limit
		want       string   // the quota of each container, and then that of the pod
	}{
		"whole CPUs":                    {policy: "static", containers: []string{"2"}, want: "-1 0"},
		"whole CPUs and a part":         {policy: "static", containers: []string{"1", "500m"}, want: "-1 50000 0"},
		"a part":                        {policy: "static", containers: []string{"1500m"}, want: "150000 150000"},
		"whole CPUs of an init":         {policy: "static", init: []string{"2"}, containers: []string{"500m"}, want: "-1 50000 0"},
		"less than the limit":           {policy: "static", containers: []string{"1 2"}, want: "200000 200000"},
		"without the policy":            {policy: "none", containers: []string{"2"}, want: "200000 200000"},
		"without quotas":                {policy: "static", without: true, containers: []string{"2", "500m"}, want: "0 0 0"},
		"without quotas nor the policy": {policy: "none", without: true, containers: []string{"2"}, want: "0 0"},
	} {
		node := machine(8 << 30)
		node.Configuration.CPUManagerPolicy = test.policy
		*node.Configuration.CPUCFSQuota = !test.without
		pod := &v1.Pod{Spec: v1.PodSpec{Overhead: resources(list{"cpu": "250m"}, nil).Requests}}
		add := func(to *[]v1.Container, name, cpu string) {
			requests, limits, ok := strings.Cut(cpu, " ")
			if !ok {
				limits = requests
			}
			*to = append(*to, container(name, requests, limits))
		}
		for i, cpu := range test.init {
			add(&pod.Spec.InitContainers, fmt.Sprint("init", i), cpu)
			pod.Spec.InitContainers[i].RestartPolicy = always
		}
		for i, cpu := range test.containers {
			add(&pod.Spec.Containers, fmt.Sprint("main", i), cpu)
		}
		var got []string
		for c := range podquery.Containers(&pod.Spec) {
			r := node.Resources(pod, c)
			got = append(got, fmt.Sprint(r.GetCpuQuota()))
			if period := r.GetCpuPeriod(); (period == defaultPeriod) != (r.GetCpuQuota() != 0) {
				t.Errorf("%s: %s has a quota of %d in %d", what, c.Name, r.GetCpuQuota(), period)
			}
		}
		update := SandboxUpdate("s", pod, node.Configuration)
		got = append(got, fmt.Sprint(update.GetResources().GetCpuQuota()))
		if got := strings.Join(got, " "); got != test.want {
			t.Errorf("%s: %s, want %s", what, got, test.want)
		}
		if got := update.GetOverhead().GetCpuQuota(); (got == 25_000) == test.without {
			t.Errorf("%s: the overhead has %d", what, got)
		}
	}
}

// A pod's control group has the requests of its containers, and limits if each container
// has one, or the pod as a whole.
func TestPodResources(t *testing.T) {
	container := func(requests, limits map[string]string) v1.Container {
		return v1.Container{Name: "main", Resources: resources(requests, limits)}
	}
	type list = map[string]string
	whole := func(requests, limits list) *v1.ResourceRequirements {
		r := resources(requests, limits)
		return &r
	}
	small, double := list{"cpu": "100m", "memory": "100Mi"}, list{"cpu": "200m", "memory": "200Mi"}
	sidecar := container(small, double)
	sidecar.Name, sidecar.RestartPolicy = "sidecar", new(v1.ContainerRestartPolicyAlways)
	init := container(list{"cpu": "500m"}, list{"cpu": "1", "memory": "1Gi"})
	init.Name = "init"
	for what, test := range map[string]struct {
		spec v1.PodSpec
		want string // shares, quota and MiB
	}{
		"nothing":                     {v1.PodSpec{Containers: []v1.Container{container(nil, nil)}}, "2 0 0"},
		"requests":                    {v1.PodSpec{Containers: []v1.Container{container(small, nil)}}, "102 0 0"},
		"limits":                      {v1.PodSpec{Containers: []v1.Container{container(small, double)}}, "102 20000 200"},
		"one without limits":          {v1.PodSpec{Containers: []v1.Container{container(small, double), container(small, nil)}}, "204 0 0"},
		"one without a memory limit":  {v1.PodSpec{Containers: []v1.Container{container(small, double), container(small, list{"cpu": "1"})}}, "204 120000 0"},
		"guaranteed":                  {v1.PodSpec{Containers: []v1.Container{container(double, double)}}, "204 20000 200"},
		"a very small limit":          {v1.PodSpec{Containers: []v1.Container{container(list{"cpu": "1m"}, list{"cpu": "2m"})}}, "2 1000 0"},
		"a large init container":      {v1.PodSpec{InitContainers: []v1.Container{init}, Containers: []v1.Container{container(small, double)}}, "512 100000 1024"},
		"an unlimited init container": {v1.PodSpec{InitContainers: []v1.Container{container(small, nil)}, Containers: []v1.Container{container(small, double)}}, "102 0 0"},
		"a sidecar":                   {v1.PodSpec{InitContainers: []v1.Container{sidecar}, Containers: []v1.Container{container(small, double)}}, "204 40000 400"},
		"overhead":                    {v1.PodSpec{Overhead: resources(small, nil).Requests, Containers: []v1.Container{container(small, double)}}, "204 30000 300"},
		"the pod as a whole":          {v1.PodSpec{Resources: whole(small, double), Containers: []v1.Container{container(nil, nil)}}, "102 20000 200"},
		"the pod's requests":          {v1.PodSpec{Resources: whole(small, nil), Containers: []v1.Container{container(nil, nil)}}, "102 0 0"},
		"nothing of the pod":          {v1.PodSpec{Resources: whole(nil, nil), Containers: []v1.Container{container(nil, nil)}}, "2 0 0"},
		"the pod's and less":          {v1.PodSpec{Resources: whole(double, nil), Containers: []v1.Container{container(small, nil)}}, "204 0 0"},
		"the pod's limits and lower":  {v1.PodSpec{Resources: whole(small, double), Containers: []v1.Container{container(list{"cpu": "10m"}, small)}}, "102 20000 200"},
		"limits of containers alone":  {v1.PodSpec{Resources: whole(list{"cpu": "200m", "memory": "300Mi"}, nil), Containers: []v1.Container{container(double, double)}}, "204 20000 200"},
		"a guaranteed pod":            {v1.PodSpec{Resources: whole(small, small), InitContainers: []v1.Container{container(nil, small)}, Containers: []v1.Container{container(list{"cpu": "10m"}, nil)}}, "102 10000 100"},
	} {
		for _, period := range []int64{defaultPeriod, 5000, 0} {
			var shares, quota, memory int64
			if _, err := fmt.Sscan(test.want, &shares, &quota, &memory); err != nil {
				t.Fatal(err)
			}
			if quota > 0 && period > 0 {
				quota = max(quota*period/defaultPeriod, minQuota)
			} else {
				quota = 0
			}
			r, want := PodResources(&v1.Pod{Spec: test.spec}, period), fmt.Sprint(shares, quota, memory)
			if got := fmt.Sprint(r.GetCpuShares(), r.GetCpuQuota(), r.GetMemoryLimitInBytes()>>20); got != want || quota > 0 && r.GetCpuPeriod() != period {
				t.Errorf("%s, with quotas in %d: %s in %d, want %s", what, period, got, r.GetCpuPeriod(), want)
			}
		}
	}
}

// Programs that ask for a limit that their container does not have get that of the pod as
// a whole, or what the node has for pods.
func TestResourceField(t *testing.T) {
	node := resources(map[string]string{"cpu": "6", "memory": "4Gi", "ephemeral-storage": "10Gi"}, nil).Requests
	for _, test := range []struct {
		container, pod          map[string]string // limits
		resource, divisor, want string
	}{
		{nil, nil, "limits.cpu", "", "6"},
		{nil, nil, "limits.memory", "", "4294967296"},
		{nil, nil, "limits.ephemeral-storage", "1Gi", "10"},
		{map[string]string{"cpu": "0", "memory": "0"}, nil, "limits.cpu", "", "6"},
		{map[string]string{"cpu": "0", "memory": "0"}, nil, "limits.memory", "1Mi", "4096"},
		{map[string]string{"cpu": "1"}, nil, "limits.cpu", "", "1"},
		{map[string]string{"cpu": "1"}, nil, "limits.memory", "1Gi", "4"},
		{map[string]string{"memory": "1Mi"}, nil, "limits.memory", "1Ki", "1024"},
		{map[string]string{"memory": "1Mi"}, nil, "limits.cpu", "1m", "6000"},
		{map[string]string{"cpu": "1500m"}, nil, "limits.cpu", "", "2"},
		{map[string]string{"cpu": "1500m"}, nil, "limits.cpu", "1m", "1500"},
		{map[string]string{"memory": "1025Ki"}, nil, "limits.memory", "1Mi", "2"},
		{nil, map[string]string{"cpu": "3", "memory": "2Gi"}, "limits.cpu", "", "3"},
		{nil, map[string]string{"cpu": "3"}, "limits.memory", "1Gi", "4"},
		{map[string]string{"cpu": "1"}, map[string]string{"cpu": "3"}, "limits.cpu", "", "1"},
		{map[string]string{"cpu": "1"}, nil, "requests.cpu", "", "0"},
		{nil, nil, "requests.memory", "1Mi", "0"},
	} {
		c := v1.Container{Name: "main", Resources: resources(nil, test.container)}
		pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{c}}}
		if test.pod != nil {
			r := resources(nil, test.pod)
			pod.Spec.Resources = &r
		}
		ref := &v1.ResourceFieldSelector{Resource: test.resource}
		if test.divisor != "" {
			ref.Divisor = resource.MustParse(test.divisor)
		}
		if got, err := ResourceField(pod, &c, ref, node); err != nil || got != test.want {
			t.Errorf("%+v: %s, %v", test, got, err)
		}
	}
	if got, err := ResourceField(&v1.Pod{}, &v1.Container{}, &v1.ResourceFieldSelector{Resource: "shares.cpu"}, node); err == nil {
		t.Errorf("shares.cpu: %s", got)
	}
}

// Shares have the kernel's minimum, and a container's status shows again what it was
// given.
func TestSharesAndQuotas(t *testing.T) {
	for milli, want := range map[int64]int64{0: 2, 1: 2, 2: 2, 3: 3, 4: 4, 32: 32, 64: 65, 100: 102, 250: 256, 500: 512, 1000: 1024, 1500: 1536, 2000: 2048} {
		if got := CPUShares(milli); got != want {
			t.Errorf("%dm are %d shares, want %d", milli, got, want)
		}
	}
	c := &v1.Container{Name: "main", Resources: resources(map[string]string{"cpu": "9"}, map[string]string{"cpu": "9"})} // to be
	for milli, want := range map[int64]int64{0: 0, 5: 1000, 9: 1000, 10: 1000, 200: 20000, 500: 50000, 1000: 100000, 1500: 150000} {
		if got := cpuQuota(milli, defaultPeriod); got != want {
			t.Errorf("%dm are a quota of %d, want %d", milli, got, want)
		}
	}
	for milli := int64(10); milli <= 2000; milli++ {
		period := int64(defaultPeriod)
		if milli >= 200 { // of less, the period of 5 ms makes the least quota
			period = 5000
		}
		has := ToRequirements(c, &runtimeapi.LinuxContainerResources{CpuShares: CPUShares(milli), CpuQuota: cpuQuota(milli, period), CpuPeriod: period})
		if request, limit := has.Requests.Cpu().MilliValue(), has.Limits.Cpu().MilliValue(); request != milli || limit != milli {
			t.Fatalf("%dm are shown as a request of %dm and a limit of %dm", milli, request, limit)
		}
	}
}
