package kubelet

import (
	"context"
	"fmt"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/coracle-io/coracle/internal/kubelet/cgroup"
	"github.com/coracle-io/coracle/internal/kubelet/cri/inmemory/inmemorytest"
	"github.com/coracle-io/coracle/internal/kubelet/devicemanager/checkpoint"
	"github.com/coracle-io/coracle/internal/kubelet/files"
)

// guaranteed returns a change of a pod that makes it guaranteed.
func guaranteed(cpu string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		list := v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse("1Gi")}
		p.Spec.Containers[0].Resources = v1.ResourceRequirements{Limits: list, Requests: list}
	}
}

// static makes the kubelets of a bench place containers on a machine of two NUMA
// nodes of two CPUs.
func static(b *bench) {
	content := map[string]string{"/sys/devices/system/cpu/online": "0-3"}
	for node, cpus := range []string{"0-1", "2-3"} {
		dir := fmt.Sprintf("/sys/devices/system/node/node%d/", node)
		content[dir+"cpulist"], content[dir+"distance"] = cpus, "10 20"
		content[dir+"meminfo"] = fmt.Sprintf("Node %d MemTotal: %d kB", node, 4<<20)
	}
	for name, text := range content {
		if err := b.files.MkdirAll(path.Dir(name), 0o755); err != nil {
			b.t.Fatal(err)
		}
		if err := b.files.WriteFile(name, []byte(text+"\n"), 0o444); err != nil {
			b.t.Fatal(err)
		}
	}
	b.configure = func(c *Config) {
		k := &c.Configuration
		k.CPUManagerPolicy, k.MemoryManagerPolicy, k.TopologyManagerPolicy = "static", "Static", "single-numa-node"
		k.ReservedSystemCPUs = "0"
		k.ReservedMemory = []kubeletconfig.MemoryReservation{{NumaNode: 0, Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse("100Mi")}}}
	}
}

// placed returns the CPUs and memory nodes that the container of a pod was
// created with, and the CPUs that it has now.
func (b *bench) placed(name string) string {
	b.t.Helper()
	list, _ := b.runtime.ListContainers(b.t.Context(), nil)
	for _, c := range list {
		if c.GetLabels()["io.kubernetes.pod.name"] != name {
			continue
		}
		r := b.runtime.Config(c.GetId()).GetLinux().GetResources()
		status, err := b.runtime.ContainerStatus(b.t.Context(), c.GetId(), false)
		if err != nil {
			b.t.Fatal(err)
		}
		return fmt.Sprintf("%s/%s now %s", r.GetCpusetCpus(), r.GetCpusetMems(), status.GetStatus().GetResources().GetLinux().GetCpusetCpus())
	}
	return ""
}

// A guaranteed pod runs on CPUs and memory of its own, of one NUMA node. The
// others keep to the rest, also after a restart of the kubelet.
func TestPodsArePlaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		static(b)
		b.start()
		defer func() { b.stop() }()
		b.create(pod("shared"))
		b.create(pod("exclusive", guaranteed("2")))
		expect := func(name, want string) {
			t.Helper()
			if got := b.placed(name); got != want {
				t.Errorf("%s runs on %s, want %s", name, got, want)
			}
		}
		expect("exclusive", "2-3/1 now 2-3")
		expect("shared", "0-3/ now 0-1")
		b.create(pod("late", guaranteed("1"), func(p *v1.Pod) { // no node has all of this memory
			p.Spec.Containers[0].Resources.Requests[v1.ResourceMemory] = resource.MustParse("4Gi")
		}))
		p := b.get("late")
		if p.Status.Phase != v1.PodFailed || p.Status.Reason != "TopologyAffinityError" || p.Status.Message != "Pod was rejected: Resources cannot be allocated with Topology locality" {
			t.Errorf("a pod without room is %s: %s: %s", p.Status.Phase, p.Status.Reason, p.Status.Message)
		}
		b.stop()
		b.start()
		expect("exclusive", "2-3/1 now 2-3")
		b.create(pod("small", guaranteed("1")))
		expect("small", "1/0 now 1")
		b.delete("exclusive", 0)
		b.after(time.Second)
		expect("shared", "0-3/ now 0,2-3")
		raw, err := b.files.ReadFile("/var/lib/kubelet/cpu_manager_state", 1<<20)
		if err != nil || !strings.Contains(string(raw), `"defaultCpuSet":"0,2-3","entries":{"uid-small":{"main":"1"}}`) {
			t.Errorf("the state is %s (%v)", raw, err)
		}
		node, err := b.api.CoreV1().Nodes().Get(t.Context(), nodeName, metav1.GetOptions{})
		if cpu := node.Status.Allocatable[v1.ResourceCPU]; err != nil || cpu.Value() != 3 {
			t.Errorf("allocatable are %s CPUs (%v)", cpu.String(), err)
		}
	})
}

// A container with CPUs of its own has no quota of CPU time, and neither has its pod.
func TestOwnCPUsAreNotThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		static(b)
		b.start()
		defer func() { b.stop() }()
		b.create(pod("own", guaranteed("2")))
		b.create(pod("shared", guaranteed("500m")))
		created := func(name string) int64 {
			list, err := b.runtime.ListContainers(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range list {
				if c.GetLabels()["io.kubernetes.pod.name"] == name {
					return b.runtime.Config(c.GetId()).GetLinux().GetResources().GetCpuQuota()
				}
			}
			return 0
		}
		group := func(name string) int64 {
			return b.groups.Get(cgroup.Pod("", v1.PodQOSGuaranteed, b.get(name).UID)).GetCpuQuota()
		}
		if own, shared := created("own"), created("shared"); own != -1 || shared != 50_000 || group("own") != 0 || group("shared") != 50_000 {
			t.Errorf("the quotas are %d and %d, of their pods %d and %d, want -1 and 50000, 0 and 50000", own, shared, group("own"), group("shared"))
		}
	})
}

// A guaranteed pod is not resized in place where it has CPUs of its own.
func TestPlacedPodIsNotResized(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		static(b)
		b.start()
		defer func() { b.stop() }()
		b.create(pod("p", guaranteed("1")))
		p := b.get("p").DeepCopy()
		p.Generation++
		guaranteed("2")(p)
		if _, err := b.api.CoreV1().Pods("default").Update(t.Context(), p, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		b.after(time.Second)
		for _, c := range b.get("p").Status.Conditions {
			if c.Type == v1.PodResizePending && c.Reason == v1.PodReasonInfeasible && c.Message == `Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"` {
				return
			}
		}
		t.Errorf("the conditions are %v", b.get("p").Status.Conditions)
	})
}

// A guaranteed pod cannot be resized in what a manager has given it, but in the rest.
func TestFixedResources(t *testing.T) {
	of := func(cpu, memory, limit string) *v1.Pod {
		return pod("p", func(p *v1.Pod) {
			p.Spec.Containers[0].Resources = v1.ResourceRequirements{
				Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)},
				Limits:   v1.ResourceList{v1.ResourceCPU: resource.MustParse(limit), v1.ResourceMemory: resource.MustParse(memory)},
			}
		})
	}
	type reasons map[[2]string]string // by the policies of CPUs and of memory
	const cpus, memory = `cpu_manager CPU Manager policy "static"`, `memory_manager Memory Manager policy "Static"`
	neither, cpuAlone, memoryAlone, both := [2]string{"none", "None"}, [2]string{"static", "None"}, [2]string{"none", "Static"}, [2]string{"static", "Static"}
	for what, test := range map[string]struct {
		before, after *v1.Pod
		want          reasons
	}{
		"CPU":                       {of("1", "1Gi", "1"), of("2", "1Gi", "2"), reasons{cpuAlone: cpus, both: cpus}},
		"memory":                    {of("1", "1Gi", "1"), of("1", "2Gi", "1"), reasons{memoryAlone: memory, both: memory}},
		"CPU and memory":            {of("1", "1Gi", "1"), of("2", "512Mi", "2"), reasons{cpuAlone: cpus, memoryAlone: memory, both: cpus}},
		"the same, written anew":    {of("1", "1Gi", "1"), of("1000m", "1024Mi", "1"), reasons{}},
		"a pod that is burstable":   {of("500m", "1Gi", "1"), of("500m", "2Gi", "2"), reasons{}},
		"a request below the limit": {of("500m", "1Gi", "1"), of("600m", "1Gi", "1"), reasons{}},
	} {
		for _, policies := range [][2]string{neither, cpuAlone, memoryAlone, both} {
			p := &placement{fixed: fixedResources(&kubeletconfig.KubeletConfiguration{CPUManagerPolicy: policies[0], MemoryManagerPolicy: policies[1]})}
			for _, sidecar := range []bool{false, true} {
				before, after := test.before.DeepCopy(), test.after.DeepCopy()
				if sidecar {
					for _, one := range []*v1.Pod{before, after} {
						one.Spec.InitContainers, one.Spec.Containers = one.Spec.Containers, nil
					}
				}
				detail, message := p.ResizeInfeasible(after, before)
				got := strings.TrimSuffix(strings.TrimPrefix(detail, "guaranteed_pod_"), "_static_policy") + " " +
					strings.TrimPrefix(message, "Resize is infeasible for Guaranteed Pods alongside ")
				if got = strings.TrimSpace(got); got != test.want[policies] {
					t.Errorf("%s with the policies %q, sidecar %v: %q, want %q", what, policies, sidecar, got, test.want[policies])
				}
			}
		}
	}
}

// A pod that runs keeps running and keeps its devices when the kubelet starts
// before their plugin.
func TestPodKeepsDevicesWithoutPlugin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.start()
		defer func() { b.stop() }()
		b.create(pod("p", func(p *v1.Pod) {
			p.Spec.Containers[0].Resources.Limits = v1.ResourceList{"example.com/device": resource.MustParse("1")}
		}))
		b.stop()
		const file = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
		raw, err := checkpoint.Marshal([]checkpoint.PodDevicesEntry{
			{PodUID: "uid-p", ContainerName: "main", ResourceName: "example.com/device", DeviceIDs: checkpoint.DevicesPerNUMA{-1: {"one"}}}}, nil)
		if err == nil {
			err = b.files.MkdirAll(path.Dir(file), 0o750)
		}
		if err == nil {
			err = b.files.WriteFile(file, raw, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		b.start()
		b.after(time.Minute)
		if p := b.get("p"); p.Status.Phase != v1.PodRunning || p.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("the pod is %s: %s", p.Status.Phase, p.Status.Message)
		}
		if now, err := b.files.ReadFile(file, 1<<20); err != nil || string(now) != string(raw) {
			t.Errorf("the checkpoint is %s (%v), want %s", now, err, raw)
		}
	})
}

// stubborn is a runtime whose containers do not stop before released is closed, and
// that is slow to list all pods.
type stubborn struct {
	*inmemorytest.Runtime
	released chan struct{}
	listing  time.Duration // how long it takes to list all pods
}

func (r stubborn) ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	if filter == nil {
		time.Sleep(r.listing)
	}
	return r.Runtime.ListPodSandbox(ctx, filter)
}

func (r stubborn) StopContainer(ctx context.Context, id string, timeout int64) error {
	select {
	case <-r.released:
		return r.Runtime.StopContainer(ctx, id, timeout)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// The CPUs of a pod that was deleted are not given away while its containers run,
// also if it was deleted while no kubelet ran.
func TestEndingPodKeepsCPUs(t *testing.T) {
	for name, test := range map[string]struct {
		down    bool
		listing time.Duration
	}{"removed": {}, "orphan": {down: true}, "orphan that is found late": {true, 2 * time.Second}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				static(b)
				placed, released := b.configure, make(chan struct{})
				b.configure = func(c *Config) {
					placed(c)
					c.Runtime = stubborn{b.runtime, released, test.listing}
				}
				b.start()
				defer func() { b.stop() }()
				b.create(pod("first", guaranteed("2")))
				if test.down {
					b.stop()
				}
				if err := b.api.CoreV1().Pods("default").Delete(t.Context(), "first", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
					t.Fatal(err)
				}
				if test.down {
					b.start()
				}
				b.after(time.Second)
				b.create(pod("second", guaranteed("2")))
				if p := b.get("second"); p.Status.Reason != "TopologyAffinityError" {
					t.Errorf("while the first pod runs the second one is %s: %s, on %q", p.Status.Phase, p.Status.Reason, b.placed("second"))
				}
				close(released)
				b.after(time.Minute)
				b.create(pod("third", guaranteed("2")))
				if got := b.placed("third"); got != "2-3/1 now 2-3" {
					t.Errorf("after the first pod has ended the third one runs on %q", got)
				}
			})
		})
	}
}

// looking counts how often somebody looks for sockets.
type looking struct {
	files.FS
	looks atomic.Int32
}

// Sockets implements files.FS.
func (l *looking) Sockets(dir string, most int) ([]files.Socket, error) {
	l.looks.Add(1)
	return l.FS.Sockets(dir, most)
}

// A kubelet without sockets does not look for those of plugins: a thousand simulated nodes
// would do so a thousand times a second.
func TestNoSocketsNoPlugins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l := &looking{FS: b.files}
		b.configure = func(c *Config) { c.Files = l }
		b.start()
		defer func() { b.stop() }()
		b.after(time.Minute)
		if n := l.looks.Load(); n > 0 {
			t.Errorf("it has looked for sockets %d times", n)
		}
	})
}
