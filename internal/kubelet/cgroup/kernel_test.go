package cgroup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
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

func TestApplyVersion2NamesWhatIsMissing(t *testing.T) {
	k := hierarchy(t, "cpuset cpu io pids")
	err := k.Apply("/kubepods/burstable/podx", &runtimeapi.LinuxContainerResources{}, 0)
	if err == nil || !strings.Contains(err.Error(), "does not have the controller memory") {
		t.Errorf("without the memory controller: %v", err)
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
