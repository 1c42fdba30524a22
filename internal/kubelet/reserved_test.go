package kubelet

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/coracle-io/coracle/internal/kubelet/cgroup"
	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/spec"
)

// reservedConfig enforces what is reserved for the system and for Kubernetes, on
// a machine with the given control groups.
func reservedConfig(t *testing.T, groups ...string) (*Config, *cgroup.Memory) {
	t.Helper()
	machine, memory := &files.Memory{}, &cgroup.Memory{}
	for _, path := range groups {
		if err := machine.MkdirAll("/sys/fs/cgroup/"+path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c := &Config{Files: machine, Groups: memory}
	k := &c.Configuration
	k.EnforceNodeAllocatable = []string{"pods", "system-reserved", "kube-reserved-compressible"}
	k.SystemReserved, k.SystemReservedCgroup = map[string]string{"cpu": "500m", "memory": "1Gi", "pid": "1000"}, "/system.slice"
	k.KubeReserved, k.KubeReservedCgroup = map[string]string{"cpu": "250m", "memory": "1Gi"}, "/kube.slice"
	singleProcess := true
	k.SingleProcessOOMKill = &singleProcess
	return c, memory
}

// The groups of others get what is reserved for them, and keep the limits that have
// nothing to do with it.
func TestReservedGroupsAreLimited(t *testing.T) {
	c, groups := reservedConfig(t, "memory/system.slice", "kube.slice")
	if err := groups.Apply("/kube.slice", &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 2 << 30, CpuQuota: 5000, CpuPeriod: 10000}, 0); err != nil {
		t.Fatal(err)
	}
	if err := c.checkMachine(); err != nil {
		t.Error(err)
	}
	if err := c.limitReserved(); err != nil {
		t.Fatal(err)
	}
	if got := groups.Get("/system.slice"); got.GetCpuShares() != 512 || got.GetMemoryLimitInBytes() != 1<<30 || got.GetUnified()["memory.min"] != "1073741824" {
		t.Errorf("the system's group has %v", got)
	}
	if got := groups.Get("/kube.slice"); got.GetCpuShares() != 256 || got.GetMemoryLimitInBytes() != 2<<30 || got.GetCpuQuota() != 5000 || len(got.GetUnified()) > 0 {
		t.Errorf("the group with compressible resources alone has %v", got)
	}
	c.Configuration.FeatureGates = map[string]bool{"MemoryQoS": false}
	if err := c.limitReserved(); err != nil {
		t.Fatal(err)
	}
	if got := groups.Get("/system.slice"); got.GetMemoryLimitInBytes() != 1<<30 || len(got.GetUnified()) > 0 {
		t.Errorf("without MemoryQoS, the system's group has %v", got)
	}
}

// The kubelet does not make the groups of others.
func TestReservedGroupIsMissing(t *testing.T) {
	c, _ := reservedConfig(t, "memory/system.slice")
	if err := c.checkMachine(); err == nil || !strings.Contains(err.Error(), `kubeReservedCgroup (--kube-reserved-cgroup) "/kube.slice"`) {
		t.Errorf("the error is %v", err)
	}
}

// The control groups of the kubelet and of the container runtime are known if the machine
// has them.
func TestSystemCGroups(t *testing.T) {
	c, _ := reservedConfig(t, "memory/system.slice/kubelet.service", "runtime.slice")
	if err := c.Files.MkdirAll("/proc/self", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ memberships, runtime, want string }{
		{"0::/system.slice/kubelet.service\n", "/runtime.slice", "/system.slice/kubelet.service /runtime.slice"},
		{"0::/gone\n", "/gone", " "},
		{"", "", " "},
	} {
		if err := c.Files.WriteFile("/proc/self/cgroup", []byte(test.memberships), 0o644); err != nil {
			t.Fatal(err)
		}
		c.RuntimeProcess.CGroup = test.runtime
		kubelet, runtime := c.systemCGroups()
		if got := kubelet + " " + runtime; got != test.want {
			t.Errorf("%q: got %q, want %q", test.memberships, got, test.want)
		}
	}
}

// On version 2, all processes of a container that runs out of memory end, unless
// the configuration says otherwise. Version 1 cannot do it.
func TestSingleProcessOOMKill(t *testing.T) {
	yes, no := true, false
	for _, test := range []struct {
		unified bool
		given   *bool
		single  bool
		fails   bool
	}{
		{unified: true, single: false}, {unified: true, given: &yes, single: true}, {single: true}, {given: &yes, single: true}, {given: &no, fails: true},
	} {
		b := newBench(t)
		if test.unified {
			if err := b.files.MkdirAll("/sys/fs/cgroup/cgroup.controllers", 0o755); err != nil {
				t.Fatal(err)
			}
		}
		off := false
		c := Config{NodeName: nodeName, Files: b.files, Mounter: b.files, Groups: b.groups, Configuration: kubeletconfig.KubeletConfiguration{SingleProcessOOMKill: test.given, FailSwapOn: &off}}
		err := c.Complete()
		if test.fails {
			if err == nil || !strings.Contains(err.Error(), "singleProcessOOMKill must not be explicitly set to false when using cgroup v1") {
				t.Errorf("%+v: the error is %v", test, err)
			}
			continue
		}
		if err != nil || *c.Configuration.SingleProcessOOMKill != test.single {
			t.Errorf("%+v: %t (%v)", test, *c.Configuration.SingleProcessOOMKill, err)
		}
	}
}

// MemoryQoS has no effect without control groups of version 2, or without its gate.
func TestMemoryQoSNeedsVersion2(t *testing.T) {
	for _, test := range []struct{ unified, gate, on bool }{{true, true, true}, {false, true, false}, {true, false, false}} {
		b := newBench(t)
		if test.unified {
			if err := b.files.MkdirAll("/sys/fs/cgroup/cgroup.controllers", 0o755); err != nil {
				t.Fatal(err)
			}
		}
		c := Config{NodeName: nodeName, NodeIPs: []string{"192.0.2.1"}, Files: b.files, Mounter: b.files, Groups: b.groups, Configuration: kubeletconfig.KubeletConfiguration{
			FailSwapOn: new(false), MemoryThrottlingFactor: new(0.9), FeatureGates: map[string]bool{"MemoryQoS": test.gate},
		}}
		if test.gate {
			c.Configuration.MemoryReservationPolicy = kubeletconfig.TieredReservationMemoryReservationPolicy
		}
		if err := c.Complete(); err != nil {
			t.Fatal(err)
		}
		if throttles, reserves := c.Configuration.MemoryThrottlingFactor != nil, spec.TieredReservation(&c.Configuration); throttles != test.on || reserves != test.on {
			t.Errorf("%+v: throttles %t, reserves %t", test, throttles, reserves)
		}
	}
}

// An event says whether all pods together have their limit of memory. It waits while
// they use more.
func TestLimitOfAllPodsIsReported(t *testing.T) {
	const done = "Updated Node Allocatable limit across pods"
	const waits = "Failed to update Node Allocatable Limits: all pods together use more memory than that, will try again as they are evicted"
	for name, test := range map[string]struct {
		used         uint64
		enforced     []string
		done, failed []string
	}{
		"less":        {used: 5 << 30, enforced: []string{"pods"}, done: []string{done}},
		"more":        {used: 7 << 30, enforced: []string{"pods"}, failed: []string{waits}},
		"no such one": {used: 7 << 30, enforced: []string{"none"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				b.configure = func(c *Config) {
					c.Configuration.KubeReserved, c.Configuration.EnforceNodeAllocatable = map[string]string{"memory": "2Gi"}, test.enforced
					c.Groups = using{c.Groups, map[string]uint64{"/kubepods": test.used}}
				}
				events := b.record()
				b.start()
				defer func() { b.stop() }()
				b.after(time.Second)
				if done, failed := events("NodeAllocatableEnforced"), events("FailedNodeAllocatableEnforcement"); !slices.Equal(done, test.done) || !slices.Equal(failed, test.failed) {
					t.Errorf("the events are %q and %q, want %q and %q", done, failed, test.done, test.failed)
				}
			})
		})
	}
}
