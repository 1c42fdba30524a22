package stats

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	kubelettypes "k8s.io/kubelet/pkg/types"

	_ "github.com/coracle-io/coracle/internal/bubble"
	"github.com/coracle-io/coracle/internal/kubelet/cgroup"
	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/kubelet/cri/inmemory"
	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/node"
	"github.com/coracle-io/coracle/internal/kubelet/pod"
)

// measured is a runtime with fixed statistics, and the disk of its node.
type measured struct {
	*inmemory.Runtime
	disk       *files.Memory
	containers []*runtimeapi.ContainerStats
	sandboxes  []*runtimeapi.PodSandboxStats
	err        error
}

func (m *measured) ListContainerStats(context.Context, *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error) {
	return m.containers, m.err
}

func (m *measured) ListPodSandboxStats(context.Context, *runtimeapi.PodSandboxStatsFilter) ([]*runtimeapi.PodSandboxStats, error) {
	return m.sandboxes, m.err
}

// groups are control groups with fixed usage. Groups that are not in the map do
// not exist.
type groups map[string]cgroup.Usage

func (groups) Apply(string, *runtimeapi.LinuxContainerResources, int64) error { return nil }
func (groups) Limit(string, *runtimeapi.LinuxContainerResources, int64) error { return nil }
func (groups) Remove(string) error                                            { return nil }
func (groups) Kill(string) error                                              { return nil }
func (groups) Below(string) ([]string, error)                                 { return nil, nil }
func (groups) Disks(string) []cgroup.Disk                                     { return nil }
func (groups) Packets(string) map[string]cgroup.Packets                       { return nil }
func (g groups) Pressures(path string) cgroup.Pressures                       { return g[path].Pressures }
func (g groups) Usage(path string) (cgroup.Usage, error) {
	usage, ok := g[path]
	if !ok {
		return usage, errors.New("no such group")
	}
	return usage, nil
}

// directories are the volumes' directories.
type directories struct{}

func (directories) PodDir(uid types.UID) string { return "/pods/" + string(uid) }
func (directories) Directory(uid types.UID, vol *v1.Volume) string {
	if vol.EmptyDir == nil && vol.ConfigMap == nil && vol.Secret == nil {
		return ""
	}
	return "/pods/" + string(uid) + "/" + vol.Name
}

func number(v uint64) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: v} }

func statsOf(uid, id, name string, nanoCores uint64) *runtimeapi.ContainerStats {
	return &runtimeapi.ContainerStats{
		Attributes: &runtimeapi.ContainerAttributes{
			Id: id, Metadata: &runtimeapi.ContainerMetadata{Name: name}, Labels: map[string]string{kubelettypes.KubernetesPodUIDLabel: uid},
		},
		Cpu:           &runtimeapi.CpuUsage{UsageNanoCores: number(nanoCores)},
		Memory:        &runtimeapi.MemoryUsage{WorkingSetBytes: number(7)},
		WritableLayer: &runtimeapi.FilesystemUsage{UsedBytes: number(512)},
	}
}

// newProvider returns a Provider of a node with the running pod default/web,
// whose container main has restarted once, and the pod default/done, which has
// ended.
func newProvider(t *testing.T) (*Provider, *measured) {
	t.Helper()
	web := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "uid-web"}}
	web.Spec.Volumes = []v1.Volume{
		{Name: "cache", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
		{Name: "config", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}},
		{Name: "secret", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{}}},
		{Name: "unused", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
		{Name: "host", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/srv"}}},
	}
	done := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "done", Namespace: "default", UID: "uid-done"}}
	started := time.Unix(1_800_000_000, 0)
	observed := []pod.Observed{
		{Pod: web, Runtime: &cri.Pod{
			Sandboxes: []*cri.Sandbox{{ID: "sandbox", Ready: true, CreatedAt: started}},
			Containers: []*cri.Container{
				{ID: "new", Name: "main", Image: "example.com/web:1", State: cri.Running, StartedAt: started, Resources: &runtimeapi.LinuxContainerResources{CpuShares: 102}},
				{ID: "old", Name: "main", State: cri.Exited},
			},
		}},
		{Pod: done, Runtime: &cri.Pod{Containers: []*cri.Container{{ID: "ended", Name: "main", State: cri.Exited}}}},
	}
	memory := &files.Memory{}
	runtime := &measured{
		Runtime:    inmemory.New(),
		disk:       memory,
		containers: []*runtimeapi.ContainerStats{statsOf("uid-web", "new", "main", 300), statsOf("uid-web", "old", "main", 900), statsOf("uid-done", "ended", "main", 900)},
		sandboxes: []*runtimeapi.PodSandboxStats{{
			Attributes: &runtimeapi.PodSandboxAttributes{Id: "sandbox"},
			Linux: &runtimeapi.LinuxPodSandboxStats{Network: &runtimeapi.NetworkUsage{DefaultInterface: &runtimeapi.NetworkInterfaceUsage{
				Name: "eth0", RxBytes: number(11), TxBytes: number(22),
			}}},
		}},
	}
	for path, content := range map[string]string{"/pods/uid-web/cache/file": "12345", "/pods/uid-web/config/key": "123", "/pods/uid-web/secret/key": "1"} {
		if err := memory.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := memory.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return &Provider{
		NodeName: "alpha", Started: started, Pods: func() []pod.Observed { return observed }, Runtime: runtime, Volumes: directories{},
		Count: func(_ context.Context, _ types.UID, path string) (bytes, inodes int64, at time.Time, err error) {
			bytes, inodes, err = memory.Usage(path)
			return bytes, inodes, started, err
		},
		Machine: &node.Fixed{
			Resources: v1.ResourceList{v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("8Gi")},
			System:    v1.NodeSystemInfo{BootID: "boot"},
			Left:      node.Free{MemoryBytes: 100, MemoryTotal: 200, DiskBytes: 60, DiskTotal: 100, Inodes: 6, InodesTotal: 10, PIDs: 90, PIDsTotal: 100},
			Mounts:    map[string]node.FileSystem{"/pods/uid-web/secret": {Bytes: 3, Total: 4, Inodes: 1, InodesTotal: 2}},
		},
		FileSystems: func(context.Context) (images, containers node.FileSystem, err error) {
			images = node.FileSystem{Bytes: 10, Total: 1000, Inodes: 1, InodesTotal: 100}
			return images, images, nil
		},
		Used:          func(context.Context) (images, containers *runtimeapi.FilesystemUsage) { return nil, nil },
		SystemCGroups: func() (kubelet, runtime string) { return "", "" },
		CGroups: &cgroup.Pods{Configuration: &kubeletconfig.KubeletConfiguration{}, Groups: groups{
			"/":                                   {CPUNanoseconds: 5e9, WorkingSetBytes: 50},
			"/kubepods":                           {},
			"/kubepods/besteffort":                {},
			"/kubepods/besteffort/poduid-web":     {CPUNanoseconds: 1e9, WorkingSetBytes: 9, Processes: 3},
			"/kubepods/besteffort/poduid-web/new": {CPUNanoseconds: 9e8},
			"/kubepods/besteffort/poduid-web/sandbox":   {CPUNanoseconds: 1e8},
			"/kubepods/besteffort/poduid-web/old":       {CPUNanoseconds: 7},
			"/kubepods/besteffort/poduid-done/anything": {},
		}},
	}, runtime
}

func TestSummaryOfPods(t *testing.T) {
	p, _ := newProvider(t)
	summary, err := p.Summary(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	if len(summary.Pods) != 1 {
		t.Fatalf("the summary has %d pods, want the one that runs", len(summary.Pods))
	}
	got := summary.Pods[0]
	if got.PodRef.Name != "web" || len(got.Containers) != 1 || got.Containers[0].Name != "main" || *got.Containers[0].Rootfs.UsedBytes != 512 {
		t.Errorf("pod %+v, want web with the running instance of main", got)
	}
	if fs := got.Containers[0].Rootfs; fs.CapacityBytes == nil || *fs.CapacityBytes != 1000 || *fs.AvailableBytes != 10 || *fs.Inodes != 100 || *fs.InodesFree != 1 {
		t.Errorf("the writable layer is on %+v", fs)
	}
	if *got.CPU.UsageNanoCores != 300 || *got.CPU.UsageCoreNanoSeconds != 1e9 || *got.Memory.WorkingSetBytes != 9 || *got.ProcessStats.ProcessCount != 3 {
		t.Errorf("cpu %+v memory %+v processes %+v", got.CPU, got.Memory, got.ProcessStats)
	}
	volumes, onDisk := "", map[string]*statsapi.FsStats{"pod": got.EphemeralStorage}
	for i := range got.VolumeStats {
		v := &got.VolumeStats[i]
		volumes += fmt.Sprint(" ", v.Name, " ", *v.UsedBytes)
		if v.Name != "secret" {
			onDisk["volume "+v.Name] = &v.FsStats
		} else if v.CapacityBytes == nil || *v.CapacityBytes != 4 || *v.AvailableBytes != 3 || *v.Inodes != 2 || *v.InodesFree != 1 {
			t.Errorf("a volume in memory is on %+v", v.FsStats)
		}
	}
	if *got.EphemeralStorage.UsedBytes < 8 || volumes != " cache 5 config 3 secret 1" {
		t.Errorf("storage %+v, volumes%s", got.EphemeralStorage, volumes)
	}
	for name, fs := range onDisk {
		if fs.CapacityBytes == nil || *fs.CapacityBytes != 100 || *fs.AvailableBytes != 60 || *fs.Inodes != 10 || *fs.InodesFree != 6 {
			t.Errorf("the files of the %s are on %+v", name, fs)
		}
	}
}

// The summary waits a bounded time for a pod whose files take very long to be counted,
// and has all else of it and of other pods.
func TestSummaryWithManyFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := newProvider(t)
		observed := p.Pods()
		slow := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "slow", Namespace: "default", UID: "uid-slow"}}
		observed = append([]pod.Observed{{Pod: slow, Runtime: observed[0].Runtime}}, observed...)
		p.Pods = func() []pod.Observed { return observed }
		count := p.Count
		p.Count = func(ctx context.Context, uid types.UID, path string) (bytes, inodes int64, at time.Time, err error) {
			if uid == slow.UID {
				<-ctx.Done()
				return 0, 0, time.Time{}, ctx.Err()
			}
			return count(ctx, uid, path)
		}
		began := time.Now()
		summary, err := p.Summary(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > countTime {
			t.Errorf("the summary took %v", took)
		}
		if len(summary.Pods) != 2 || summary.Pods[0].PodRef.Name != "slow" || summary.Pods[0].EphemeralStorage != nil || summary.Pods[0].Network == nil || summary.Pods[1].EphemeralStorage == nil {
			t.Errorf("pods %+v", summary.Pods)
		}
	})
}

func TestSummaryOfTheNode(t *testing.T) {
	p, _ := newProvider(t)
	summary, err := p.Summary(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	n := summary.Node
	if n.NodeName != "alpha" || *n.Memory.AvailableBytes != 100 || *n.Fs.UsedBytes != 40 || *n.Fs.InodesUsed != 4 || *n.Rlimit.NumOfRunningProcesses != 10 {
		t.Errorf("node %+v", n)
	}
	if fs := n.Runtime.ImageFs; *fs.CapacityBytes != 1000 || *fs.UsedBytes != 990 || *fs.InodesFree != 1 {
		t.Errorf("the image file system has %d of %d bytes in use", *fs.UsedBytes, *fs.CapacityBytes)
	}
	p.Used = func(context.Context) (images, containers *runtimeapi.FilesystemUsage) {
		return &runtimeapi.FilesystemUsage{UsedBytes: number(300), InodesUsed: number(30)}, &runtimeapi.FilesystemUsage{UsedBytes: number(7), InodesUsed: number(3)}
	}
	if summary, err = p.Summary(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if fs := summary.Node.Runtime.ImageFs; *fs.CapacityBytes != 1000 || *fs.UsedBytes != 300 || *fs.InodesUsed != 30 || *fs.AvailableBytes != 10 {
		t.Errorf("the images use %d of %d bytes and %d inodes", *fs.UsedBytes, *fs.CapacityBytes, *fs.InodesUsed)
	}
	if n := summary.Node.Runtime; n.ContainerFs != n.ImageFs {
		t.Errorf("the writable layers are on %+v, and not with the images", n.ContainerFs)
	}
	p.FileSystems = func(context.Context) (images, containers node.FileSystem, err error) {
		return node.FileSystem{Bytes: 10, Total: 1000, Device: 1}, node.FileSystem{Bytes: 20, Total: 2000, Device: 2}, nil
	}
	if summary, err = p.Summary(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	images, layers := summary.Node.Runtime.ImageFs, summary.Node.Runtime.ContainerFs
	if *images.CapacityBytes != 1000 || *images.UsedBytes != 300 || *layers.CapacityBytes != 2000 || *layers.UsedBytes != 7 || *layers.InodesUsed != 3 || *layers.AvailableBytes != 20 {
		t.Errorf("a disk that is split: images on %+v, layers on %+v", images, layers)
	}
	if fs := summary.Pods[0].Containers[0].Rootfs; *fs.CapacityBytes != 2000 {
		t.Errorf("the writable layer of a container is on %+v", fs)
	}
}

func TestSummaryOfCPUAndMemoryOnly(t *testing.T) {
	p, _ := newProvider(t)
	summary, err := p.Summary(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	if n := summary.Node; n.CPU == nil || n.Memory == nil || n.Fs != nil || n.Runtime != nil {
		t.Errorf("node %+v", n)
	}
	if got := summary.Pods[0]; got.CPU == nil || got.EphemeralStorage != nil || got.VolumeStats != nil {
		t.Errorf("pod %+v", got)
	}
}

func TestSummaryWithoutRuntime(t *testing.T) {
	p, runtime := newProvider(t)
	runtime.err = errors.New("the runtime is away")
	if _, err := p.Summary(t.Context(), false); !errors.Is(err, runtime.err) {
		t.Errorf("the summary's error is %v", err)
	}
}

// The node's CPU usage is the average since the last summary.
func TestNodeCores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := newProvider(t)
		all := p.CGroups.Groups.(groups)
		for _, step := range []struct {
			total, want uint64
			after       time.Duration
		}{{5e9, 0, time.Minute}, {25e9, 2e9, 10 * time.Second}, {1e9, 0, 10 * time.Second}, {2e9, 1e8, 10 * time.Second}} {
			time.Sleep(step.after)
			all["/"] = cgroup.Usage{CPUNanoseconds: step.total}
			summary, err := p.Summary(t.Context(), true)
			if err != nil {
				t.Fatal(err)
			}
			if got := *summary.Node.CPU.UsageNanoCores; got != step.want {
				t.Errorf("%d ns after %v: %d nanocores, want %d", step.total, step.after, got, step.want)
			}
		}
	})
}

func TestGroups(t *testing.T) {
	p, runtime := newProvider(t)
	machine, found, err := p.Groups(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if want := (Machine{CPUs: 4, MemoryBytes: 8 << 30, BootID: "boot"}); machine != want {
		t.Errorf("machine %+v, want %+v", machine, want)
	}
	got := map[string]Group{}
	var ids []string
	for _, g := range found {
		got[g.ID], ids = g, append(ids, g.ID)
	}
	const pod = "/kubepods/besteffort/poduid-web"
	if diff := cmp.Diff([]string{"/", "/kubepods", "/kubepods/besteffort", pod, pod + "/sandbox", pod + "/new"}, ids); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]Interface{{Name: "eth0", ReceivedBytes: 11, SentBytes: 22}}, got[pod+"/sandbox"].Interfaces); diff != "" {
		t.Errorf("interfaces (-want +got):\n%s", diff)
	}
	main := got[pod+"/new"]
	if main.Container != "main" || main.Pod != "web" || main.Image != "example.com/web:1" || main.Usage.CPUNanoseconds != 9e8 || main.Shares != 102 || *main.Disk != 512 {
		t.Errorf("the container's group is %+v", main)
	}
	runtime.err = errors.New("the runtime is away")
	if _, found, err := p.Groups(t.Context()); err != nil || len(found) != len(ids) {
		t.Errorf("without the runtime's statistics: %d groups, %v", len(found), err)
	}
}
