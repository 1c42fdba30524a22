package cgroup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/coracle-io/coracle/test/mark"
)

// hierarchy is a folder that looks like version 2, as far as files can.
func hierarchy(t *testing.T, controllers string) *Kernel {
	t.Helper()
	root := t.TempDir()
	at := root
	for _, element := range []string{"", "kubepods", "burstable", "podx"} {
		at = filepath.Join(at, element)
		if err := os.MkdirAll(at, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, content := range map[string]string{"cgroup.controllers": controllers, "cgroup.subtree_control": ""} {
			if err := os.WriteFile(filepath.Join(at, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return &Kernel{root: root, unified: true}
}

func TestApplyVersion2(t *testing.T) {
	k := hierarchy(t, "cpuset cpu io memory pids")
	if err := k.Apply("/kubepods/burstable/podx", &runtimeapi.LinuxContainerResources{CpuShares: 512, CpuQuota: 10000, CpuPeriod: 100000, MemoryLimitInBytes: 1 << 20}, 100); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"cpu.weight": "20", "cpu.max": "10000 100000", "memory.max": "1048576", "pids.max": "100"} {
		if raw, err := os.ReadFile(filepath.Join(k.root, "kubepods/burstable/podx", name)); err != nil || string(raw) != want {
			t.Errorf("%s is %q (%v), want %q", name, raw, err, want)
		}
	}
}

// In version 2, a pod gets the limits of its resources, and all pods together those of
// the node. Each group above a pod's passes the controllers on.
func TestPodsOfVersion2(t *testing.T) {
	k := hierarchy(t, "cpuset cpu io memory pids hugetlb")
	p := &Pods{
		Groups: k,
		Configuration: &kubeletconfig.KubeletConfiguration{
			CgroupRoot: "/", CgroupsPerQOS: new(true), CPUCFSQuota: new(true), EnforceNodeAllocatable: []string{"pods"}, PodPidsLimit: new(int64(100)),
			KubeReserved: map[string]string{"cpu": "500m", "memory": "256Mi", "pid": "60"},
			EvictionHard: map[string]string{"memory.available": "100Mi"}, // pods may use it until they are evicted
		},
		Capacity: func() (v1.ResourceList, error) {
			return v1.ResourceList{v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("1Gi")}, nil
		},
		MaxPIDs: func() (int64, error) { return 1000, nil },
	}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "x"}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{
		Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("250m"), v1.ResourceMemory: resource.MustParse("64Mi")},
		Limits:   v1.ResourceList{v1.ResourceCPU: resource.MustParse("500m"), v1.ResourceMemory: resource.MustParse("128Mi")},
	}}}}}
	for _, err := range []error{p.ApplyClasses([]*v1.Pod{pod}), p.Apply(pod)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"cgroup.subtree_control": "+hugetlb", "kubepods/cgroup.subtree_control": "+hugetlb", "kubepods/burstable/cgroup.subtree_control": "+hugetlb", // the last of them
		"kubepods/cpu.weight": "59", "kubepods/cpu.max": "max", "kubepods/memory.max": "805306368", "kubepods/pids.max": "940",
		"kubepods/burstable/cpu.weight": "10", "kubepods/burstable/memory.max": "max", "kubepods/burstable/pids.max": "",
		"kubepods/besteffort/cpu.weight": "1", "kubepods/besteffort/memory.max": "max",
		"kubepods/burstable/podx/cpu.weight": "10", "kubepods/burstable/podx/cpu.max": "50000 100000",
		"kubepods/burstable/podx/memory.max": "134217728", "kubepods/burstable/podx/pids.max": "100",
	} {
		raw, err := os.ReadFile(filepath.Join(k.root, name))
		if string(raw) != want || err != nil && want != "" {
			t.Errorf("%s is %q (%v), want %q", name, raw, err, want)
		}
	}
	use(t, k, 300)
	if left, limit, err := p.Memory(); err != nil || limit != 805306368 || left != limit-200 {
		t.Errorf("%d of %d bytes are left (%v)", left, limit, err)
	}
}

// use has all pods of a hierarchy use so many bytes of memory, of which the kernel can
// take 100 back.
func use(t *testing.T, k *Kernel, bytes int) {
	t.Helper()
	for name, content := range map[string]string{"memory.current": fmt.Sprintln(bytes), "memory.stat": "inactive_file 100\n"} {
		if err := os.WriteFile(filepath.Join(k.root, "kubepods", name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// The pods of an earlier kubelet, which had less reserved, may use more memory together
// than they may now. Their limit waits until they use less, as the kernel would kill any
// of them for it, but they have no memory left, for which they are evicted.
func TestLimitBelowWhatPodsUse(t *testing.T) {
	k := hierarchy(t, "cpuset cpu io memory pids")
	p := &Pods{
		Groups: k,
		Configuration: &kubeletconfig.KubeletConfiguration{
			CgroupRoot: "/", CgroupsPerQOS: new(true), EnforceNodeAllocatable: []string{"pods"}, KubeReserved: map[string]string{"memory": "1000"},
		},
		Capacity: func() (v1.ResourceList, error) {
			return v1.ResourceList{v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("5000")}, nil
		},
		MaxPIDs: func() (int64, error) { return 1000, nil },
	}
	for _, step := range []struct {
		use, left int
		limit     string
	}{
		{4101, 0, "9000"}, {5000, 0, "9000"}, {4100, 0, "4000"},
		{4200, 0, "4000"}, {600, 3500, "4000"}, // the limit has been set
	} {
		use(t, k, step.use)
		if step.limit == "9000" { // of the earlier kubelet
			if err := os.WriteFile(filepath.Join(k.root, "kubepods/memory.max"), []byte(step.limit), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.ApplyClasses(nil); err != nil {
			t.Fatal(err)
		}
		raw, err := os.ReadFile(filepath.Join(k.root, "kubepods/memory.max"))
		if enforced := p.Enforced(); err != nil || string(raw) != step.limit || enforced != (step.limit == "4000") {
			t.Errorf("pods that use %d bytes have the limit %s (%v), enforced: %t; want %s", step.use, raw, err, enforced, step.limit)
		}
		if left, limit, err := p.Memory(); err != nil || left != int64(step.left) || limit != 4000 {
			t.Errorf("of pods that use %d bytes, %d of %d are left (%v), want %d of 4000", step.use, left, limit, err, step.left)
		}
		if raw, err := os.ReadFile(filepath.Join(k.root, "kubepods/besteffort/cpu.weight")); err != nil || string(raw) != "1" {
			t.Errorf("best-effort pods have the weight %s (%v) as pods use %d bytes", raw, err, step.use)
		}
	}
}

func TestApplyVersion2NamesWhatIsMissing(t *testing.T) {
	k := hierarchy(t, "cpuset cpu io pids")
	err := k.Apply("/kubepods/burstable/podx", &runtimeapi.LinuxContainerResources{}, 0)
	if err == nil || !strings.Contains(err.Error(), "does not have the controller memory") {
		t.Errorf("without the memory controller: %v", err)
	}
}

// Of a group of others, the controls change that are given. Those of a pod are lifted
// if they are not given.
func TestLimitLeavesOtherControls(t *testing.T) {
	const group = "/kubepods"
	first, second := &Kernel{root: t.TempDir()}, hierarchy(t, "cpu memory pids")
	for _, controller := range []string{"cpu", "memory", "pids"} {
		if err := os.MkdirAll(filepath.Join(first.root, controller, group), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(first.root, controller, "cgroup.procs"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, version := range []struct {
		k                     *Kernel
		shares, quota, memory string // their files
		weight, none          string
	}{
		{first, "cpu/kubepods/cpu.shares", "cpu/kubepods/cpu.cfs_quota_us", "memory/kubepods/memory.limit_in_bytes", "512", "-1"},
		{second, "kubepods/cpu.weight", "kubepods/cpu.max", "kubepods/memory.max", "20", "max"},
	} {
		names := []string{version.shares, version.quota, version.memory}
		for _, name := range names {
			if err := os.WriteFile(filepath.Join(version.k.root, name), []byte("own"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for _, step := range []struct {
			set  func(string, *runtimeapi.LinuxContainerResources, int64) error
			r    *runtimeapi.LinuxContainerResources
			want []string
		}{
			{version.k.Limit, &runtimeapi.LinuxContainerResources{}, []string{"own", "own", "own"}},
			{version.k.Limit, &runtimeapi.LinuxContainerResources{CpuShares: 512}, []string{version.weight, "own", "own"}},
			{version.k.Limit, &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 8192, Unified: map[string]string{"memory.min": "4096"}}, []string{version.weight, "own", "8192"}},
			{version.k.Apply, &runtimeapi.LinuxContainerResources{}, []string{version.weight, version.none, version.none}},
		} {
			if err := step.set(group, step.r, 0); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, name := range names {
				raw, err := os.ReadFile(filepath.Join(version.k.root, name))
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, string(raw))
			}
			if !slices.Equal(got, step.want) {
				t.Errorf("after %v, %s are %q, want %q", step.r, names, got, step.want)
			}
		}
		raw, err := os.ReadFile(filepath.Join(version.k.root, "kubepods/memory.min"))
		if version.k.unified != (err == nil && string(raw) == "4096") {
			t.Errorf("version 2 %t: memory.min is %q (%v)", version.k.unified, raw, err)
		}
	}
}

// A group gets a quota in another period, also while groups below it have theirs in the
// former one.
func TestPeriodChanges(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("control groups need root")
	}
	k, err := Detect()
	if err != nil {
		t.Skip(err)
	}
	pod := "/" + mark.Name("period")
	t.Cleanup(func() { untilDone(t, func() error { return k.Remove(pod) }) })
	for _, period := range []int64{10_000, 100_000, 1000, 100_000} {
		for _, group := range []string{pod, pod + "/container"} {
			if err := k.Apply(group, &runtimeapi.LinuxContainerResources{CpuQuota: period, CpuPeriod: period}, 0); err != nil {
				t.Fatal(err)
			}
			names, want := []string{"cpu.cfs_quota_us", "cpu.cfs_period_us"}, []string{fmt.Sprint(period), fmt.Sprint(period)}
			at := filepath.Join(k.root, "cpu", group)
			if k.unified {
				names, at = []string{"cpu.max"}, filepath.Join(k.root, group)
			}
			var got []string
			for _, name := range names {
				got = append(got, fields(filepath.Join(at, name))...)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s has %v, want %v", group, got, want)
			}
		}
	}
}

// A pod has no huge pages of the sizes that its limits leave out. Other groups keep
// their limits.
func TestLimitsOfHugePages(t *testing.T) {
	const group = "/kubepods/burstable/podx"
	first, second := &Kernel{root: t.TempDir()}, hierarchy(t, "cpu memory pids hugetlb")
	if err := os.MkdirAll(filepath.Join(first.root, "hugetlb", group), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(first.root, "hugetlb/cgroup.procs"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, version := range []struct {
		k           *Kernel
		dir, suffix string
	}{
		{first, filepath.Join(first.root, "hugetlb", group), ".limit_in_bytes"},
		{second, filepath.Join(second.root, group), ".max"},
	} {
		sizes := []string{"1GB", "2MB", "2MB.rsvd"}
		for _, size := range sizes {
			if err := os.WriteFile(filepath.Join(version.dir, "hugetlb."+size+version.suffix), []byte("all"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for _, test := range []struct {
			limits []*runtimeapi.HugepageLimit
			want   string
		}{
			{nil, "all all all"},
			{[]*runtimeapi.HugepageLimit{{PageSize: "2MB", Limit: 4 << 20}}, "0 4194304 4194304"},
			{[]*runtimeapi.HugepageLimit{}, "0 0 0"},
		} {
			if err := version.k.Apply(group, &runtimeapi.LinuxContainerResources{HugepageLimits: test.limits}, 0); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, size := range sizes {
				raw, err := os.ReadFile(filepath.Join(version.dir, "hugetlb."+size+version.suffix))
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, string(raw))
			}
			if strings.Join(got, " ") != test.want {
				t.Errorf("%s of %v: %q, want %s", version.suffix, test.limits, got, test.want)
			}
		}
	}
}

func TestUsageVersion2(t *testing.T) {
	k := hierarchy(t, "")
	dir := filepath.Join(k.root, "kubepods")
	for name, content := range map[string]string{
		"memory.current": "1000\n", "memory.peak": "2000\n", "memory.stat": "anon 300\nfile 400\nfile_mapped 50\ninactive_file 100\npgfault 7\npgmajfault 2\n",
		"memory.events": "low 0\nmax 3\n", "memory.swap.current": "5\n", "pids.current": "4\n",
		"cpu.stat": "usage_usec 30\nuser_usec 20\nsystem_usec 10\nnr_periods 6\nnr_throttled 1\nthrottled_usec 2\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := k.Usage("/kubepods")
	want := Usage{
		CPUNanoseconds: 30000, UserNanoseconds: 20000, SystemNanoseconds: 10000, Periods: 6, ThrottledPeriods: 1, ThrottledNanoseconds: 2000,
		MemoryBytes: 1000, WorkingSetBytes: 900, RSSBytes: 300, CacheBytes: 400, MappedBytes: 50, SwapBytes: 5, PeakBytes: 2000, MemoryFailures: 3,
		PageFaults: 7, MajorPageFaults: 2, Processes: 4,
	}
	if err != nil || got != want {
		t.Errorf("usage %+v, %v\nwant %+v", got, err, want)
	}
}

// What the kernel does not measure, such as the pressure of I/O here, is nil.
func TestPressure(t *testing.T) {
	k := hierarchy(t, "")
	for name, content := range map[string]string{
		"cpu.pressure":    "some avg10=1.50 avg60=2.00 avg300=0.25 total=7\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
		"memory.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=9\nfull avg10=3.00 avg60=0.00 avg300=0.00 total=5\n",
	} {
		if err := os.WriteFile(filepath.Join(k.root, "kubepods", name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := k.Usage("/kubepods")
	if err != nil {
		t.Fatal(err)
	}
	if p := got.CPUPressure; p == nil || *p != (Pressure{Some: Stall{1.5, 2, 0.25, 7000}}) {
		t.Errorf("CPU %+v", p)
	}
	if p := got.MemoryPressure; p == nil || *p != (Pressure{Some: Stall{Nanoseconds: 9000}, Full: Stall{Avg10: 3, Nanoseconds: 5000}}) {
		t.Errorf("memory %+v", p)
	}
	if got.IOPressure != nil {
		t.Errorf("I/O %+v", got.IOPressure)
	}
	if alone := k.Pressures("/kubepods"); !reflect.DeepEqual(alone, got.Pressures) {
		t.Errorf("alone %+v, with the usage %+v", alone, got.Pressures)
	}
}

// TestKnown lists the pods that have groups in any hierarchy.
func TestKnown(t *testing.T) {
	const (
		a = "11111111-1111-1111-1111-111111111111"
		b = "22222222-2222-2222-2222-222222222222"
	)
	k := &Kernel{root: t.TempDir()}
	for _, dir := range []string{
		"cpu/r/kubepods/pod" + a, "memory/r/kubepods/pod" + a + "/container", "memory/r/kubepods/burstable/pod" + b,
		"systemd/r/kubepods/besteffort/other", "memory/r/kubepods/burstable/podman",
	} {
		if err := os.MkdirAll(filepath.Join(k.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p := &Pods{Groups: k, Configuration: &kubeletconfig.KubeletConfiguration{CgroupRoot: "/r", CgroupsPerQOS: new(true)}}
	if known, err := p.Known(); err != nil || !slices.Equal(known, []types.UID{a, b}) {
		t.Errorf("known are %v, %v", known, err)
	}
	if err := p.Remove(a); err != nil {
		t.Fatal(err)
	}
	if known, err := p.Known(); err != nil || !slices.Equal(known, []types.UID{b}) {
		t.Errorf("known are %v, %v", known, err)
	}
}

// TestKill kills the processes of a group and of its children, and spares itself
// and process 1.
func TestKill(t *testing.T) {
	const pod = "11111111-1111-1111-1111-111111111111"
	start := func() *exec.Cmd {
		c := exec.Command("cat")
		in, err := c.StdinPipe() // cat ends with its input
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = in.Close(); _ = c.Wait() })
		return c
	}
	left, child, other := start(), start(), start()
	k := &Kernel{root: t.TempDir()}
	for group, procs := range map[string]string{
		"pids/r/kubepods/besteffort/pod" + pod:              fmt.Sprintf("0\n1\n%d\n%d\n", os.Getpid(), left.Process.Pid),
		"pids/r/kubepods/besteffort/pod" + pod + "/c":       fmt.Sprintln(child.Process.Pid),
		"pids/r/kubepods/besteffort/pod" + pod[:35] + "2/c": fmt.Sprintln(other.Process.Pid),
	} {
		dir := filepath.Join(k.root, group)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(procs), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.Kill("/r/kubepods/besteffort/pod" + pod); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*exec.Cmd{left, child} {
		var ended *exec.ExitError
		if err := c.Wait(); !errors.As(err, &ended) || ended.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Errorf("process %d ended with %v", c.Process.Pid, err)
		}
	}
	if err := other.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("a process of another pod: %v", err)
	}
	if err := k.Kill("/r/kubepods/besteffort/gone"); err != nil {
		t.Errorf("a missing group: %v", err)
	}
}

// In version 2, the kernel kills a group with its children at once, so that no process
// escapes by forking.
func TestKillVersion2(t *testing.T) {
	const group = "/kubepods/burstable/podx"
	k := hierarchy(t, "")
	file := filepath.Join(k.root, group, "cgroup.kill")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := k.Kill(group); err != nil {
		t.Fatal(err)
	}
	if raw, err := os.ReadFile(file); err != nil || string(raw) != "1" {
		t.Errorf("cgroup.kill is %q (%v)", raw, err)
	}
	if err := k.Kill("/kubepods/gone"); err != nil {
		t.Errorf("a missing group: %v", err)
	}
}

// Shares of version 1 and weights of version 2 have the same ends (KEP-2254).
func TestCPUWeights(t *testing.T) {
	for shares, want := range map[int64]int64{2: 1, 102: 4, 512: 20, 1024: 39, 2048: 79, 262144: 10000} {
		if got := cpuWeight(shares); got != want {
			t.Errorf("%d shares are a weight of %d, want %d", shares, got, want)
		}
	}
}

// A pod has a group below that of its QoS class.
func TestPaths(t *testing.T) {
	for class, want := range map[v1.PodQOSClass]string{
		v1.PodQOSGuaranteed: "/r/kubepods/podx", v1.PodQOSBurstable: "/r/kubepods/burstable/podx", v1.PodQOSBestEffort: "/r/kubepods/besteffort/podx",
	} {
		if got := Pod("r", class, "x"); got != want {
			t.Errorf("%s: %s, want %s", class, got, want)
		}
	}
	p := &Pods{Configuration: &kubeletconfig.KubeletConfiguration{CgroupRoot: "/", CgroupsPerQOS: new(false)}}
	if got := p.Parent(&v1.Pod{}); got != "" {
		t.Errorf("without groups for QoS classes a pod's is %s", got)
	}
}
