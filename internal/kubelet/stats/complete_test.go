package stats

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/coracle-io/coracle/internal/kubelet/cgroup"
	"github.com/coracle-io/coracle/internal/kubelet/node"
)

// The summary has the network traffic of a pod, the size of its logs and its
// swap usage.
func TestSummaryOfNetworkLogsAndSwap(t *testing.T) {
	p, runtime := newProvider(t)
	p.PodLogsDir = "/var/log/pods"
	p.Machine.(*node.Fixed).Mounts = map[string]node.FileSystem{p.PodLogsDir: {Bytes: 10, Total: 100}}
	log := "/var/log/pods/default_web_uid-web/main/0.log"
	if err := runtime.disk.MkdirAll(filepath.Dir(log), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := runtime.disk.WriteFile(log, []byte("1234567"), 0o644); err != nil {
		t.Fatal(err)
	}
	runtime.containers[0].Swap = &runtimeapi.SwapUsage{SwapUsageBytes: number(3)}
	runtime.containers[0].WritableLayer = &runtimeapi.FilesystemUsage{UsedBytes: number(1 << 20), InodesUsed: number(1000)}
	const kubepods, pod = "/kubepods", "/kubepods/besteffort/poduid-web"
	for _, path := range []string{"/", kubepods, pod} {
		usage := p.CGroups.Groups.(groups)[path]
		usage.SwapBytes, usage.MemoryBytes = 4096, 8192
		p.CGroups.Groups.(groups)[path] = usage
	}
	summary, err := p.Summary(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	got := summary.Pods[0]
	if n := got.Network; n == nil || n.Name != "eth0" || *n.RxBytes != 11 || *n.TxBytes != 22 || len(n.Interfaces) != 1 {
		t.Errorf("network %+v", n)
	}
	if logs := got.Containers[0].Logs; logs == nil || *logs.UsedBytes < 7 || logs.CapacityBytes == nil || *logs.CapacityBytes != 100 {
		t.Errorf("logs %+v", logs)
	}
	if whole := got.EphemeralStorage; whole == nil || *whole.UsedBytes < 1<<20+7 || *whole.InodesUsed < 1002 {
		t.Errorf("the pod's disk is %+v, without its containers' layers and logs", whole)
	}
	if swap := got.Containers[0].Swap; swap == nil || *swap.SwapUsageBytes != 3 {
		t.Errorf("the container's swap %+v", swap)
	}
	if *got.Swap.SwapUsageBytes != 4096 || *summary.Node.Swap.SwapUsageBytes != 4096 {
		t.Errorf("swap of the pod %+v, of the node %+v", got.Swap, summary.Node.Swap)
	}
	if all := summary.Node.SystemContainers; len(all) != 1 || all[0].Name != "pods" || *all[0].Memory.UsageBytes != 8192 {
		t.Errorf("system containers %+v", all)
	}
	brief, err := p.Summary(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	if got := brief.Pods[0]; got.Network != nil || got.Containers[0].Logs != nil {
		t.Errorf("the summary of CPU and memory alone counts %+v", got)
	}
}

// The summary has the kubelet and the container runtime, as far as their control groups
// are known.
func TestSummaryOfSystemContainers(t *testing.T) {
	p, _ := newProvider(t)
	p.CGroups.Groups.(groups)["/system/kubelet"] = cgroup.Usage{CPUNanoseconds: 3, WorkingSetBytes: 4}
	p.CGroups.Groups.(groups)["/system/runtime"] = cgroup.Usage{CPUNanoseconds: 5, WorkingSetBytes: 6}
	for name, test := range map[string]struct{ kubelet, runtime, want string }{
		"all":     {"/system/kubelet", "/system/runtime", " pods 0 0 kubelet 3 4 runtime 5 6"},
		"kubelet": {"/system/kubelet", "", " pods 0 0 kubelet 3 4"},
		"gone":    {"", "/system/gone", " pods 0 0"},
	} {
		p.SystemCGroups = func() (kubelet, runtime string) { return test.kubelet, test.runtime }
		for _, brief := range []bool{false, true} {
			summary, err := p.Summary(t.Context(), brief)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, c := range summary.Node.SystemContainers {
				got += fmt.Sprintf(" %s %d %d", c.Name, *c.CPU.UsageCoreNanoSeconds, *c.Memory.WorkingSetBytes)
			}
			if got != test.want {
				t.Errorf("%s: got%s, want%s", name, got, test.want)
			}
		}
	}
}

// busy are control groups with a disk, whose processes have interfaces.
type busy struct{ groups }

func (busy) Disks(path string) []cgroup.Disk { return []cgroup.Disk{{Device: path, Reads: 1}} }
func (busy) Packets(path string) map[string]cgroup.Packets {
	return map[string]cgroup.Packets{"lo": {Received: 9}, "eth0": {Received: uint64(len(path))}}
}

// The groups have their disks, and the packets of the interfaces that the runtime
// reports.
func TestDisksAndPackets(t *testing.T) {
	p, _ := newProvider(t)
	p.CGroups.Groups = busy{p.CGroups.Groups.(groups)}
	_, found, err := p.Groups(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const sandbox = "/kubepods/besteffort/poduid-web/sandbox"
	for _, g := range found {
		if want := []cgroup.Disk{{Device: g.ID, Reads: 1}}; !slices.Equal(g.Disks, want) {
			t.Errorf("disks of %s: %+v", g.ID, g.Disks)
		}
		if g.ID == sandbox && (len(g.Interfaces) != 1 || g.Interfaces[0].Packets == nil || g.Interfaces[0].Packets.Received != uint64(len(sandbox))) {
			t.Errorf("interfaces %+v", g.Interfaces)
		}
	}
}

// noted are control groups that note of which all usage is read.
type noted struct {
	groups
	read *[]string
}

func (n noted) Usage(path string) (cgroup.Usage, error) {
	*n.read = append(*n.read, path)
	return n.groups.Usage(path)
}

// The summary has the pressure on the node, pods and containers, where the kernel
// measures it. Of containers nothing else is read, because the runtime tells it.
func TestSummaryOfPressure(t *testing.T) {
	p, _ := newProvider(t)
	known, read := p.CGroups.Groups.(groups), []string(nil)
	p.CGroups.Groups = noted{known, &read}
	const pod = "/kubepods/besteffort/poduid-web"
	lacking := &cgroup.Pressure{Some: cgroup.Stall{Avg10: 2.5, Nanoseconds: 3000}}
	for _, path := range []string{"/", "/kubepods", pod, pod + "/new"} {
		usage := known[path]
		usage.CPUPressure, usage.MemoryPressure, usage.IOPressure = lacking, lacking, lacking
		known[path] = usage
	}
	summary, err := p.Summary(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	node, web := summary.Node, summary.Pods[0]
	main := web.Containers[0]
	for name, got := range map[string]*statsapi.PSIStats{
		"CPU of the node": node.CPU.PSI, "memory of the node": node.Memory.PSI, "CPU of the pod": web.CPU.PSI, "memory of the pod": web.Memory.PSI,
		"CPU of the container": main.CPU.PSI, "memory of the container": main.Memory.PSI,
	} {
		if got == nil || got.Some.Avg10 != 2.5 || got.Some.Total != 3000 || got.Full.Total != 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}
	for name, got := range map[string]*statsapi.IOStats{"node": node.IO, "pods": node.SystemContainers[0].IO, "pod": web.IO, "container": main.IO} {
		if got == nil || got.PSI == nil || got.PSI.Some.Total != 3000 {
			t.Errorf("I/O of the %s: %+v", name, got)
		}
	}
	if slices.Contains(read, pod+"/new") || !slices.Contains(read, pod) {
		t.Errorf("all usage was read of %q", read)
	}
	delete(known, pod+"/new")
	if summary, err = p.Summary(t.Context(), true); err != nil || summary.Pods[0].Containers[0].IO != nil || summary.Pods[0].Containers[0].CPU.PSI != nil {
		t.Errorf("without measures: %+v, %v", summary, err)
	}
}
